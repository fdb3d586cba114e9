//! The two fabrics of libfabric, `efa-direct` and `efa`, and NVSHMEM on them.

use super::super::Host;
use efa_core::fabric::Reason;

use super::super::fabric::{DISABLE_DIRECT, in_force, knows_switch, nvshmem_on_efa, own, switch, transport};
use super::verdict::{ask, fine, found, moot};
use super::{Check, Severity, Verdict};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "nvshmem-provider",
        title: "NVSHMEM over libfabric is told to use EFA",
        severity: Severity::Problem,
        explain: "NVSHMEM_REMOTE_TRANSPORT=libfabric alone takes the provider cxi: EFA is \
                  NVSHMEM_LIBFABRIC_PROVIDER=efa.",
        judge: provider,
    },
    Check {
        id: "nvshmem-shm",
        title: "libfabric's shared memory is off for NVSHMEM",
        severity: Severity::Warning,
        explain: "FI_EFA_ENABLE_SHM_TRANSFER=0 must be set before NVSHMEM starts (its release notes); the transport \
                  sets the rest itself: FI_EFA_USE_DEVICE_RDMA=1 and FI_HMEM_CUDA_USE_GDRCOPY=1.",
        judge: shm,
    },
    Check {
        id: "nvshmem-conflict",
        title: "what NVSHMEM sets for libfabric is not set otherwise",
        severity: Severity::Warning,
        explain: "NVSHMEM's transport sets FI_EFA_USE_DEVICE_RDMA=1 and FI_HMEM_CUDA_USE_GDRCOPY=1 itself, and warns \
                  where they are set to something else (its sources).",
        judge: conflict,
    },
    Check {
        id: "fabric-switch-value",
        title: "the switch between the fabrics is a boolean",
        severity: Severity::Problem,
        explain: "NVSHMEM_DISABLE_LIBFABRIC_EFA_DIRECT takes 0 and 1, y and n, yes and no, true and false, on and off. \
                  NVSHMEM's own reading looks at the first letter, so that off is true for it: say 0 or 1.",
        judge: value,
    },
    Check {
        id: "fabric-variable",
        title: "EFA_FABRIC, if it is set, names a fabric",
        severity: Severity::Problem,
        explain: "EFA_FABRIC is efa or efa-direct, for programs on efa-core that leave the fabric to the environment. \
                  It wins over NVSHMEM's switch, which they read too.",
        judge: variable,
    },
    Check {
        id: "fabric-switch-ignored",
        title: "the switch between the fabrics has an effect",
        severity: Severity::Warning,
        explain: "NVSHMEM_DISABLE_LIBFABRIC_EFA_DIRECT is from a proposed change that was closed: NVSHMEM 3.6.5 to \
                  3.8.0 do not know it. Looks for the name in nvshmem_transport_libfabric.so. It was meant to compare \
                  the fabrics.",
        judge: ignored,
    },
    Check {
        id: "fabric-switch-idle",
        title: "the switch between the fabrics is set where NVSHMEM uses EFA",
        severity: Severity::Warning,
        explain: "The switch is read by NVSHMEM's transport for libfabric, with the provider efa, and by nothing else.",
        judge: idle,
    },
    Check {
        id: "fabric-registration",
        title: "what NVSHMEM sends over efa-direct is registered",
        severity: Severity::Note,
        explain: "efa-direct needs a descriptor for local memory (FI_MR_LOCAL): a put from memory that was not \
                  registered is EINVAL, where the fabric efa hid it by copying. Register it once: \
                  nvshmemx_buffer_register, or take it from the symmetric heap. The switch of the fabric is not the \
                  way.",
        judge: registration,
    },
];

fn provider(host: &Host) -> Verdict {
    let transport = host.view.variable("NVSHMEM_REMOTE_TRANSPORT");
    if !transport.is_some_and(|name| name.eq_ignore_ascii_case("libfabric")) {
        return moot("NVSHMEM is not told to use libfabric");
    }
    match host.view.variable("NVSHMEM_LIBFABRIC_PROVIDER") {
        Some(name) if name.eq_ignore_ascii_case("efa") => fine("efa"),
        name => found(
            format!("NVSHMEM_LIBFABRIC_PROVIDER is {}", name.unwrap_or("not set, which is cxi")),
            "efa",
            "set NVSHMEM_LIBFABRIC_PROVIDER=efa",
        ),
    }
}

fn shm(host: &Host) -> Verdict {
    if !nvshmem_on_efa(&host.view) {
        return moot("NVSHMEM is not told to use EFA");
    }
    match host.view.switch("FI_EFA_ENABLE_SHM_TRANSFER") {
        Some(false) => fine("0"),
        _ => found(
            "FI_EFA_ENABLE_SHM_TRANSFER is not 0",
            "0",
            "set FI_EFA_ENABLE_SHM_TRANSFER=0 before the program starts",
        ),
    }
}

fn conflict(host: &Host) -> Verdict {
    if !nvshmem_on_efa(&host.view) {
        return moot("NVSHMEM is not told to use EFA");
    }
    let off: Vec<_> = ["FI_EFA_USE_DEVICE_RDMA", "FI_HMEM_CUDA_USE_GDRCOPY"]
        .into_iter()
        .filter(|name| host.view.switch(name) == Some(false))
        .collect();
    if off.is_empty() {
        return fine("neither is off");
    }
    found(format!("off: {}", off.join(", ")), "1, or nothing", "unset it: NVSHMEM sets it")
}

fn value(host: &Host) -> Verdict {
    match switch(&host.view) {
        Ok(None) => fine("it is not set"),
        Ok(Some(choice)) if matches!(choice.reason(), Reason::DisableDirect { unlike_nvshmem: true }) => {
            found(choice.to_string(), "0 or 1", "set it to 0 or 1").only(Severity::Warning)
        }
        Ok(Some(choice)) => fine(choice.to_string()),
        Err(error) => found(error.to_string(), "a boolean", "set it to 0 or 1"),
    }
}

fn variable(host: &Host) -> Verdict {
    match own(&host.view) {
        Ok(choice) => fine(choice.to_string()),
        // The switch has a check of its own.
        Err(error) if error.variable() == DISABLE_DIRECT => fine("what is wrong is the switch, not this"),
        Err(error) => found(error.to_string(), "efa or efa-direct", "set it to one of these, or unset it"),
    }
}

fn is_set(host: &Host) -> bool {
    host.view.variable(DISABLE_DIRECT).is_some()
}

fn ignored(host: &Host) -> Verdict {
    if !is_set(host) {
        return fine("it is not set");
    }
    let file = transport(&host.view).unwrap_or_default();
    match knows_switch(&host.view) {
        Some(true) => fine(format!("{file} knows it")),
        Some(false) => found(
            format!("{file} does not know {DISABLE_DIRECT}"),
            "a build that does",
            "unset it, and register what is sent: nvshmemx_buffer_register",
        ),
        None => ask(
            "no nvshmem_transport_libfabric.so is found where the loader looks",
            "grep -c DISABLE_LIBFABRIC_EFA_DIRECT nvshmem_transport_libfabric.so*",
        ),
    }
}

fn idle(host: &Host) -> Verdict {
    match (is_set(host), nvshmem_on_efa(&host.view)) {
        (false, _) => fine("it is not set"),
        (true, true) => fine("NVSHMEM uses EFA"),
        (true, false) => found(
            format!("{DISABLE_DIRECT} is set, and NVSHMEM does not use EFA through libfabric"),
            "NVSHMEM_REMOTE_TRANSPORT=libfabric and NVSHMEM_LIBFABRIC_PROVIDER=efa with it",
            "unset it, or set these",
        ),
    }
}

fn registration(host: &Host) -> Verdict {
    if !nvshmem_on_efa(&host.view) {
        return moot("NVSHMEM is not told to use EFA");
    }
    let libfabric = host.software.component("libfabric").map(|component| &component.version);
    let force = in_force(&host.view, libfabric);
    match force.fabric {
        "efa-direct" => found(
            format!("efa-direct is in force: {}", force.why),
            "registered memory in every put",
            "nvshmemx_buffer_register each source once, or take it from the symmetric heap",
        ),
        fabric => fine(format!("{fabric}: {}", force.why)),
    }
}
