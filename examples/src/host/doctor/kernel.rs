//! The kernel, the operating system, and where devices are.

use super::super::Host;
use super::super::lists;
use super::super::rails::{Distance, rails};
use super::verdict::{ask, fine, found, listed, moot, unknown};
use super::{Check, Severity, Verdict};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "system",
        title: "AWS's installer supports the operating system",
        severity: Severity::Warning,
        explain: "Compares /etc/os-release and the architecture with the dated list of systems, which is from the \
                  installer's release notes. A system that is not in it is unknown, not wrong.",
        judge: system,
    },
    Check {
        id: "suse-gpu",
        title: "the operating system has GPUDirect with EFA",
        severity: Severity::Warning,
        explain: "AWS's documentation: no GPUDirect RDMA with EFA on SUSE Linux.",
        judge: suse,
    },
    Check {
        id: "page-size",
        title: "pages have 4 KiB",
        severity: Severity::Note,
        explain: "Kernels for Graviton may have pages of 64 KiB. Regions and rings are whole pages: small \
                  registrations cost more of RLIMIT_MEMLOCK, huge pages have other sizes (512 MiB, and 2 MiB by \
                  contiguous pages), and binaries must not assume 4096.",
        judge: page_size,
    },
    Check {
        id: "ptrace-scope",
        title: "processes of one host may read each other's memory",
        severity: Severity::Warning,
        explain: "With /proc/sys/kernel/yama/ptrace_scope other than 0, libfabric does without its shared memory \
                  between processes of one host, and MPI is slower there (AWS's documentation). Programs on efa-os \
                  are not concerned.",
        judge: ptrace,
    },
    Check {
        id: "link",
        title: "PCI links run as fast and wide as they can",
        severity: Severity::Warning,
        explain: "Compares current_link_speed and current_link_width of EFAs and GPUs with their max_ ones, where the \
                  system says both.",
        judge: link,
    },
    Check {
        id: "gpu-distance",
        title: "each GPU has an EFA below its own PCI switch or root",
        severity: Severity::Warning,
        explain: "Compares the paths of GPUs and EFAs in the tree of devices. What crosses to another root or NUMA \
                  node shares the processors' link with all else. `efa devices` prints which card is for which GPU.",
        judge: distance,
    },
    Check {
        id: "numa",
        title: "the system says which NUMA node each EFA is on",
        severity: Severity::Note,
        explain: "numa_node of a device is -1 where nobody says it. With several nodes, threads and buffers cannot be \
                  put near.",
        judge: numa,
    },
    Check {
        id: "many-cards",
        title: "there are few cards, or the program takes those near its GPU",
        severity: Severity::Note,
        explain: "Registering GPU memory costs time for each card, which grows with the bytes that the card has \
                  registered already (about 260 ms for each GiB on a P5, as users measured): on all of 32 cards a \
                  start-up takes minutes (H32). Register on the cards near the GPU, few large regions, small ones \
                  first.",
        judge: many_cards,
    },
];

fn system(host: &Host) -> Verdict {
    let Some((id, version)) = &host.software.system else { return unknown("there is no /etc/os-release") };
    let architecture = &host.view.machine.architecture;
    let name = format!("{id} {version} on {architecture}");
    match lists::system(id, version, architecture) {
        None => ask(
            format!("{name} is not in the list"),
            "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html#efa-os",
        ),
        Some(lists::System { last: None, .. }) => fine(name),
        Some(lists::System { last: Some(last), .. }) => {
            // The last that does is as good here.
            match &host.software.installer {
                Some(installer) if !lists_newer(installer, last) => fine(format!("{name}, with installer {installer}")),
                _ => found(
                    format!("{name}, which installers after {last} do not support"),
                    "a system that the newest installer supports",
                    format!("take a newer system, or stay with installer {last}"),
                ),
            }
        }
    }
}

fn lists_newer(installer: &super::super::version::Version, last: &str) -> bool {
    super::super::version::Version::parse(last).is_some_and(|last| installer.order(&last).is_gt())
}

fn suse(host: &Host) -> Verdict {
    let id = host.software.system.as_ref().map_or("", |(id, _)| id);
    match (host.has_gpus(), id.contains("sles") || id.contains("suse")) {
        (false, _) => moot("no GPU of NVIDIA's is here"),
        (true, false) => fine(if id.is_empty() { "not known to be SUSE" } else { id }),
        (true, true) => found(id, "another system", "stage GPU memory through the host's, or take another system"),
    }
}

fn page_size(host: &Host) -> Verdict {
    match host.view.machine.page {
        4096 => fine("4096 bytes"),
        bytes => found(
            format!("{bytes} bytes on {}", host.view.machine.architecture),
            "4096, or a program that asks",
            "nothing, if programs ask for the page size; count RLIMIT_MEMLOCK in such pages",
        ),
    }
}

fn ptrace(host: &Host) -> Verdict {
    match host.view.number("/proc/sys/kernel/yama/ptrace_scope") {
        None => fine("this kernel does not restrict it"),
        Some(0) => fine("0"),
        Some(scope) => {
            let verdict = found(
                format!("{scope}"),
                "0, for libfabric and MPI",
                "`sysctl kernel.yama.ptrace_scope=0`; nothing, if no process talks to one of its own host",
            );
            // Nobody who minds is here.
            let minds = host.software.component("libfabric").is_some() || host.software.component("Open MPI").is_some();
            if minds { verdict } else { verdict.only(Severity::Note) }
        }
    }
}

fn link(host: &Host) -> Verdict {
    let functions: Vec<_> = host.bus.efas.iter().chain(&host.bus.gpus).collect();
    let lower = |current: &str, max: &str| {
        let number = |text: &str| text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
        matches!((number(current), number(max)), (Some(current), Some(max)) if current < max)
    };
    let slow: Vec<_> = functions
        .iter()
        .filter_map(|function| {
            let [(speed, width), (max_speed, max_width)] = function.link.as_ref()?;
            (lower(speed, max_speed) || lower(width, max_width))
                .then(|| format!("{}: {speed} x{width} of {max_speed} x{max_width}", function.address))
        })
        .collect();
    match functions.iter().filter(|function| function.link.is_some()).count() {
        0 => unknown("the system does not say how its links run"),
        _ if !slow.is_empty() => {
            let remedy =
                "a GPU at rest may run slower; else stop and start the instance, which moves it to other hardware";
            found(listed(&slow), "speed and width as at best", remedy)
        }
        known => fine(format!("{known} links at their best")),
    }
}

fn distance(host: &Host) -> Verdict {
    if !host.has_gpus() || host.bus.efa_devices().next().is_none() {
        return moot("no GPU of NVIDIA's and no EFA together are here");
    }
    let rails = rails(&host.bus);
    let far: Vec<_> = rails
        .iter()
        .filter_map(|rail| {
            let distance = rail.distance.filter(|distance| *distance > Distance::Root)?;
            Some(format!("{}: {distance}", rail.of))
        })
        .collect();
    if far.is_empty() {
        return fine(format!("{} GPUs have EFAs near them", rails.len()));
    }
    found(
        listed(&far),
        "the same PCI switch or root",
        "let the process of a GPU use the EFA of its own NUMA node; a virtual machine may hide how it really is",
    )
}

fn numa(host: &Host) -> Verdict {
    let names = host.view.names("/sys/devices/system/node");
    let is_node = |name: &&String| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let without: Vec<_> =
        host.bus.efas.iter().filter(|function| function.numa.is_none()).map(|function| &function.address).collect();
    match names.iter().filter(is_node).count() {
        _ if host.bus.efas.is_empty() => moot("no EFA is here"),
        0 | 1 => fine("one node"),
        nodes if without.is_empty() => fine(format!("each of {nodes} nodes is known")),
        nodes => found(
            format!("{} of {nodes} nodes unsaid", listed(&without)),
            "a node for each",
            "measure from each node (`numactl -N`), and pin threads to the better one",
        ),
    }
}

fn many_cards(host: &Host) -> Verdict {
    let cards = host.bus.efa_devices().count();
    if !host.has_gpus() || cards == 0 {
        return moot("no GPU of NVIDIA's and no EFA together are here");
    }
    let near = rails(&host.bus).iter().map(|rail| rail.cards.len()).max().unwrap_or(0);
    if cards <= 8 {
        return fine(format!("{cards}"));
    }
    found(
        format!("{cards} cards, {near} of them near each GPU"),
        "registrations on the near ones alone",
        "let the process of a GPU open and register on the cards of its rail, which `efa devices` prints",
    )
}
