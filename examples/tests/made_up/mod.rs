//! Hosts that are made up: a description becomes files below a folder, and answers, which are a view of a host.
//!
//! A description is TOML. `of` names another that it changes. `cards` makes EFAs and GPUs with all their files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use efa_examples::host::view::{Asked, Fork, Limits, Machine, VerbsDevice, View};
use efa_examples::host::{Host, Metadata};
use serde::Deserialize;
use tempfile::TempDir;

/// A host as its description has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Description {
    /// What it is.
    pub(crate) says: String,
    /// The host that it changes.
    of: Option<String>,
    /// All checks that find something.
    pub(crate) finds: Vec<String>,
    kernel: Option<String>,
    architecture: Option<String>,
    page: Option<u64>,
    cards: Option<Cards>,
    /// Text by path.
    files: BTreeMap<String, String>,
    /// Targets by path.
    links: BTreeMap<String, String>,
    /// What is not there after all.
    remove: Vec<String>,
    environment: BTreeMap<String, String>,
    limits: BTreeMap<String, u64>,
    /// An errno by path.
    refusals: BTreeMap<String, i32>,
    fork: Option<Fork>,
    /// Capabilities of all EFAs that open.
    capabilities: Option<Vec<String>>,
    /// Why the library does not answer, or that it lists nothing: `no devices`.
    library: Option<String>,
    metadata: BTreeMap<String, String>,
    /// Why the metadata service does not answer.
    metadata_error: Option<String>,
    /// What the command printed.
    rules: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cards {
    efas: usize,
    /// Of PCI: 0xefa0 and on.
    device: u16,
    #[serde(default)]
    gpus: usize,
    #[serde(default)]
    enas: usize,
    /// NUMA nodes, which cards and GPUs are divided between; 0: the system does not say.
    #[serde(default = "one")]
    nodes: usize,
    /// What the file p2p holds.
    p2p: Option<String>,
    /// Whether the kernel drives the EFAs.
    #[serde(default = "yes")]
    driven: bool,
    /// Whether each GPU and its cards are behind a switch of their own.
    #[serde(default = "yes")]
    switches: bool,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

/// The folder of descriptions.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts")
}

/// The names of all hosts.
pub(crate) fn names() -> Vec<String> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = entries.filter_map(|name| name.strip_suffix(".toml").map(str::to_owned)).collect();
    names.sort();
    names
}

/// A description with those that it is of.
pub(crate) fn description(name: &str) -> Description {
    let text =
        fs::read_to_string(folder().join(format!("{name}.toml"))).unwrap_or_else(|error| panic!("{name}: {error}"));
    let own: Description = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let Some(of) = &own.of else { return own };
    let mut whole = description(of);
    whole.says = own.says;
    whole.finds = own.finds;
    for (all, more) in [
        (&mut whole.files, own.files),
        (&mut whole.links, own.links),
        (&mut whole.environment, own.environment),
        (&mut whole.metadata, own.metadata),
    ] {
        all.extend(more);
    }
    whole.remove.extend(own.remove);
    whole.limits.extend(own.limits);
    whole.refusals.extend(own.refusals);
    whole.kernel = own.kernel.or(whole.kernel);
    whole.architecture = own.architecture.or(whole.architecture);
    whole.page = own.page.or(whole.page);
    whole.cards = own.cards.or(whole.cards);
    whole.fork = own.fork.or(whole.fork);
    whole.capabilities = own.capabilities.or(whole.capabilities);
    whole.library = own.library.or(whole.library);
    whole.metadata_error = own.metadata_error.or(whole.metadata_error);
    whole.rules = own.rules.or(whole.rules);
    whole
}

/// The host, and the folder that it lies in as long as this is kept.
pub(crate) fn host(name: &str) -> (Host, TempDir) {
    let made = description(name);
    // Thousands of small files: in memory, where that is a file system.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let root = folder.path();
    if let Some(cards) = &made.cards {
        cards.make(root);
    }
    for (path, text) in &made.files {
        put(root, path, text);
    }
    for (path, target) in &made.links {
        link(root, path, target);
    }
    for path in &made.remove {
        let path = below(root, path);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap_or_else(|error| panic!("{name}: remove {}: {error}", path.display()));
    }
    let mut view = View {
        root: root.to_owned(),
        sysfs: "/sys".to_owned(),
        environment: made.environment,
        machine: Machine {
            kernel: made.kernel.unwrap_or_default(),
            architecture: made.architecture.unwrap_or_else(|| "x86_64".to_owned()),
            page: made.page.unwrap_or(4096),
            name: name.to_owned(),
        },
        limits: Limits {
            memlock: made.limits.get("memlock").copied(),
            ipc_lock: made.limits.get("ipc_lock").is_some_and(|value| *value != 0),
        },
        refusals: made.refusals,
        verbs: Asked::Not,
        fork: made.fork.unwrap_or_default(),
        metadata: match (made.metadata_error, made.metadata.is_empty()) {
            (Some(why), _) => Asked::Failed(why),
            (None, true) => Asked::Not,
            (None, false) => Asked::Answered(made.metadata.into_iter().collect::<Metadata>()),
        },
        rules: made.rules.map(|text| serde_json::from_str(&text).unwrap()),
    };
    view.verbs = match made.library.as_deref() {
        Some("no devices") => Asked::Answered(Vec::new()),
        Some(why) => Asked::Failed(why.to_owned()),
        None => Asked::Answered(listed(&view, &made.capabilities.unwrap_or_default())),
    };
    (Host::of(view), folder)
}

/// What the library would say of the kernel's devices: those without an entry for their file it does not list.
fn listed(view: &View, capabilities: &[String]) -> Vec<VerbsDevice> {
    let bus = efa_examples::host::Bus::of(view);
    let device = |device: &efa_examples::host::Rdma| {
        let node = device.node.as_ref()?;
        let name = device.name.clone();
        let limits: BTreeMap<_, _> = [("queue pairs".to_owned(), 1024), ("message bytes".to_owned(), 8928)].into();
        Some(match view.open(node) {
            Err(error) => VerbsDevice {
                name: name.clone(),
                error: Some(format!("ibv_open_device failed for {name}: {error}")),
                ..VerbsDevice::default()
            },
            Ok(()) if !device.efa => VerbsDevice {
                name: name.clone(),
                error: Some(format!("{name} is no EFA device")),
                ..VerbsDevice::default()
            },
            Ok(()) => VerbsDevice {
                name,
                gid: device.gid.clone().unwrap_or_default(),
                port: "active".to_owned(),
                megabits: Some(100_000),
                capabilities: capabilities.to_vec(),
                limits,
                path: "direct".to_owned(),
                libraries: vec!["libibverbs.so.1".to_owned(), "libefa.so.1".to_owned()],
                error: None,
            },
        })
    };
    bus.rdma.iter().filter_map(device).collect()
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.strip_prefix('/').unwrap_or_else(|| panic!("{path} is no absolute path")))
}

fn put(root: &Path, path: &str, text: &str) {
    let path = below(root, path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn link(root: &Path, path: &str, target: &str) {
    let path = below(root, path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(&path);
    // Where it leads lies below the root too.
    let target = if target.starts_with('/') { below(root, target) } else { target.into() };
    symlink(target, path).unwrap();
}

impl Cards {
    fn make(&self, root: &Path) {
        let groups = self.gpus.max(1);
        let node = |group: usize| match self.nodes {
            0 => -1,
            nodes => (group * nodes / groups) as i64,
        };
        for node in 0..self.nodes.max(1) {
            put(
                root,
                &format!("/sys/devices/system/node/node{node}/cpulist"),
                &format!("{}-{}", node * 48, node * 48 + 47),
            );
        }
        put(root, "/sys/module/efa/refcnt", "0\n");
        put(root, "/sys/module/ib_core/parameters/netns_mode", "Y\n");
        for nth in 0..self.enas {
            function(root, "pci0000:00", &format!("0000:00:{:02x}.0", 5 + nth), 0x1d0f, 0xec20, 0x02_0000, 0);
        }
        for gpu in 0..self.gpus {
            // Without switches a GPU has a root of its own, as some virtual machines show it.
            let path = if self.switches { self.folder(gpu, node(gpu)) } else { format!("pci0000:{:02x}", 0xa0 + gpu) };
            function(root, &path, &format!("0000:{:02x}:00.0", 0xa0 + gpu), 0x10de, 0x2330, 0x03_0200, node(gpu));
            put(root, &format!("/dev/nvidia{gpu}"), "");
        }
        for card in 0..self.efas {
            // With two nodes and no GPU the cards themselves are divided.
            let group = if self.gpus == 0 { 0 } else { card * groups / self.efas };
            let near =
                if self.gpus == 0 && self.nodes > 0 { (card * self.nodes / self.efas) as i64 } else { node(group) };
            let (bus, slot) = (0x50 + group, 0x1b + card % self.efas.div_ceil(groups));
            let address = format!("0000:{bus:02x}:{slot:02x}.0");
            let path = self.folder(group, near);
            function(root, &path, &address, 0x1d0f, self.device, 0x02_0000, near);
            if self.driven {
                self.device(root, card, &format!("rdmap{bus}s{slot}"), &format!("/sys/devices/{path}/{address}"));
            }
        }
    }

    fn folder(&self, group: usize, node: i64) -> String {
        match (self.gpus, self.switches) {
            (0, _) => "pci0000:00".to_owned(),
            (_, false) => format!("pci0000:{:02x}", 0x50 + group),
            (_, true) => format!("pci0000:{:02x}/0000:{:02x}:{group:02x}.0", 0x10 * (node + 1), 0x10 * (node + 1)),
        }
    }

    fn device(&self, root: &Path, nth: usize, name: &str, function: &str) {
        let folder = format!("/sys/class/infiniband/{name}");
        put(root, &format!("{folder}/ports/1/state"), "4: ACTIVE\n");
        put(root, &format!("{folder}/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
        put(
            root,
            &format!("{folder}/ports/1/gids/0"),
            &format!("fe80:0000:0000:0000:0000:00ff:fe00:{:04x}\n", nth + 1),
        );
        link(root, &format!("{folder}/device"), function);
        if let Some(p2p) = &self.p2p {
            put(root, &format!("{function}/p2p"), p2p);
        }
        put(root, &format!("/sys/class/infiniband_verbs/uverbs{nth}/ibdev"), name);
        put(root, &format!("/dev/infiniband/uverbs{nth}"), "");
    }
}

fn function(root: &Path, below: &str, address: &str, vendor: u16, device: u16, class: u32, node: i64) {
    let folder = format!("/sys/devices/{below}/{address}");
    for (file, text) in [
        ("vendor", format!("{vendor:#06x}\n")),
        ("device", format!("{device:#06x}\n")),
        ("class", format!("{class:#08x}\n")),
        ("numa_node", format!("{node}\n")),
        ("local_cpulist", format!("{}-{}\n", node.max(0) * 48, node.max(0) * 48 + 47)),
        ("current_link_speed", "32.0 GT/s PCIe\n".to_owned()),
        ("max_link_speed", "32.0 GT/s PCIe\n".to_owned()),
        ("current_link_width", "16\n".to_owned()),
        ("max_link_width", "16\n".to_owned()),
    ] {
        put(root, &format!("{folder}/{file}"), &text);
    }
    link(root, &format!("/sys/bus/pci/devices/{address}"), &folder);
}
