//! The software of a host, as far as its files tell: libraries and their version nodes, packages, the operating system.

use super::version::Version;
use super::view::View;

/// What there is.
#[derive(Clone, Debug, Default)]
pub struct Software {
    /// `ID` and `VERSION_ID` of os-release.
    pub system: Option<(String, String)>,
    /// AWS's installer, by the list that it leaves.
    pub installer: Option<Version>,
    /// The kernel driver of AWS's own, if it is that; the kernel's own has no version.
    pub driver: Option<Version>,
    /// libibverbs and libefa.
    pub libibverbs: Option<Library>,
    /// EFA's provider.
    pub libefa: Option<Library>,
    /// What is built on them.
    pub components: Vec<Component>,
}

/// A library's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    /// Where it really is.
    pub path: String,
    /// The release of rdma-core, which its file's name has.
    pub release: Option<Version>,
    /// The newest version node that it has: `EFA_1.4`, and the number after the point.
    pub node: Option<u32>,
    /// The private interface between libibverbs and its providers, of libibverbs: `IBVERBS_PRIVATE_34`.
    pub private: Option<u32>,
    /// Whether it is loaded; else it is what the loader would find.
    pub loaded: bool,
}

/// Software that uses EFA, found on the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    /// What it is called in `lists/software.csv`.
    pub name: &'static str,
    /// Which one it is.
    pub version: Version,
    /// Which file says so.
    pub place: String,
}

/// The list that AWS's installer leaves.
const INSTALLED: &str = "/opt/amazon/efa_installed_packages";

impl Software {
    /// Reads it.
    pub fn of(view: &View) -> Self {
        let installed = view.text(INSTALLED).unwrap_or_default();
        let installer = installed.lines().find_map(|line| line.split_once("EFA installer version:"));
        Self {
            system: system(view),
            installer: installer.and_then(|(_, version)| Version::parse(version)),
            driver: view.text("/sys/module/efa/version").and_then(|text| Version::parse(&text)),
            libibverbs: library(view, "libibverbs.so.1", "EFA_OS_LIBIBVERBS", "IBVERBS_1."),
            libefa: library(view, "libefa.so.1", "EFA_OS_LIBEFA", "EFA_1."),
            components: components(view, &installed),
        }
    }

    /// A component by its name.
    pub fn component(&self, name: &str) -> Option<&Component> {
        self.components.iter().find(|component| component.name == name)
    }
}

fn system(view: &View) -> Option<(String, String)> {
    let text = view.text("/etc/os-release")?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    Some((value("ID")?, value("VERSION_ID").unwrap_or_default()))
}

/// The folders that the loader looks into, in its order, as far as files say.
pub(super) fn folders(view: &View) -> Vec<String> {
    let mut folders: Vec<String> =
        view.variable("LD_LIBRARY_PATH").unwrap_or_default().split(':').map(str::to_owned).collect();
    for file in view.names("/etc/ld.so.conf.d") {
        let text = view.text(&format!("/etc/ld.so.conf.d/{file}")).unwrap_or_default();
        folders.extend(text.lines().filter(|line| line.starts_with('/')).map(str::to_owned));
    }
    let architecture = &view.machine.architecture;
    folders.extend([format!("/lib/{architecture}-linux-gnu"), format!("/usr/lib/{architecture}-linux-gnu")]);
    folders.extend(
        ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/opt/amazon/efa/lib64", "/opt/amazon/efa/lib"].map(str::to_owned),
    );
    folders.retain(|folder| folder.starts_with('/'));
    folders
}

/// Files that the process has mapped whose names begin so, each once.
pub(super) fn mapped(view: &View, name: &str) -> Vec<String> {
    let maps = view.text("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| line[at..].trim_end_matches(" (deleted)")));
    let mut found: Vec<String> = Vec::new();
    for path in paths.filter(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(name))) {
        if !found.iter().any(|known| known == path) {
            found.push(path.to_owned());
        }
    }
    found
}

fn library(view: &View, soname: &str, variable: &str, node: &str) -> Option<Library> {
    let named = view.variable(variable).filter(|path| path.starts_with('/')).map(str::to_owned);
    let loaded = mapped(view, soname).into_iter().find(|path| view.has(path));
    let searched = || folders(view).into_iter().map(|folder| format!("{folder}/{soname}")).find(|path| view.has(path));
    let path = loaded.clone().or(named).or_else(searched)?;
    let real = view.real(&path).unwrap_or(path);
    let bytes = view.bytes(&real).unwrap_or_default();
    // libefa.so.1.4.59.0 is of rdma-core 59.0.
    let file = real.rsplit('/').next().unwrap_or_default();
    let release = file.strip_prefix(soname).and_then(|rest| rest.trim_start_matches('.').split_once('.'));
    Some(Library {
        release: release.and_then(|(_, release)| Version::parse(release)),
        node: numbers_after(&bytes, node).max(),
        private: numbers_after(&bytes, "IBVERBS_PRIVATE_").max(),
        path: real,
        loaded: loaded.is_some(),
    })
}

/// The numbers that follow a text in a file.
pub(super) fn numbers_after<'b>(bytes: &'b [u8], text: &'b str) -> impl Iterator<Item = u32> + 'b {
    let windows = bytes.windows(text.len()).enumerate();
    windows.filter(move |(_, window)| *window == text.as_bytes()).filter_map(move |(at, _)| {
        let digits: Vec<u8> =
            bytes[at + text.len()..].iter().take_while(|byte| byte.is_ascii_digit()).take(6).copied().collect();
        String::from_utf8(digits).ok()?.parse().ok()
    })
}

fn components(view: &View, installed: &str) -> Vec<Component> {
    let mut found = Vec::new();
    let mut put = |name, version: Option<Version>, place: String| {
        if let Some(version) = version
            && !found.iter().any(|known: &Component| known.name == name)
        {
            found.push(Component { name, version, place });
        }
    };
    let described = |file: &str, folders: &[String]| {
        let file = folders.iter().map(|folder| format!("{folder}/pkgconfig/{file}")).find(|path| view.has(path))?;
        let text = view.text(&file)?;
        let version = text.lines().find_map(|line| line.strip_prefix("Version:"))?;
        Some((Version::parse(version), file))
    };
    let package = |name: &str| package(installed, name);
    let prefix = |root: &str| [format!("{root}/lib64"), format!("{root}/lib")];
    let mut fabric = prefix("/opt/amazon/efa").to_vec();
    fabric.extend(folders(view));
    if let Some((version, file)) = described("libfabric.pc", &fabric) {
        put("libfabric", version, file);
    }
    for name in ["libfabric-aws-bin", "libfabric-aws", "libfabric1-aws"] {
        put("libfabric", package(name), INSTALLED.to_owned());
    }
    for root in ["/opt/amazon/openmpi5", "/opt/amazon/openmpi", "/usr"] {
        if let Some((version, file)) = described("ompi.pc", &prefix(root)) {
            put("Open MPI", version, file);
        }
    }
    for name in ["openmpi50-aws", "openmpi40-aws"] {
        put("Open MPI", package(name), INSTALLED.to_owned());
    }
    let mpi = "/opt/intel/oneapi/mpi";
    let newest = view.names(mpi).into_iter().rev().find_map(|name| Some((Version::parse(&name)?, name)));
    if let Some((version, name)) = newest {
        put("Intel MPI", Some(version), format!("{mpi}/{name}"));
    }
    put("aws-ofi-nccl", package("libnccl-ofi").or_else(|| package("aws-ofi-nccl")), INSTALLED.to_owned());
    let nccl = mapped(view, "libnccl.so.2")
        .into_iter()
        .chain(folders(view).into_iter().map(|at| format!("{at}/libnccl.so.2")));
    for path in nccl.filter_map(|path| view.real(&path)) {
        let version = path.rsplit("libnccl.so.").next().and_then(Version::parse);
        put("NCCL", version, path.clone());
    }
    for folder in python(view) {
        for name in view.names(&folder).iter().filter(|name| name.ends_with(".dist-info")) {
            let Some((package, version)) = name.trim_end_matches(".dist-info").split_once('-') else { continue };
            if package == "nixl" || package.starts_with("nixl_cu") {
                put("NIXL", Version::parse(version), format!("{folder}/{name}"));
            }
        }
    }
    for (name, file) in
        [("Neuron driver", "/sys/module/neuron/version"), ("NVIDIA driver", "/sys/module/nvidia/version")]
    {
        put(name, view.text(file).and_then(|text| Version::parse(&text)), file.to_owned());
    }
    found
}

/// A package's version by its name, of Debian's `name_version_arch` or an RPM's `name-version-release.arch`.
fn package(installed: &str, name: &str) -> Option<Version> {
    let rest = |word: &'_ str| word.strip_prefix(name)?.strip_prefix(['_', '-']).map(str::to_owned);
    installed.split_whitespace().filter_map(rest).find_map(|rest| Version::parse(rest.split(['_', '-']).next()?))
}

/// Folders of Python's packages, the active environment's first.
fn python(view: &View) -> Vec<String> {
    let mut roots: Vec<String> = view.variable("VIRTUAL_ENV").map(|root| format!("{root}/lib")).into_iter().collect();
    roots.extend(["/usr/local/lib", "/usr/lib"].map(str::to_owned));
    let mut folders = Vec::new();
    for root in roots {
        for name in view.names(&root).into_iter().filter(|name| name.starts_with("python3")) {
            folders.extend(["site-packages", "dist-packages"].map(|kind| format!("{root}/{name}/{kind}")));
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packages_version_is_read_of_either_kind_of_name_and_of_no_other_package() {
        let debian = "libfabric-aws-dev_9.9_amd64 libfabric-aws-bin_2.1.0amzn5.0_amd64 openmpi40-aws_4.1.7-2_amd64";
        let rpm = "libfabric-aws-devel-9.9-1.x86_64 libfabric-aws-2.1.0amzn5.0-1.amzn2023.x86_64 \
                   openmpi40-aws-4.1.7-2.x86_64";
        for installed in [debian, rpm] {
            let of = |name| package(installed, name).map(|version| version.to_string());
            let fabric = of("libfabric-aws-bin").or(of("libfabric-aws"));
            assert_eq!((fabric.as_deref(), of("openmpi40-aws").as_deref()), (Some("2.1.0amzn5.0"), Some("4.1.7")));
            assert_eq!(of("libnccl-ofi"), None);
        }
    }

    #[test]
    fn the_numbers_after_a_text_are_found_wherever_it_stands() {
        let bytes = b"\0EFA_1.0\0EFA_1.12\0EFA_1.\0EFA_2.3";
        assert_eq!(numbers_after(bytes, "EFA_1.").collect::<Vec<_>>(), [0, 12]);
    }
}
