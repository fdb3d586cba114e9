//! Files in `/dev`, limits, huge pages, forks.

use std::io::ErrorKind;

use super::super::Host;
use super::super::view::Fork;
use super::verdict::{ask, fine, found, listed, moot, unknown};
use super::{Check, Severity, Verdict};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "node-missing",
        title: "each EFA has its file in /dev/infiniband",
        severity: Severity::Problem,
        explain: "Matches /sys/class/infiniband_verbs/uverbsN/ibdev with the file /dev/infiniband/uverbsN. A \
                  container sees the host's sysfs, and only the files that were passed in (H22).",
        judge: missing,
    },
    Check {
        id: "node-permission",
        title: "the user may open the files in /dev/infiniband",
        severity: Severity::Problem,
        explain: "Opens each file to read and write, which changes nothing. EACCES is the file's permissions, or a \
                  security module (H22).",
        judge: permission,
    },
    Check {
        id: "node-cgroup",
        title: "the container may use the files in /dev/infiniband",
        severity: Severity::Problem,
        explain: "Opens each file to read and write. EPERM is the list of devices of the container's cgroup: a file \
                  that was mounted or made in the container, without the device being allowed (H22).",
        judge: cgroup,
    },
    Check {
        id: "ib-uverbs",
        title: "the module that gives devices their files is loaded",
        severity: Severity::Problem,
        explain: "Without the module ib_uverbs there is no /sys/class/infiniband_verbs, and no program can open a \
                  device.",
        judge: uverbs,
    },
    Check {
        id: "rdma-namespace",
        title: "RDMA devices are shared between network namespaces",
        severity: Severity::Warning,
        explain: "/sys/module/ib_core/parameters/netns_mode is N if each device belongs to one network namespace \
                  alone: a container in another one does not see it, whatever files it is given.",
        judge: namespace,
    },
    Check {
        id: "gpu-nodes",
        title: "each GPU has its file in /dev",
        severity: Severity::Warning,
        explain: "Counts /dev/nvidia0 and on against the GPUs on the PCI bus. A container has those that were passed \
                  in.",
        judge: gpu_nodes,
    },
    Check {
        id: "memlock",
        title: "memory can be registered: RLIMIT_MEMLOCK",
        severity: Severity::Problem,
        explain: "Registered memory is locked memory. The limit holds for all of a user's processes together, but not \
                  for those with CAP_IPC_LOCK, which root has outside of containers. A container has its own limit: \
                  `--ulimit memlock=-1`. One guide says that CAP_IPC_LOCK alone did not do for GPU memory.",
        judge: memlock,
    },
    Check {
        id: "huge-pages",
        title: "there are huge pages where they are asked for",
        severity: Severity::Warning,
        explain: "libfabric's own buffers are in huge pages if there are some, unless FI_EFA_USE_HUGE_PAGE=0 or \
                  FI_EFA_FORK_SAFE=1. Registrations of huge pages are fewer and faster.",
        judge: huge_pages,
    },
    Check {
        id: "fork",
        title: "a fork leaves registered memory alone",
        severity: Severity::Warning,
        explain: "Asks libibverbs, which asks the kernel: from Linux 5.13 on registered pages are copied for the \
                  child. Before, the parent's pages may become copies that the device does not see, unless \
                  RDMAV_FORK_SAFE or IBV_FORK_SAFE is set before the first registration; with huge pages \
                  RDMAV_HUGEPAGES_SAFE too.",
        judge: fork,
    },
    Check {
        id: "fork-not-needed",
        title: "fork safety is not asked for where the kernel has it",
        severity: Severity::Note,
        explain: "With a kernel that copies registered pages for the child, RDMAV_FORK_SAFE and IBV_FORK_SAFE do \
                  nothing.",
        judge: fork_not_needed,
    },
    Check {
        id: "fork-huge-abort",
        title: "libfabric is not asked for fork safety and huge pages at once",
        severity: Severity::Problem,
        explain: "FI_EFA_FORK_SAFE=1 (or RDMAV_FORK_SAFE, IBV_FORK_SAFE) with FI_EFA_USE_HUGE_PAGE=1 makes libfabric \
                  end the program, on a kernel that does not copy registered pages itself (libfabric's sources).",
        judge: fork_huge,
    },
];

/// The files of the kernel's EFAs, each with what opening it answered.
fn opened(host: &Host) -> Vec<(String, std::io::Result<()>)> {
    let nodes = host.bus.efa_devices().filter_map(|device| device.node.clone());
    nodes.map(|node| (node.clone(), host.view.open(&node))).collect()
}

fn refused(host: &Host, is: impl Fn(&std::io::Error) -> bool) -> (usize, Vec<String>) {
    let opened = opened(host);
    let refused = opened.iter().filter(|(_, answer)| answer.as_ref().is_err_and(&is)).map(|(node, _)| node.clone());
    (opened.len(), refused.collect())
}

fn nodes(host: &Host, is: impl Fn(&std::io::Error) -> bool, expected: &str, remedy: &str) -> Verdict {
    match refused(host, is) {
        (0, _) => moot("the kernel names no file of an EFA"),
        (all, refused) if refused.is_empty() => fine(format!("of {all}, all")),
        (all, refused) => found(format!("{} of {all}: {}", refused.len(), listed(&refused)), expected, remedy),
    }
}

fn missing(host: &Host) -> Verdict {
    nodes(
        host,
        |error| error.kind() == ErrorKind::NotFound,
        "the files are there",
        "in a container, pass them in: `--device /dev/infiniband/uverbs0` and on, or the device plugin of Kubernetes; \
         on a host, udev makes them",
    )
}

fn permission(host: &Host) -> Verdict {
    const EACCES: i32 = 13;
    nodes(
        host,
        |error| error.raw_os_error() == Some(EACCES),
        "files that may be opened to read and write",
        "`chmod 666 /dev/infiniband/uverbs*`, which AWS's installer does by a rule of udev's; or run as another user",
    )
}

fn cgroup(host: &Host) -> Verdict {
    const EPERM: i32 = 1;
    nodes(
        host,
        |error| error.raw_os_error() == Some(EPERM),
        "devices that the container's cgroup allows",
        "pass them in by `--device`, which allows them too, instead of mounting /dev/infiniband",
    )
}

fn uverbs(host: &Host) -> Verdict {
    if host.bus.efa_devices().next().is_none() {
        return moot("the kernel has no EFA");
    }
    let without: Vec<_> =
        host.bus.efa_devices().filter(|device| device.node.is_none()).map(|device| &device.name).collect();
    if without.is_empty() {
        return fine("each EFA has a name for its file");
    }
    found(
        format!("no entry of {} in /sys/class/infiniband_verbs", listed(&without)),
        "an entry for each",
        "`modprobe ib_uverbs`; after another RDMA stack was installed or removed, reboot",
    )
}

fn namespace(host: &Host) -> Verdict {
    match host.view.text("/sys/module/ib_core/parameters/netns_mode").as_deref() {
        None => moot("ib_core is not loaded"),
        Some("N") => found(
            "exclusive",
            "shared",
            "`rdma system set netns shared` on the host, or move the device into the container's namespace: `rdma dev \
             set`",
        ),
        Some(_) => fine("shared"),
    }
}

fn gpu_nodes(host: &Host) -> Verdict {
    let gpus = host.bus.gpus.len();
    if gpus == 0 {
        return moot("no GPU of NVIDIA's is here");
    }
    let is_gpu = |name: &&String| name.strip_prefix("nvidia").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let nodes = host.view.names("/dev").iter().filter(is_gpu).count();
    if nodes >= gpus {
        return fine(format!("{nodes}"));
    }
    found(
        format!("{nodes} files of {gpus} GPUs"),
        "one for each",
        "in a container, `--gpus all`; on a host, load NVIDIA's driver (`nvidia-smi` does)",
    )
}

fn memlock(host: &Host) -> Verdict {
    const SMALL: u64 = 16 << 20;
    let limits = &host.view.limits;
    match limits.memlock {
        None => fine("unlimited"),
        Some(bytes) if limits.ipc_lock => fine(format!("{bytes} bytes, which CAP_IPC_LOCK goes beyond")),
        Some(bytes) => {
            let verdict = found(
                format!("{bytes} bytes, without CAP_IPC_LOCK"),
                "unlimited, or what the program registers, and rings of some MiB",
                "`ulimit -l unlimited`, which /etc/security/limits.d allows; in a container `--ulimit memlock=-1`; a \
                 service has LimitMEMLOCK=infinity",
            );
            if bytes > SMALL { verdict.only(Severity::Note) } else { verdict }
        }
    }
}

fn huge_pages(host: &Host) -> Verdict {
    let folder = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    let (all, free) =
        (host.view.number(&format!("{folder}/nr_hugepages")), host.view.number(&format!("{folder}/free_hugepages")));
    let (Some(all), Some(free)) = (all, free) else { return moot("the kernel has no pages of 2 MiB") };
    let asked = host.view.switch("FI_EFA_USE_HUGE_PAGE") == Some(true);
    if asked && free == 0 {
        return found(
            format!("{all}, none of them free, and FI_EFA_USE_HUGE_PAGE=1"),
            "free ones",
            "`sysctl vm.nr_hugepages=N`, of 2 MiB each; AWS's installer reserves some for each device",
        );
    }
    fine(format!("{free} of {all} free"))
}

fn fork(host: &Host) -> Verdict {
    match host.view.fork {
        Fork::Unneeded => fine("the kernel copies registered pages for the child"),
        Fork::Enabled if host.view.switch("RDMAV_HUGEPAGES_SAFE").is_some() => fine("libibverbs, with huge pages too"),
        Fork::Enabled => fine("libibverbs, but not with huge pages: those need RDMAV_HUGEPAGES_SAFE=1"),
        // The library asks by netlink, which needs the kernel's RDMA.
        Fork::Disabled if !host.view.has("/sys/module/ib_core") && !host.view.has("/sys/module/efa") => ask(
            format!("this kernel, Linux {}, has no RDMA that the library could ask", host.view.machine.kernel),
            "uname -r: from 5.13 on it is safe",
        ),
        Fork::Disabled => found(
            format!("nobody keeps it safe on Linux {}", host.view.machine.kernel),
            "a kernel from 5.13 on, or libibverbs",
            "do not fork while memory is registered; or set RDMAV_FORK_SAFE=1 (and RDMAV_HUGEPAGES_SAFE=1) for the \
             program",
        ),
        Fork::Unknown => ask("the library was not asked, or is too old to say", "uname -r: from 5.13 on it is safe"),
    }
}

/// The variables that ask for fork safety, of those that are set.
fn asked_for_forks(host: &Host, names: &[&'static str]) -> Vec<&'static str> {
    names.iter().copied().filter(|name| host.view.variable(name).is_some_and(|value| value != "0")).collect()
}

fn fork_not_needed(host: &Host) -> Verdict {
    let set = asked_for_forks(host, &["RDMAV_FORK_SAFE", "IBV_FORK_SAFE", "FI_EFA_FORK_SAFE"]);
    match (host.view.fork, set.is_empty()) {
        (_, true) => fine("it is not asked for"),
        (Fork::Unneeded, false) => found(
            format!("{} set, and the kernel does it", listed(&set)),
            "none of them",
            "unset them: they do nothing here, and with FI_EFA_FORK_SAFE libfabric leaves out huge pages",
        ),
        (Fork::Unknown, false) => unknown("whether the kernel does it is not known"),
        (_, false) => fine("it is asked for, and needed"),
    }
}

fn fork_huge(host: &Host) -> Verdict {
    // Of libibverbs' two any value counts for libfabric, 0 too.
    let mut set = asked_for_forks(host, &["FI_EFA_FORK_SAFE"]);
    set.extend(
        ["RDMAV_FORK_SAFE", "IBV_FORK_SAFE"].into_iter().filter(|name| host.view.environment.contains_key(*name)),
    );
    if set.is_empty() || host.view.switch("FI_EFA_USE_HUGE_PAGE") != Some(true) {
        return fine("not both");
    }
    if host.view.fork == Fork::Unneeded {
        return fine("both, which the kernel makes one");
    }
    found(
        format!("{} and FI_EFA_USE_HUGE_PAGE=1", listed(&set)),
        "one of them",
        "unset FI_EFA_USE_HUGE_PAGE, or the wish for fork safety: libfabric ends programs with both",
    )
}
