//! The hardware, its driver, its port, and GPU memory.

use super::super::Host;
use super::super::bus::Peer;
use super::super::version::Version;
use super::verdict::{ask, fine, found, listed, moot, unknown};
use super::{Check, Severity, Verdict};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "efa-present",
        title: "an EFA is on the PCI bus",
        severity: Severity::Problem,
        explain: "Looks for PCI functions of vendor 0x1d0f and devices 0xefa0 to 0xefaf, and for RDMA devices of that \
                  kind. An instance has one only if its type has EFA and a network interface was attached as `efa` or \
                  `efa-only`: that is said when the instance is launched, or while it is stopped.",
        judge: present,
    },
    Check {
        id: "efa-driver",
        title: "the kernel drives each EFA on the bus",
        severity: Severity::Problem,
        explain: "Compares the EFAs on the PCI bus with /sys/class/infiniband (H22). The module `efa` is in Linux \
                  since 5.2, and AWS's installer brings a newer one; a kernel without the headers to build it for has \
                  none after an update.",
        judge: driven,
    },
    Check {
        id: "efa-count",
        title: "there are as many EFAs as the instance type can have",
        severity: Severity::Warning,
        explain: "Compares the EFAs that are here with the dated list of instance types. Each network card takes one \
                  EFA. Fewer are right if fewer were wanted; a container may be given some of them only.",
        judge: count,
    },
    Check {
        id: "port-active",
        title: "each EFA's port is up",
        severity: Severity::Problem,
        explain: "Reads ports/1/state of each EFA, which is `4: ACTIVE` on a device that works.",
        judge: port,
    },
    Check {
        id: "driver-version",
        title: "AWS's kernel driver is new enough for the device",
        severity: Severity::Warning,
        explain: "Reads /sys/module/efa/version, which AWS's own module has and the kernel's own has not. Releases \
                  that brought something: 1.5 RDMA read, 1.16 dma-bufs, 2.4 RDMA write, 2.6 the file p2p, 2.10 \
                  unsolicited writes, 2.12 the device 0xefa3, 2.17.0 counters of retransmissions (from the driver's \
                  sources).",
        judge: driver_version,
    },
    Check {
        id: "capabilities",
        title: "the device can do what its instance type can",
        severity: Severity::Warning,
        explain: "Compares RDMA read and write, as the opened device says them, with the dated list of instance \
                  types. The device's word counts: less than the list says is mostly a driver or a libefa that is too \
                  old, or the verbs path, which has no words for some of it.",
        judge: capabilities,
    },
    Check {
        id: "one-rdma-stack",
        title: "one RDMA stack is installed, not two",
        severity: Severity::Problem,
        explain: "MLNX OFED replaces the kernel's ib_core by its own, with the module mlx_compat beside it. An EFA \
                  driver that was built against the kernel's does not load beside it, or crashes (H23).",
        judge: one_stack,
    },
    Check {
        id: "nvidia-open",
        title: "NVIDIA's kernel modules are the open ones",
        severity: Severity::Problem,
        explain: "Reads /proc/driver/nvidia/version, which says `Open Kernel Module` of these. With the closed ones \
                  the kernel keeps symbols from the EFA driver that it marks for free software, so that EFA stopped \
                  after kernel updates: installers from 1.29 on, with the open modules, work (H23).",
        judge: nvidia_open,
    },
    Check {
        id: "gpu-memory",
        title: "an EFA reaches GPU memory",
        severity: Severity::Problem,
        explain: "Two ways: by a dma-buf (Linux 5.12, an EFA driver from Linux 5.16 or of AWS's from 1.16, a \
                  libibverbs with ibv_reg_dmabuf_mr, which is IBVERBS_1.12), or by a module beside the driver, which \
                  the file p2p of the device names (AWS's driver from 2.6; before that, the file gdr). `efa doctor \
                  --probe` tries it where there is a GPU.",
        judge: gpu_memory,
    },
    Check {
        id: "p2p-provider",
        title: "the driver's way to GPU memory has a provider",
        severity: Severity::Warning,
        explain: "The file p2p of a device is empty if the driver could reach GPU memory and nobody provides it: \
                  efa_nv_peermem does not match the NVIDIA driver after that was updated, which the kernel's log \
                  says.",
        judge: provider,
    },
    Check {
        id: "nvidia-580",
        title: "the EFA driver knows the NVIDIA driver",
        severity: Severity::Warning,
        explain: "NVIDIA's driver 580 changed what peer memory needs: AWS's EFA driver follows from 2.17.3 on (its \
                  sources).",
        judge: nvidia_580,
    },
    Check {
        id: "other-rdma",
        title: "all RDMA devices are EFAs",
        severity: Severity::Note,
        explain: "Other RDMA devices are no harm. Programs that take the first device, whatever it is, are: `efa_os` \
                  asks each.",
        judge: others,
    },
];

fn present(host: &Host) -> Verdict {
    let efas = host.bus.efas.len();
    if efas > 0 {
        return fine(format!("{efas} on the bus"));
    }
    let instance = &host.instance;
    let kind = instance.kind.as_deref();
    let remedy = match (kind, instance.row) {
        (Some(kind), Some(row)) if row.efas.is_some() => {
            format!(
                "{kind} can have {}: attach network interfaces of type efa or efa-only, while it is stopped",
                row.efas.unwrap_or(0)
            )
        }
        (Some(kind), _) => format!("ask whether {kind} has EFA: `{}`", type_command(host, kind)),
        (None, _) => "use an instance of EC2 that has EFA, and attach an interface of type efa or efa-only".to_owned(),
    };
    found("none", "one at least", remedy)
}

/// The command that says what EFA a type has.
pub(super) fn type_command(host: &Host, kind: &str) -> String {
    let region = host.instance.region_option();
    format!(
        "aws ec2 describe-instance-types{region} --instance-types {kind} --query \
         'InstanceTypes[].NetworkInfo.[EfaSupported,EfaInfo]'"
    )
}

fn driven(host: &Host) -> Verdict {
    let undriven = host.bus.undriven();
    if host.bus.efas.is_empty() {
        return moot("no EFA is here");
    }
    if undriven.is_empty() {
        return fine(match &host.software.driver {
            Some(version) => format!("AWS's module efa {version}"),
            None => format!("the module efa of Linux {}", host.view.machine.kernel),
        });
    }
    let loaded = host.view.has("/sys/module/efa");
    let remedy = if loaded {
        "the module is loaded and did not take the device: the kernel's log says why (`dmesg | grep efa`); a device \
         newer than the driver needs a newer installer; in a container, the device may belong to another network \
         namespace"
    } else {
        "load it: `modprobe efa`; if there is none for this kernel, run AWS's EFA installer again, with the headers \
         of this kernel"
    };
    let addresses = listed(undriven.iter().map(|function| function.address.as_str()));
    found(
        format!("no RDMA device for {addresses}; the module efa is {}loaded", if loaded { "" } else { "not " }),
        "an RDMA device for each",
        remedy,
    )
}

fn count(host: &Host) -> Verdict {
    let efas = host.bus.efas.len();
    let Some(kind) = &host.instance.kind else { return unknown("the instance type is not known") };
    match host.instance.row.map(|row| row.efas) {
        _ if efas == 0 => moot("no EFA is here"),
        None | Some(None) => {
            ask(format!("the list of instance types has no count for {kind}; here: {efas}"), type_command(host, kind))
        }
        Some(Some(most)) if efas < most => found(
            format!("{efas}"),
            format!("{most} of {kind}"),
            "attach an interface of type efa-only on each further network card; in a container, pass in all devices",
        ),
        Some(Some(_)) => fine(format!("{efas} of {kind}")),
    }
}

fn port(host: &Host) -> Verdict {
    let states: Vec<_> = host.bus.efa_devices().map(|device| (&device.name, device.state.as_deref())).collect();
    let down: Vec<_> = states
        .iter()
        .filter_map(|(name, state)| {
            state.filter(|state| !state.contains("ACTIVE")).map(|state| format!("{name} is `{state}`"))
        })
        .collect();
    match states.iter().find(|(_, state)| state.is_none()) {
        _ if states.is_empty() => moot("no RDMA device of an EFA is here"),
        _ if !down.is_empty() => found(
            listed(&down),
            "4: ACTIVE",
            "look at the kernel's log (`dmesg | grep efa`); stop and start the instance, which moves it to other \
             hardware",
        ),
        Some((name, _)) => unknown(format!("{name} has no ports/1/state here")),
        None => fine("all are active"),
    }
}

fn driver_version(host: &Host) -> Verdict {
    let Some(version) = &host.software.driver else {
        return if host.view.has("/sys/module/efa") {
            fine(format!("the kernel's own, of Linux {}", host.view.machine.kernel))
        } else {
            moot("the module efa is not loaded")
        };
    };
    let newest = host.bus.efas.iter().map(|function| function.device).max().unwrap_or(0);
    let writes = host.instance.row.map_or(newest > 0xefa0, |row| row.write);
    let needs: [(&str, bool, &str); 4] = [
        ("2.12", newest >= 0xefa3, "devices 0xefa3"),
        ("2.4", writes, "RDMA write"),
        ("1.16", host.has_gpus(), "dma-bufs, which GPU memory is registered by"),
        ("1.5", newest >= 0xefa0, "RDMA read"),
    ];
    match needs.iter().find(|(since, needed, _)| *needed && version.is_before(since)) {
        Some((since, _, what)) => found(
            format!("{version}"),
            format!("{since} or newer, for {what}"),
            "install AWS's newest EFA installer, and load the module again or reboot",
        ),
        None => fine(format!("{version}")),
    }
}

fn capabilities(host: &Host) -> Verdict {
    let Some(devices) = host.view.verbs.answer() else { return unknown("no device was opened") };
    let opened: Vec<_> = devices.iter().filter(|device| device.error.is_none()).collect();
    let (Some(device), Some(row)) = (opened.first(), host.instance.row) else {
        return unknown("no device was opened, or the list does not have the instance type");
    };
    let lacks = |listed: bool, name: &str| listed && !device.can(name);
    let lacking: Vec<&str> = [(row.read, "RDMA_READ"), (row.write, "RDMA_WRITE")]
        .into_iter()
        .filter(|(listed, name)| lacks(*listed, name))
        .map(|(_, name)| name)
        .collect();
    if lacking.is_empty() {
        return fine(format!("{} has {}", device.name, device.capabilities.join(", ")));
    }
    found(
        format!("{} has no {}", device.name, lacking.join(", ")),
        format!("{} by the list", row.pattern),
        "install AWS's newest EFA installer: an old kernel driver or an old libefa hides what the device can",
    )
}

fn one_stack(host: &Host) -> Verdict {
    if host.bus.efas.is_empty() {
        return moot("no EFA is here");
    }
    if !host.view.has("/sys/module/mlx_compat") {
        return fine("the kernel's own ib_core");
    }
    let driver =
        host.software.driver.as_ref().map_or("the kernel's own".to_owned(), |version| format!("AWS's {version}"));
    let version = host.view.text("/sys/module/mlx5_core/version").map(|text| format!(" {text}")).unwrap_or_default();
    found(
        format!(
            "MLNX OFED{version} (mlx_compat is loaded) beside the EFA driver, {driver}, on Linux {}",
            host.view.machine.kernel
        ),
        "the kernel's own ib_core",
        "uninstall MLNX OFED, or build the EFA driver against it (its DKMS package does after OFED is installed); \
         reboot",
    )
}

fn nvidia_open(host: &Host) -> Verdict {
    let Some(text) = host.view.text("/proc/driver/nvidia/version") else { return moot("no NVIDIA driver is loaded") };
    if host.bus.efas.is_empty() {
        return moot("no EFA is here");
    }
    let version = host.software.component("NVIDIA driver").map(|component| component.version.to_string());
    let version = version.unwrap_or_else(|| "of an unknown version".to_owned());
    if text.contains("Open Kernel Module") {
        return fine(format!("open, {version}"));
    }
    let installer = host.software.installer.as_ref();
    let text = installer.map_or("no installer is recorded".to_owned(), |version| format!("installer {version}"));
    let verdict = found(
        format!("closed, {version}, with Linux {} ({text})", host.view.machine.kernel),
        "the open modules, and an EFA installer from 1.29 on",
        "install NVIDIA's open kernel modules (packages with -open in their name), then AWS's newest EFA installer",
    );
    match installer {
        // They go together until the kernel changes again.
        Some(installer) if !installer.is_before("1.29") => verdict.only(Severity::Note),
        Some(_) => verdict,
        None => verdict.only(Severity::Warning),
    }
}

/// Whether GPU memory can be registered as a dma-buf, or what is missing.
fn dma_bufs(host: &Host) -> Result<(), String> {
    let kernel = Version::parse(&host.view.machine.kernel);
    let older = |than: &str| kernel.as_ref().is_none_or(|kernel| kernel.is_before(than));
    if older("5.12") {
        return Err(format!("Linux {} has no dma-bufs for RDMA, which came with 5.12", host.view.machine.kernel));
    }
    match &host.software.driver {
        Some(version) if version.is_before("1.16") => return Err(format!("AWS's driver {version} has none, 1.16 has")),
        None if older("5.16") => {
            return Err(format!("the EFA driver of Linux {} has none, 5.16 has", host.view.machine.kernel));
        }
        _ => {}
    }
    match host.software.libibverbs.as_ref().and_then(|library| library.node) {
        Some(node) if node < 12 => {
            Err(format!("libibverbs has IBVERBS_1.{node}, and ibv_reg_dmabuf_mr is IBVERBS_1.12"))
        }
        _ => Ok(()),
    }
}

fn gpu_memory(host: &Host) -> Verdict {
    if !host.has_gpus() || host.bus.efas.is_empty() {
        return moot("no GPU of NVIDIA's and no EFA together are here");
    }
    let provider = host.bus.efa_devices().find_map(|device| match &device.p2p {
        Peer::By(provider) => Some(provider),
        Peer::NoProvider | Peer::Absent => None,
    });
    match (dma_bufs(host), provider) {
        (Ok(()), Some(provider)) => fine(format!("by dma-bufs, and by {provider}")),
        (Ok(()), None) => fine("by dma-bufs"),
        (Err(why), Some(provider)) => fine(format!("by {provider} alone: {why}")),
        (Err(why), None) => found(
            format!("neither way: {why}; and no device has a peer memory provider"),
            "a way to GPU memory",
            "install AWS's newest EFA installer after NVIDIA's driver, on a kernel from 5.16 on",
        ),
    }
}

fn provider(host: &Host) -> Verdict {
    if !host.has_gpus() {
        return moot("no GPU of NVIDIA's is here");
    }
    let without: Vec<_> =
        host.bus.efa_devices().filter(|device| device.p2p == Peer::NoProvider).map(|device| &device.name).collect();
    if without.is_empty() {
        return fine("each that has the file p2p names a provider in it");
    }
    found(
        format!("the file p2p of {} is empty", listed(&without)),
        "NVIDIA, or NVIDIA peermem",
        "install AWS's EFA installer again after NVIDIA's driver was updated; `dmesg | grep peermem` says what does \
         not match",
    )
}

fn nvidia_580(host: &Host) -> Verdict {
    let (Some(nvidia), Some(efa)) = (host.software.component("NVIDIA driver"), &host.software.driver) else {
        return moot("not both of NVIDIA's driver and AWS's EFA driver are loaded");
    };
    if nvidia.version.major() < 580 || !efa.is_before("2.17.3") {
        return fine(format!("NVIDIA {} and EFA {efa}", nvidia.version));
    }
    found(
        format!("NVIDIA {} and EFA {efa}", nvidia.version),
        "EFA 2.17.3 or newer with NVIDIA 580 or newer",
        "install an EFA installer of AWS's that brings that driver: the newest does",
    )
}

fn others(host: &Host) -> Verdict {
    let others: Vec<_> = host.bus.rdma.iter().filter(|device| !device.efa).map(|device| &device.name).collect();
    match (others.is_empty(), host.bus.efas.is_empty()) {
        (false, _) => found(
            format!("no EFA: {}", listed(&others)),
            "EFAs alone",
            "nothing, if programs choose their device; FI_PROVIDER=efa makes libfabric",
        ),
        (true, false) => fine("EFAs alone"),
        (true, true) => moot("no RDMA device is here"),
    }
}
