//! Variables that contradict each other or the host, that abort programs, or that are ignored.

use super::super::Host;
use super::verdict::{fine, found, listed, moot};
use super::{Check, Severity, Verdict};

/// What `efa devices` shows of the environment: names that matter to EFA.
pub(in super::super) const NAMES: [&str; 46] = [
    "CUDA_VISIBLE_DEVICES",
    "EFA_FABRIC",
    "EFA_OS_DATA_PATH",
    "EFA_OS_DEVICES",
    "EFA_OS_FABRIC",
    "EFA_OS_LIBEFA",
    "EFA_OS_LIBIBVERBS",
    "FI_EFA_ENABLE_SHM_TRANSFER",
    "FI_EFA_FORK_SAFE",
    "FI_EFA_IFACE",
    "FI_EFA_MTU_SIZE",
    "FI_EFA_RX_IOV_LIMIT",
    "FI_EFA_SET_CUDA_SYNC_MEMOPS",
    "FI_EFA_TRACK_MR",
    "FI_EFA_TX_IOV_LIMIT",
    "FI_EFA_USE_DATA_PATH_DIRECT",
    "FI_EFA_USE_DEVICE_RDMA",
    "FI_EFA_USE_HUGE_PAGE",
    "FI_HMEM_CUDA_USE_DMABUF",
    "FI_HMEM_CUDA_USE_GDRCOPY",
    "FI_HMEM_DISABLE_P2P",
    "FI_LOG_LEVEL",
    "FI_PROVIDER",
    "IBV_DRIVERS",
    "IBV_FORK_SAFE",
    "LD_LIBRARY_PATH",
    "NCCL_DMABUF_ENABLE",
    "NCCL_GDR_FLUSH_DISABLE",
    "NCCL_NET_FORCE_FLUSH",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_NET_PLUGIN",
    "NCCL_PROTO",
    "NCCL_SOCKET_IFNAME",
    "NVSHMEM_DISABLE_LIBFABRIC_EFA_DIRECT",
    "NVSHMEM_LIBFABRIC_MAX_NIC_PER_PE",
    "NVSHMEM_LIBFABRIC_PROVIDER",
    "NVSHMEM_REMOTE_TRANSPORT",
    "OFI_NCCL_CUDA_FLUSH_ENABLE",
    "OFI_NCCL_DISABLE_DMABUF",
    "OFI_NCCL_GDR_FLUSH_DISABLE",
    "OFI_NCCL_PROTOCOL",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "RDMAV_FORK_SAFE",
    "RDMAV_HUGEPAGES_SAFE",
];

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "fi-provider",
        title: "FI_PROVIDER, if it is set, lets libfabric use EFA",
        severity: Severity::Warning,
        explain: "FI_PROVIDER is a list of providers, or with ^ before it of those to leave out.",
        judge: provider,
    },
    Check {
        id: "fi-device-rdma",
        title: "RDMA is not demanded of a device that has none",
        severity: Severity::Problem,
        explain: "FI_EFA_USE_DEVICE_RDMA=1 on a device without RDMA makes libfabric end the program (its manual).",
        judge: device_rdma,
    },
    Check {
        id: "fi-abort",
        title: "no variable is set that libfabric ends programs for",
        severity: Severity::Problem,
        explain: "FI_EFA_MTU_SIZE, FI_EFA_TX_IOV_LIMIT and FI_EFA_RX_IOV_LIMIT are gone: libfabric prints that they \
                  are and ends the program (its sources).",
        judge: abort,
    },
    Check {
        id: "fi-ignored",
        title: "no variable is set that libfabric ignores",
        severity: Severity::Note,
        explain: "FI_EFA_SET_CUDA_SYNC_MEMOPS does nothing any more (libfabric's sources).",
        judge: ignored,
    },
    Check {
        id: "fi-iface",
        title: "FI_EFA_IFACE names devices that are here",
        severity: Severity::Warning,
        explain: "A list of names of EFAs that libfabric shows, or `all`. Names change with the slot that a device is \
                  in.",
        judge: iface,
    },
    Check {
        id: "fi-hmem-p2p",
        title: "peer-to-peer is off where the instance type needs it off, and on elsewhere",
        severity: Severity::Warning,
        explain: "FI_HMEM_DISABLE_P2P=1 copies GPU memory through the host's. On p5.4xlarge it is needed (AWS's \
                  documentation); elsewhere it costs most of the speed.",
        judge: hmem_p2p,
    },
    Check {
        id: "dmabuf-conflict",
        title: "variables agree on dma-bufs",
        severity: Severity::Warning,
        explain: "NCCL_DMABUF_ENABLE, OFI_NCCL_DISABLE_DMABUF and FI_HMEM_CUDA_USE_DMABUF say the same thing in three \
                  places.",
        judge: dmabuf,
    },
    Check {
        id: "nccl-plugin",
        title: "NCCL may load EFA's plugin",
        severity: Severity::Warning,
        explain: "NCCL_NET_PLUGIN=none leaves NCCL with sockets, as NCCL_NET=Socket does.",
        judge: plugin,
    },
    Check {
        id: "nccl-gdr-level",
        title: "NCCL may use GPUDirect with EFA",
        severity: Severity::Warning,
        explain: "NCCL_NET_GDR_LEVEL is how far card and GPU may be from each other: LOC or 0 means never.",
        judge: gdr_level,
    },
    Check {
        id: "flush-off",
        title: "what arrives in GPU memory is flushed",
        severity: Severity::Warning,
        explain: "A completion does not prove that the GPU sees the bytes. NCCL_GDR_FLUSH_DISABLE and \
                  OFI_NCCL_GDR_FLUSH_DISABLE take the step away that makes it so: NaN after collectives was one \
                  result (H26).",
        judge: flush,
    },
    Check {
        id: "nccl-proto",
        title: "NCCL's protocol is left to it and its plugin",
        severity: Severity::Warning,
        explain: "LL and LL128 rely on the order of stores of 128 bytes, which EFA does not promise for GPU memory: \
                  forced, they gave wrong results on some types (H26). The plugin chooses what the instance type can.",
        judge: proto,
    },
    Check {
        id: "nccl-interface",
        title: "NCCL_SOCKET_IFNAME names an interface that is here",
        severity: Severity::Warning,
        explain: "A list of the beginnings of names, with = before it of whole names, with ^ of those to leave out. \
                  Without one that exists NCCL does not start.",
        judge: interface,
    },
    Check {
        id: "expandable-segments",
        title: "PyTorch's allocator gives memory that can be registered by its address",
        severity: Severity::Warning,
        explain: "With expandable_segments memory is virtual memory of CUDA's, on which SYNC_MEMOPS cannot be set: \
                  what registers it by its address fails at the first read or write (H24). efa-cuda registers it as a \
                  dma-buf, which works. PYTORCH_ALLOC_CONF is the newer name of PYTORCH_CUDA_ALLOC_CONF.",
        judge: expandable,
    },
    Check {
        id: "data-path-variable",
        title: "EFA_OS_DATA_PATH asks for what the library has",
        severity: Severity::Problem,
        explain: "EFA_OS_DATA_PATH=direct needs EFA_1.4 (rdma-core 59); any value but direct and verbs is an error of \
                  efa_os.",
        judge: data_path,
    },
];

fn provider(host: &Host) -> Verdict {
    let Some(value) = host.view.variable("FI_PROVIDER") else { return fine("it is not set") };
    let (without, list) = value.strip_prefix('^').map_or((false, value), |list| (true, list));
    let named = list.split([',', ';']).any(|name| name.trim() == "efa");
    if named != without {
        return fine(value);
    }
    let verdict = found(format!("FI_PROVIDER={value}"), "a list with efa, or none", "unset it, or set it to efa");
    if host.bus.efas.is_empty() { verdict.only(Severity::Note) } else { verdict }
}

fn device_rdma(host: &Host) -> Verdict {
    if host.view.switch("FI_EFA_USE_DEVICE_RDMA") != Some(true) {
        return fine("it is not demanded");
    }
    let opened = host.view.verbs.answer().into_iter().flatten().find(|device| device.error.is_none());
    let has = opened.map(|device| device.can("RDMA_READ")).or(host.instance.row.map(|row| row.read));
    match has {
        Some(true) => fine("it is demanded, and there"),
        Some(false) => found("FI_EFA_USE_DEVICE_RDMA=1, and no RDMA", "RDMA, or no demand", "unset it"),
        None => moot("no device is here"),
    }
}

fn set<'n>(host: &Host, names: &[&'n str]) -> Vec<&'n str> {
    names.iter().copied().filter(|name| host.view.environment.contains_key(*name)).collect()
}

fn abort(host: &Host) -> Verdict {
    match set(host, &["FI_EFA_MTU_SIZE", "FI_EFA_TX_IOV_LIMIT", "FI_EFA_RX_IOV_LIMIT"]) {
        names if names.is_empty() => fine("none is set"),
        names => found(listed(&names), "none of them, with any value", "unset them"),
    }
}

fn ignored(host: &Host) -> Verdict {
    match set(host, &["FI_EFA_SET_CUDA_SYNC_MEMOPS", "FI_EFA_SHM_MAX_MEDIUM_SIZE", "FI_EFA_ZCPY_RX_SEED"]) {
        names if names.is_empty() => fine("none is set"),
        names => found(listed(&names), "none of them", "unset them: they do nothing"),
    }
}

fn iface(host: &Host) -> Verdict {
    let Some(value) = host.view.variable("FI_EFA_IFACE").filter(|value| *value != "all") else { return fine("all") };
    let here: Vec<_> = host.bus.efa_devices().map(|device| device.name.as_str()).collect();
    let absent: Vec<_> = value.split(',').map(str::trim).filter(|name| !here.contains(name)).collect();
    if absent.is_empty() {
        return fine(value);
    }
    found(
        format!("{} not here", listed(&absent)),
        if here.is_empty() { "EFAs".to_owned() } else { format!("of {}", listed(&here)) },
        "name devices as `efa devices` does, or unset it",
    )
}

fn hmem_p2p(host: &Host) -> Verdict {
    if !host.has_gpus() {
        return moot("no GPU of NVIDIA's is here");
    }
    let off = host.view.switch("FI_HMEM_DISABLE_P2P") == Some(true);
    match (host.instance.kind.as_deref(), off) {
        (Some("p5.4xlarge"), false) => {
            found("peer-to-peer is on, on p5.4xlarge", "FI_HMEM_DISABLE_P2P=1 there", "set FI_HMEM_DISABLE_P2P=1")
        }
        (Some("p5.4xlarge"), true) => fine("off, on p5.4xlarge"),
        (_, true) => found("FI_HMEM_DISABLE_P2P=1", "peer-to-peer", "unset it, unless it is to find a fault"),
        (_, false) => fine("on"),
    }
}

fn dmabuf(host: &Host) -> Verdict {
    let wants = |name: &str, value: bool| host.view.switch(name) == Some(value);
    let on: Vec<_> =
        [("NCCL_DMABUF_ENABLE", true), ("FI_HMEM_CUDA_USE_DMABUF", true), ("OFI_NCCL_DISABLE_DMABUF", false)]
            .into_iter()
            .filter(|(name, value)| wants(name, *value))
            .map(|(name, value)| format!("{name}={}", u8::from(value)))
            .collect();
    let off: Vec<_> =
        [("NCCL_DMABUF_ENABLE", false), ("FI_HMEM_CUDA_USE_DMABUF", false), ("OFI_NCCL_DISABLE_DMABUF", true)]
            .into_iter()
            .filter(|(name, value)| wants(name, *value))
            .map(|(name, value)| format!("{name}={}", u8::from(value)))
            .collect();
    if on.is_empty() || off.is_empty() {
        return fine("they agree");
    }
    found(
        format!("{} against {}", on.join(", "), off.join(", ")),
        "one of the two",
        "unset them all: NCCL and libfabric find out what there is",
    )
}

fn plugin(host: &Host) -> Verdict {
    let none = host.view.variable("NCCL_NET_PLUGIN").is_some_and(|value| value.eq_ignore_ascii_case("none"));
    let socket = host.view.variable("NCCL_NET").is_some_and(|value| value.eq_ignore_ascii_case("socket"));
    match (none, socket) {
        (false, false) => fine("yes"),
        (true, _) => found("NCCL_NET_PLUGIN=none", "the plugin for libfabric", "unset it"),
        (false, true) => found("NCCL_NET=Socket", "the plugin for libfabric", "unset it"),
    }
}

fn gdr_level(host: &Host) -> Verdict {
    match host.view.variable("NCCL_NET_GDR_LEVEL") {
        Some(level @ ("LOC" | "0")) => found(
            format!("NCCL_NET_GDR_LEVEL={level}"),
            "PHB or SYS, or none",
            "unset it: the plugin knows the topology",
        ),
        level => fine(level.unwrap_or("it is not set")),
    }
}

fn flush(host: &Host) -> Verdict {
    let off: Vec<_> = ["NCCL_GDR_FLUSH_DISABLE", "OFI_NCCL_GDR_FLUSH_DISABLE"]
        .into_iter()
        .filter(|name| host.view.switch(name) == Some(true))
        .collect();
    match (off.is_empty(), host.view.switch("NCCL_NET_FORCE_FLUSH")) {
        (true, _) => fine("it is not switched off"),
        (false, Some(true)) => found(
            format!("{} against NCCL_NET_FORCE_FLUSH=1", listed(&off)),
            "one of the two, and the flush",
            "unset what switches it off",
        ),
        (false, _) => {
            found(listed(&off), "flushes", "unset it, but where the GPU's own order is known to do (H100 and newer)")
        }
    }
}

fn proto(host: &Host) -> Verdict {
    match host.view.variable("NCCL_PROTO") {
        Some(value)
            if !value.starts_with('^') && value.split(',').any(|name| name.trim().to_uppercase().starts_with("LL")) =>
        {
            found(format!("NCCL_PROTO={value}"), "none, or simple", "unset it")
        }
        value => fine(value.unwrap_or("it is not set")),
    }
}

fn interface(host: &Host) -> Verdict {
    let Some(value) = host.view.variable("NCCL_SOCKET_IFNAME") else { return fine("it is not set") };
    if value.starts_with('^') {
        return fine(value);
    }
    let here = host.view.names("/sys/class/net");
    if here.is_empty() {
        return moot("the system does not say which interfaces it has");
    }
    let (whole, list) = value.strip_prefix('=').map_or((false, value), |list| (true, list));
    let is = |name: &str| here.iter().any(|one| if whole { one == name } else { one.starts_with(name) });
    if list.split(',').any(|name| is(name.trim())) {
        return fine(value);
    }
    found(format!("NCCL_SOCKET_IFNAME={value}"), format!("of {}", listed(&here)), "name one that is here, or unset it")
}

fn expandable(host: &Host) -> Verdict {
    let on: Vec<_> = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"]
        .into_iter()
        .filter(|name| {
            let value = host.view.variable(name).unwrap_or_default().to_lowercase().replace(' ', "");
            value.split(',').any(|setting| matches!(setting, "expandable_segments:true" | "expandable_segments:1"))
        })
        .collect();
    if on.is_empty() {
        return fine("expandable_segments is not on");
    }
    found(
        format!("{} has expandable_segments:True", listed(&on)),
        "segments of cudaMalloc, or registration as a dma-buf",
        "set expandable_segments:False for what registers by address; or register by efa-cuda",
    )
}

fn data_path(host: &Host) -> Verdict {
    let node = host.software.libefa.as_ref().and_then(|library| library.node);
    match (host.view.variable("EFA_OS_DATA_PATH"), node) {
        (None | Some("verbs"), _) => fine("it does not ask for more"),
        (Some("direct"), Some(node)) if node < 4 => found(
            format!("direct, of a libefa with EFA_1.{node}"),
            "EFA_1.4 (rdma-core 59) or newer",
            "unset it, or install AWS's newest EFA installer",
        ),
        (Some("direct"), _) => fine("direct"),
        (Some(value), _) => found(format!("EFA_OS_DATA_PATH={value}"), "direct or verbs", "unset it"),
    }
}
