//! Which network card for which GPU, or for which NUMA node where there is none: by their places in the tree of
//! devices.

use std::fmt;

use serde::Serialize;

use super::bus::{Bus, Function, Rdma};

/// How far two devices are from each other, nearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distance {
    /// Below one PCI switch or bridge.
    Switch,
    /// Below one root of PCI.
    Root,
    /// On one NUMA node.
    Numa,
    /// Neither, or it is not known.
    System,
}

impl Distance {
    /// Of two functions.
    pub fn between(a: &Function, b: &Function) -> Self {
        let common = a.path.iter().zip(&b.path).take_while(|(a, b)| a == b).count();
        match common {
            0 if a.numa.is_some() && a.numa == b.numa => Self::Numa,
            0 => Self::System,
            1 => Self::Root,
            _ => Self::Switch,
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Switch => "the same PCI switch",
            Self::Root => "the same PCI root",
            Self::Numa => "the same NUMA node",
            Self::System => "across the system",
        })
    }
}

/// The cards of a GPU, or of a NUMA node.
#[derive(Clone, Debug, Serialize)]
pub struct Rail {
    /// `GPU 0000:53:00.0` or `NUMA node 0`.
    pub of: String,
    /// The nearest devices, and no others.
    pub cards: Vec<String>,
    /// How near these are; of a NUMA node there is nothing to say.
    pub distance: Option<Distance>,
}

/// The rails of a host: of its GPUs, or else of its NUMA nodes.
pub(super) fn rails(bus: &Bus) -> Vec<Rail> {
    let cards: Vec<(&Rdma, &Function)> =
        bus.efa_devices().filter_map(|device| Some((device, device.function.as_ref()?))).collect();
    if cards.is_empty() {
        return Vec::new();
    }
    if bus.gpus.is_empty() {
        return by_numa(&cards);
    }
    let mut rails = Vec::new();
    for gpu in &bus.gpus {
        let nearest = cards.iter().map(|(_, card)| Distance::between(gpu, card)).min();
        let near = cards.iter().filter(|(_, card)| Some(Distance::between(gpu, card)) == nearest);
        let cards = near.map(|(device, _)| device.name.clone()).collect();
        rails.push(Rail { of: format!("GPU {}", gpu.address), cards, distance: nearest });
    }
    rails
}

fn by_numa(cards: &[(&Rdma, &Function)]) -> Vec<Rail> {
    let mut nodes: Vec<Option<u32>> = cards.iter().map(|(_, card)| card.numa).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let of = |node: &Option<u32>| node.map_or("an unknown NUMA node".to_owned(), |node| format!("NUMA node {node}"));
    let on = |node| cards.iter().filter(move |(_, card)| card.numa == node).map(|(device, _)| device.name.clone());
    nodes.iter().map(|node| Rail { of: of(node), cards: on(*node).collect(), distance: None }).collect()
}
