//! libibverbs, libefa, AWS's installer, and what is built on them.

use super::super::Host;
use super::super::lists;
use super::super::software::{Library, mapped};
use super::super::view::Asked;
use super::verdict::{fine, found, listed, moot, unknown};
use super::{Check, Severity, Verdict};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "libibverbs",
        title: "libibverbs is found",
        severity: Severity::Problem,
        explain: "Looks for libibverbs.so.1 among what this process loaded, then where the loader looks. Debian has \
                  it in libibverbs1; AWS's installer brings it too.",
        judge: libibverbs,
    },
    Check {
        id: "libefa",
        title: "libefa is found",
        severity: Severity::Problem,
        explain: "Looks for libefa.so.1, the provider of EFA with calls of its own. Debian has it in \
                  ibverbs-providers.",
        judge: libefa,
    },
    Check {
        id: "libefa-version",
        title: "libefa is new enough to be used at all",
        severity: Severity::Problem,
        explain: "efa_os needs EFA_1.2 (rdma-core 43): completion queues that say what is asked of them.",
        judge: libefa_version,
    },
    Check {
        id: "direct-path",
        title: "libefa tells where the device's queues are",
        severity: Severity::Note,
        explain: "From EFA_1.4 on (rdma-core 59) core writes the device's queues itself, the direct data path. Before \
                  that operations go through the library's calls, without wide entries and unsolicited receive.",
        judge: direct_path,
    },
    Check {
        id: "provider-file",
        title: "libibverbs is told to load EFA's provider",
        severity: Severity::Problem,
        explain: "libibverbs loads what the files in /etc/libibverbs.d name: `driver efa` in efa.driver. Some builds \
                  have the list elsewhere, or the provider within themselves.",
        judge: provider_file,
    },
    Check {
        id: "provider-abi",
        title: "libibverbs and EFA's provider are of one build",
        severity: Severity::Problem,
        explain: "A provider's file has the number of the private interface in its name, libefa-rdmav34.so for one, \
                  which must be that of libibverbs (IBVERBS_PRIVATE_34). Two releases mixed find no devices.",
        judge: provider_abi,
    },
    Check {
        id: "devices-listed",
        title: "libibverbs lists each EFA of the kernel's",
        severity: Severity::Problem,
        explain: "Asks ibv_get_device_list, and opens each device. What the kernel has and the library does not list \
                  is the library's: its provider, or an older one in its place.",
        judge: devices_listed,
    },
    Check {
        id: "drivers-variable",
        title: "no variable keeps EFA's provider out",
        severity: Severity::Warning,
        explain: "RDMAV_DRIVERS and IBV_DRIVERS name the providers to load, besides those that are configured. A list \
                  without efa is mostly left from another machine.",
        judge: drivers_variable,
    },
    Check {
        id: "libraries-twice",
        title: "each library is loaded once",
        severity: Severity::Warning,
        explain: "Two copies of libibverbs, libefa or libfabric in one process have two lists of devices, and handles \
                  of the one mean nothing to the other. AWS's are in /opt/amazon/efa, a distribution's in /usr/lib.",
        judge: twice,
    },
    Check {
        id: "installer-known-bad",
        title: "AWS's installer works on this system",
        severity: Severity::Problem,
        explain: "Installer 1.48.0 on Ubuntu 24.04 needs ibverbs-providers 59 or newer, which that system does not \
                  have (an issue of ai-dynamo/dynamo, 9727).",
        judge: installer_known_bad,
    },
    Check {
        id: "installer-minimum",
        title: "AWS's installer is new enough for the instance type",
        severity: Severity::Warning,
        explain: "GPU instances need installers from a version on: P5, P5e and P5en 1.24.1, P6-B200 and GB200 1.41, \
                  P5.4xlarge 1.43.1, P6-B300 1.44, G7e 1.45 (AWS's documentation).",
        judge: installer_minimum,
    },
    Check {
        id: "efa-direct",
        title: "libfabric has the fabric efa-direct",
        severity: Severity::Note,
        explain: "efa-direct is the device without a protocol over it; it came with libfabric 2.1.0 (its release \
                  notes), which the installers from 1.40 on bring. Before, all programs on libfabric have the fabric \
                  efa.",
        judge: efa_direct,
    },
    Check {
        id: "software-minimum",
        title: "what is built on EFA is new enough",
        severity: Severity::Warning,
        explain: "libfabric, Open MPI and Intel MPI against the oldest versions in AWS's documentation, by the dated \
                  list. NCCL, NIXL and Neuron are shown by `efa devices`, and not judged: no oldest version is \
                  documented.",
        judge: minimum,
    },
];

const INSTALL: &str = "install AWS's EFA installer, or Debian's packages libibverbs1 and ibverbs-providers";

fn is_here(library: &Option<Library>, name: &str) -> Verdict {
    match library {
        Some(library) => {
            let release = library.release.as_ref().map(|release| format!(", rdma-core {release}")).unwrap_or_default();
            fine(format!("{}{release}{}", library.path, if library.loaded { ", loaded" } else { "" }))
        }
        None => found(format!("no {name} where the loader looks"), name, INSTALL),
    }
}

fn libibverbs(host: &Host) -> Verdict {
    is_here(&host.software.libibverbs, "libibverbs.so.1")
}

fn libefa(host: &Host) -> Verdict {
    is_here(&host.software.libefa, "libefa.so.1")
}

fn efa_node(host: &Host) -> Result<(u32, String), Verdict> {
    let Some(library) = &host.software.libefa else { return Err(moot("no libefa is here")) };
    let node = library.node.ok_or_else(|| unknown(format!("{} has no version nodes of libefa's", library.path)))?;
    Ok((node, format!("EFA_1.{node} in {}", library.path)))
}

fn libefa_version(host: &Host) -> Verdict {
    match efa_node(host) {
        Err(verdict) => verdict,
        Ok((node, text)) if node >= 2 => fine(text),
        Ok((_, text)) => found(text, "EFA_1.2 (rdma-core 43) or newer", INSTALL),
    }
}

fn direct_path(host: &Host) -> Verdict {
    match efa_node(host) {
        Err(verdict) => verdict,
        Ok((node, text)) if node >= 4 => fine(text),
        Ok((_, text)) => found(
            text,
            "EFA_1.4 (rdma-core 59) or newer",
            "nothing, if the verbs path is enough; else AWS's newest EFA installer, whose rdma-core is newer",
        ),
    }
}

fn provider_file(host: &Host) -> Verdict {
    if host.software.libibverbs.is_none() {
        return moot("no libibverbs is here");
    }
    let folder = "/etc/libibverbs.d";
    if !host.view.has(folder) {
        return unknown(format!("there is no {folder}: this libibverbs has its list elsewhere, or none"));
    }
    let named = host.view.names(folder).into_iter().find(|file| {
        let text = host.view.text(&format!("{folder}/{file}")).unwrap_or_default();
        text.lines().any(|line| line.split_whitespace().eq(["driver", "efa"]))
    });
    match named {
        Some(file) => fine(format!("{folder}/{file}")),
        None => found(
            format!("no file in {folder} names efa"),
            "a line `driver efa`",
            "install EFA's provider: AWS's EFA installer, or Debian's package ibverbs-providers",
        ),
    }
}

fn provider_abi(host: &Host) -> Verdict {
    let Some(library) = &host.software.libibverbs else { return moot("no libibverbs is here") };
    let Some(private) = library.private else {
        return unknown(format!("{} does not say the number of its private interface", library.path));
    };
    let folder = library.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let plugins = format!("{folder}/libibverbs");
    let numbers: Vec<u32> = host
        .view
        .names(&plugins)
        .iter()
        .filter_map(|file| file.strip_prefix("libefa-rdmav")?.strip_suffix(".so")?.parse().ok())
        .collect();
    match numbers[..] {
        [] => unknown(format!("no libefa-rdmav*.so in {plugins}")),
        _ if numbers.contains(&private) => fine(format!("libefa-rdmav{private}.so for IBVERBS_PRIVATE_{private}")),
        [other, ..] => found(
            format!("libefa-rdmav{other}.so beside a libibverbs with IBVERBS_PRIVATE_{private}"),
            format!("libefa-rdmav{private}.so"),
            "take libibverbs and its providers from one release: remove one of AWS's packages and the distribution's",
        ),
    }
}

fn devices_listed(host: &Host) -> Verdict {
    let devices = match &host.view.verbs {
        Asked::Not => return unknown("the library was not asked"),
        Asked::Failed(why) if host.bus.efas.is_empty() => return moot(format!("no EFA is here, and {why}")),
        Asked::Failed(why) => {
            return found(format!("the library does not answer: {why}"), "a list of devices", INSTALL);
        }
        Asked::Answered(devices) => devices,
    };
    let refused: Vec<_> =
        devices.iter().filter_map(|device| Some(format!("{}: {}", device.name, device.error.as_ref()?))).collect();
    let unlisted: Vec<_> = host
        .bus
        .efa_devices()
        .filter(|device| !devices.iter().any(|listed| listed.name == device.name))
        .map(|device| &device.name)
        .collect();
    let efas = host.bus.efa_devices().count();
    match (efas, unlisted.is_empty(), refused.is_empty()) {
        (0, _, true) => moot("the kernel has no EFA"),
        (_, false, _) => found(
            format!("{} of {efas} not listed: {}", unlisted.len(), listed(&unlisted)),
            "each EFA of the kernel's",
            "see the checks of the provider above, and the files in /dev below",
        ),
        (_, true, false) => {
            let open = "each device to open";
            let first = refused.first().map_or("", String::as_str);
            found(
                format!("{} of {efas}: {first}", refused.len()),
                open,
                "what the library says of the first; the checks of files in /dev say more",
            )
        }
        (_, true, true) => fine(format!("{} opened", devices.len())),
    }
}

fn drivers_variable(host: &Host) -> Verdict {
    let set: Vec<_> = ["RDMAV_DRIVERS", "IBV_DRIVERS"]
        .into_iter()
        .filter_map(|name| Some((name, host.view.variable(name)?)))
        .collect();
    let without: Vec<_> =
        set.iter().filter(|(_, value)| !value.contains("efa")).map(|(name, value)| format!("{name}={value}")).collect();
    match (set.is_empty(), without.is_empty()) {
        (true, _) => fine("neither is set"),
        (false, true) => fine("efa is in the list"),
        (false, false) => found(listed(&without), "a list with efa, or none", "unset it"),
    }
}

fn twice(host: &Host) -> Verdict {
    let mut doubled = Vec::new();
    for name in ["libibverbs.so", "libefa.so", "libfabric.so"] {
        let files = mapped(&host.view, name);
        if files.len() > 1 {
            doubled.push(files.join(" and "));
        }
    }
    if doubled.is_empty() {
        return fine("none is mapped twice");
    }
    found(
        listed(&doubled),
        "one file of each",
        "let LD_LIBRARY_PATH and the program's own paths name one of the two: AWS's, mostly",
    )
}

fn installer_known_bad(host: &Host) -> Verdict {
    let Some(version) = &host.software.installer else { return moot("AWS's installer left no list here") };
    let Some((id, system)) = &host.software.system else { return unknown("there is no /etc/os-release") };
    let bad = version.to_string().starts_with("1.48.0") && id == "ubuntu" && system == "24.04";
    let release = host.software.libibverbs.as_ref().and_then(|library| library.release.as_ref());
    if bad && release.is_none_or(|release| release.is_before("59")) {
        return found(
            format!("installer {version} on Ubuntu {system}"),
            "ibverbs-providers 59 or newer with that installer",
            "take an installer other than 1.48.0, or a newer rdma-core",
        );
    }
    fine(format!("installer {version} on {id} {system}"))
}

fn installer_minimum(host: &Host) -> Verdict {
    let Some(needed) = host.instance.row.and_then(|row| row.installer) else {
        return moot("no oldest installer is known for this instance type");
    };
    let kind = host.instance.kind.as_deref().unwrap_or_default();
    match &host.software.installer {
        None => unknown(format!("AWS's installer left no list here; {kind} needs {needed}")),
        Some(version) if version.is_before(needed) => {
            found(format!("{version}"), format!("{needed} or newer for {kind}"), "install AWS's newest EFA installer")
        }
        Some(version) => fine(format!("{version}")),
    }
}

fn efa_direct(host: &Host) -> Verdict {
    let Some(libfabric) = host.software.component("libfabric") else {
        return match &host.software.installer {
            Some(installer) if installer.is_before("1.39") => found(
                format!("installer {installer}, of an unknown libfabric"),
                "libfabric 2.1 or newer",
                "install AWS's EFA installer from 1.40 on",
            ),
            _ => moot("no libfabric is found"),
        };
    };
    let version = &libfabric.version;
    if version.is_before(super::super::fabric::DIRECT_SINCE) {
        return found(
            format!("libfabric {version} ({})", libfabric.place),
            "2.1 or newer",
            "install AWS's EFA installer from 1.40 on, if programs shall have efa-direct",
        );
    }
    fine(format!("libfabric {version}"))
}

fn minimum(host: &Host) -> Verdict {
    let judged: Vec<_> = host
        .software
        .components
        .iter()
        .filter_map(|component| Some((component, lists::minimum(component.name)?)))
        .collect();
    let old: Vec<_> = judged
        .iter()
        .filter(|(component, minimum)| lists::is_too_old(minimum, &component.version))
        .map(|(component, minimum)| {
            format!("{} {} (at least {}, {})", component.name, component.version, minimum.version, minimum.why)
        })
        .collect();
    match (judged.is_empty(), old.is_empty()) {
        (true, _) => moot("none of them is found"),
        (false, true) => {
            fine(listed(judged.iter().map(|(component, _)| format!("{} {}", component.name, component.version))))
        }
        (false, false) => {
            found(listed(&old), "the documentation's oldest", "install newer ones: AWS's installer brings them")
        }
    }
}
