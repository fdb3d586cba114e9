//! `efa devices`: what is here, what it can do, and what that is good for.

use std::fmt::Write;

use efa_core::Context;
use efa_os::{AnyDevice, Choice, soft};
use serde::Serialize;

use super::Host;
use super::bus::{Peer, Rdma};
use super::compare::versions;
use super::doctor::{environment_names, listed};
use super::fabric::{in_force, own};
use super::rails::{Rail, rails};
use super::view::{Asked, VerbsDevice};
use crate::table::Table;

/// All of it, as `--json` has it.
#[derive(Clone, Debug, Serialize)]
pub struct Devices {
    /// EFAs.
    pub efas: Vec<Efa>,
    /// Software devices of this process, where it opened some.
    pub software: Vec<VerbsDevice>,
    /// RDMA devices that are no EFA.
    pub others: Vec<String>,
    /// EFAs on the bus that the kernel does not drive.
    pub undriven: Vec<String>,
    /// GPUs or NUMA nodes with their cards.
    pub rails: Vec<Rail>,
    /// Why the library lists nothing, if it does not.
    pub library_error: Option<String>,
    /// Whether these are interfaces of type efa or efa-only, as far as it can be told.
    pub interfaces: String,
    /// The fabric in force under libfabric.
    pub fabric: String,
    /// Why it is that one.
    pub fabric_why: String,
    /// The fabric of programs on efa-core that leave it to the environment, and why; or what is wrong with that.
    pub own_fabric: String,
    /// Versions by name.
    pub versions: Vec<(String, String)>,
    /// Variables that are set and matter.
    pub environment: Vec<(String, String)>,
}

/// An EFA.
#[derive(Clone, Debug, Serialize)]
pub struct Efa {
    /// What sysfs has of it.
    #[serde(flatten)]
    pub device: Rdma,
    /// What the library has of it.
    pub verbs: Option<VerbsDevice>,
}

/// What a capability lets one do.
fn meaning(capability: &str) -> &'static str {
    match capability {
        "RDMA_READ" => "reads from peers' memory",
        "RNR_RETRY" => "a number of attempts where the peer has no receive",
        "CQ_WITH_SGID" => "completions say who sent, of senders without an address handle",
        "RDMA_WRITE" => "writes to peers' memory, with immediate too",
        "UNSOLICITED_WRITE_RECV" => "writes with immediate that consume no receive",
        "CQ_WITH_EXT_MEM_DMABUF" => "completion queues in the program's memory, a GPU's for one",
        "COMP_CNTR" => "counters of completions",
        "WIDE_ENTRIES" => "inline messages of up to 80 bytes",
        "INLINE_WRITE" => "writes whose bytes are in the request",
        _ => "not known to this tool",
    }
}

/// Of a host.
pub fn devices(host: &Host) -> Devices {
    let listed = host.view.verbs.answer().map(Vec::as_slice).unwrap_or_default();
    let efas = host.bus.efa_devices().map(|device| Efa {
        device: device.clone(),
        verbs: listed.iter().find(|one| one.name == device.name).cloned(),
    });
    let force = in_force(&host.view, host.software.component("libfabric").map(|component| &component.version));
    let set = environment_names()
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), host.view.environment.get(*name)?.clone())));
    Devices {
        efas: efas.collect(),
        software: Vec::new(),
        others: host.bus.rdma.iter().filter(|device| !device.efa).map(|device| device.name.clone()).collect(),
        undriven: host.bus.undriven().iter().map(|function| function.address.clone()).collect(),
        rails: rails(&host.bus),
        library_error: match &host.view.verbs {
            Asked::Failed(why) => Some(why.clone()),
            Asked::Answered(_) | Asked::Not => None,
        },
        interfaces: interfaces(host),
        fabric: force.fabric.to_owned(),
        fabric_why: force.why,
        own_fabric: own(&host.view).map_or_else(|error| error.to_string(), |choice| choice.to_string()),
        versions: versions(host),
        environment: set.collect(),
    }
}

/// Software devices of this process, as the environment says.
///
/// # Errors
/// What opening them answers.
pub fn software() -> Result<Vec<VerbsDevice>, efa_os::Error> {
    let chosen = AnyDevice::choose(Choice::Soft, &soft::Options::from_environment())?;
    Ok(chosen.devices.into_iter().map(|device| super::live::software(&Context::open(device))).collect())
}

/// Each interface of type efa has an ENA beside its EFA: more EFAs than ENAs are efa-only. Nothing here tells which.
fn interfaces(host: &Host) -> String {
    let (efas, enas) = (host.bus.efas.len(), host.bus.enas);
    if efas == 0 || !host.view.has("/sys/bus/pci/devices") {
        return "unknown".to_owned();
    }
    match efas.saturating_sub(enas) {
        0 => format!("EFAs on the bus: {efas}, ENAs: {enas}; which EFA belongs to an ENA is unknown from here"),
        only if enas == 0 => format!("EFA-only: all {only}, since no ENA is on the bus"),
        only => {
            format!(
                "EFA-only: at least {only} of {efas}, with ENAs on the bus: {enas}; which EFAs these are is unknown \
                 from here"
            )
        }
    }
}

impl Devices {
    /// As text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a string takes all");
        text
    }

    fn write(&self, f: &mut String) -> std::fmt::Result {
        if !self.efas.is_empty() {
            let mut table = Table::new(["EFA", "PCI", "NUMA node", "file", "GID", "port", "speed", "peer memory"]);
            self.efas.iter().for_each(|efa| table.row(efa.cells()));
            writeln!(f, "{table}")?;
        }
        // Of many that are alike once.
        let mut groups: Vec<Vec<&Efa>> = Vec::new();
        for efa in &self.efas {
            match groups.iter_mut().find(|group| group.first().is_some_and(|first| first.is_like(efa))) {
                Some(group) => group.push(efa),
                None => groups.push(vec![efa]),
            }
        }
        for group in groups {
            let names = listed(group.iter().map(|efa| efa.device.name.as_str()));
            let Some(first) = group.first() else { continue };
            let first_of_all = if first.number() == Some(0xefa0) { ", the first generation" } else { "" };
            let number = first.number().map_or("unknown".to_owned(), |number| format!("{number:#06x}"));
            writeln!(f, "{names}: EFA, PCI device {number}{first_of_all}")?;
            match &first.verbs {
                Some(VerbsDevice { error: Some(error), .. }) => writeln!(f, "  {:<12}{error}", "library")?,
                Some(verbs) => write_verbs(f, verbs)?,
                None => writeln!(f, "  {:<12}does not list it, or was not asked", "library")?,
            }
        }
        for device in &self.software {
            writeln!(f, "{}: a software device of this process", device.name)?;
            write_verbs(f, device)?;
        }
        if self.efas.is_empty() && self.software.is_empty() {
            writeln!(f, "no EFA here: `efa doctor` says what is missing")?;
        }
        for address in &self.undriven {
            writeln!(f, "{address}: an EFA that the kernel does not drive")?;
        }
        for name in &self.others {
            writeln!(f, "{name}: an RDMA device that is no EFA")?;
        }
        if let Some(why) = &self.library_error {
            writeln!(f, "libibverbs: {why}")?;
        }
        if !self.rails.is_empty() {
            writeln!(f, "\ncards")?;
            for rail in &self.rails {
                let distance = rail.distance.map(|distance| format!("  ({distance})")).unwrap_or_default();
                writeln!(f, "  {:<18} {}{distance}", rail.of, rail.cards.join(" "))?;
            }
        }
        writeln!(f)?;
        if !self.efas.is_empty() {
            writeln!(f, "interfaces  {}", self.interfaces)?;
        }
        writeln!(f, "fabric      of libfabric: {}: {}", self.fabric, self.fabric_why)?;
        writeln!(f, "            of efa-core: {}", self.own_fabric)?;
        for (nth, (name, version)) in self.versions.iter().enumerate() {
            writeln!(f, "{:<12}{name} {version}", if nth == 0 { "versions" } else { "" })?;
        }
        for (nth, (name, value)) in self.environment.iter().enumerate() {
            writeln!(f, "{:<12}{name}={value}", if nth == 0 { "environment" } else { "" })?;
        }
        Ok(())
    }
}

impl Efa {
    /// Whether all is the same but where it is and how it is called.
    fn is_like(&self, other: &Self) -> bool {
        let of = |efa: &Self| {
            let verbs = efa.verbs.as_ref();
            verbs.map(|one| (one.path.clone(), one.capabilities.clone(), one.limits.clone(), one.error.is_some()))
        };
        self.number() == other.number() && of(self) == of(other)
    }

    /// Its PCI device number.
    fn number(&self) -> Option<u16> {
        self.device.function.as_ref().map(|function| function.device)
    }

    fn cells(&self) -> [String; 8] {
        let device = &self.device;
        let function = device.function.as_ref();
        let unknown = || "unknown".to_owned();
        let node = device.node.as_ref().map(|node| node.trim_start_matches("/dev/infiniband/").to_owned());
        let gigabits = || Some(format!("{} Gb/s", self.verbs.as_ref()?.megabits? as f64 / 1000.0));
        [
            device.name.clone(),
            function.map_or_else(unknown, |function| function.address.clone()),
            function.and_then(|function| function.numa).map_or_else(unknown, |node| node.to_string()),
            node.unwrap_or_else(|| "none".to_owned()),
            device.gid.clone().unwrap_or_else(unknown),
            device
                .state
                .as_ref()
                .map_or_else(unknown, |state| state.trim_start_matches(|c| "0123456789: ".contains(c)).to_owned()),
            device.rate.clone().or_else(gigabits).unwrap_or_else(unknown),
            match &device.p2p {
                Peer::By(provider) => provider.clone(),
                Peer::NoProvider => "no provider".to_owned(),
                Peer::Absent => "none".to_owned(),
            },
        ]
    }
}

fn write_verbs(f: &mut String, verbs: &VerbsDevice) -> std::fmt::Result {
    let by = if verbs.libraries.is_empty() { String::new() } else { format!(" by {}", verbs.libraries.join(" and ")) };
    writeln!(f, "  {:<12}{}{by}", "data path", verbs.path)?;
    for (nth, capability) in verbs.capabilities.iter().enumerate() {
        writeln!(f, "  {:<12}{capability}: {}", if nth == 0 { "can" } else { "" }, meaning(capability))?;
    }
    if verbs.capabilities.is_empty() {
        writeln!(f, "  {:<12}SEND alone", "can")?;
    }
    for (nth, (name, value)) in verbs.limits.iter().enumerate() {
        writeln!(f, "  {:<12}{value} {name}", if nth == 0 { "limits" } else { "" })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_capability_of_core_has_a_meaning_here() {
        for (name, _) in efa_core::Caps::all().iter_names() {
            assert_ne!(meaning(name), meaning("no such thing"), "{name}");
        }
    }
}
