//! What hangs on the PCI bus and what the kernel made of it: EFAs, other RDMA devices, GPUs, as sysfs has them.

use serde::Serialize;

use super::view::{View, natural};

const AMAZON: i64 = 0x1d0f;
const NVIDIA: i64 = 0x10de;

/// The devices that matter here.
#[derive(Clone, Debug, Default)]
pub struct Bus {
    /// EFAs on the PCI bus, driven or not.
    pub efas: Vec<Function>,
    /// RDMA devices of the kernel's, EFAs first.
    pub rdma: Vec<Rdma>,
    /// GPUs of NVIDIA's.
    pub gpus: Vec<Function>,
    /// ENA interfaces: the IP side of what EC2 calls EFA with ENA, or interfaces of their own.
    pub enas: usize,
}

/// A PCI function.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Function {
    /// Where it is: `0000:00:06.0`.
    pub address: String,
    /// The path to it in the tree of devices: its root, bridges, itself.
    #[serde(skip)]
    pub path: Vec<String>,
    /// Its device number: 0xefa0 of the first generation of EFA, and higher ones, which are not documented.
    pub device: u16,
    /// Its NUMA node, if the system says one.
    pub numa: Option<u32>,
    /// The processors near it, as the system lists them.
    pub processors: Option<String>,
    /// Its PCI link now, and at best, as the system writes them: speed and width.
    #[serde(skip)]
    pub link: Option<[(String, String); 2]>,
}

/// An RDMA device of the kernel's.
#[derive(Clone, Debug, Serialize)]
pub struct Rdma {
    /// Its name: `rdmap0s6`.
    pub name: String,
    /// Whether it is an EFA.
    pub efa: bool,
    /// Where it is on the bus.
    pub function: Option<Function>,
    /// The file that it is opened by, of those that the kernel has: `/dev/infiniband/uverbs0`.
    pub node: Option<String>,
    /// Its first address.
    pub gid: Option<String>,
    /// Its port's state, as the kernel writes it: `4: ACTIVE`.
    pub state: Option<String>,
    /// Its port's speed, as the kernel writes it.
    pub rate: Option<String>,
    /// What gives it GPU memory without a dma-buf.
    pub p2p: Peer,
}

/// Whether the driver reaches GPU memory by a module beside it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// By this provider.
    By(String),
    /// It could, and nobody provides it.
    NoProvider,
    /// It cannot, or does not say so.
    Absent,
}

impl Bus {
    /// Reads it.
    pub fn of(view: &View) -> Self {
        let mut bus = Self::default();
        for address in view.names("/sys/bus/pci/devices") {
            let folder = format!("/sys/bus/pci/devices/{address}");
            let number = |file: &str| view.number(&format!("{folder}/{file}"));
            match (number("vendor"), number("device"), number("class")) {
                (Some(AMAZON), Some(device), _) if device & 0xfff0 == 0xefa0 => {
                    bus.efas.extend(function(view, &folder))
                }
                (Some(AMAZON), Some(0x0ec2 | 0x1ec2 | 0xec20 | 0xec21), _) => bus.enas += 1,
                // A display controller: the GPU itself, and not its switch or sound.
                (Some(NVIDIA), _, Some(class)) if class >> 16 == 0x03 => bus.gpus.extend(function(view, &folder)),
                _ => {}
            }
        }
        bus.rdma = view.names("/sys/class/infiniband").iter().map(|name| rdma(view, name)).collect();
        bus.rdma.sort_by_key(|device| (!device.efa, natural(&device.name)));
        // Where only the devices themselves are shown.
        for function in bus.rdma.iter().filter(|device| device.efa).filter_map(|device| device.function.clone()) {
            if !bus.efas.iter().any(|known| known.address == function.address) {
                bus.efas.push(function);
            }
        }
        bus
    }

    /// The kernel's EFAs.
    pub fn efa_devices(&self) -> impl Iterator<Item = &Rdma> {
        self.rdma.iter().filter(|device| device.efa)
    }

    /// EFAs on the bus that the kernel has no RDMA device for.
    pub fn undriven(&self) -> Vec<&Function> {
        let driven = |function: &&Function| {
            self.rdma.iter().any(|device| device.function.as_ref().is_some_and(|own| own.address == function.address))
        };
        self.efas.iter().filter(|function| !driven(function)).collect()
    }
}

fn rdma(view: &View, name: &str) -> Rdma {
    let folder = format!("/sys/class/infiniband/{name}");
    let text = |file: &str| view.text(&format!("{folder}/{file}")).filter(|text| !text.is_empty());
    let vendor = view.number(&format!("{folder}/device/vendor"));
    let device = view.number(&format!("{folder}/device/device"));
    let efa = vendor == Some(AMAZON) && device.is_some_and(|device| device & 0xfff0 == 0xefa0);
    let p2p = match view.text(&format!("{folder}/device/p2p")) {
        Some(provider) if !provider.is_empty() => Peer::By(provider),
        Some(_) => Peer::NoProvider,
        // What drivers from 1.9 to 2.5 say.
        None if text("device/gdr").as_deref() == Some("1") => Peer::By("the driver's own (gdr)".to_owned()),
        None => Peer::Absent,
    };
    Rdma {
        name: name.to_owned(),
        efa,
        function: function(view, &format!("{folder}/device")),
        node: node(view, name),
        gid: text("ports/1/gids/0"),
        state: text("ports/1/state"),
        rate: text("ports/1/rate"),
        p2p,
    }
}

/// The file that the kernel names for a device, whether it is there or not.
fn node(view: &View, name: &str) -> Option<String> {
    let folder = "/sys/class/infiniband_verbs";
    let is = |node: &String| view.text(&format!("{folder}/{node}/ibdev")).as_deref() == Some(name);
    view.names(folder).into_iter().find(is).map(|node| format!("/dev/infiniband/{node}"))
}

fn function(view: &View, folder: &str) -> Option<Function> {
    let device = u16::try_from(view.number(&format!("{folder}/device"))?).ok()?;
    let real = view.real(folder)?;
    let path: Vec<String> = real.split('/').skip_while(|part| !part.starts_with("pci")).map(str::to_owned).collect();
    let text = |file: &str| view.text(&format!("{folder}/{file}"));
    let link = |which: &str| Some((text(&format!("{which}_link_speed"))?, text(&format!("{which}_link_width"))?));
    Some(Function {
        address: real.rsplit('/').next()?.to_owned(),
        path,
        device,
        numa: view.number(&format!("{folder}/numa_node")).and_then(|node| u32::try_from(node).ok()),
        processors: text("local_cpulist").filter(|list| !list.is_empty()),
        link: link("current").zip(link("max")).map(|(current, max)| [current, max]),
    })
}
