//! This machine as a view.

use std::collections::BTreeMap;

use efa_core::{Context, Limits as DeviceLimits};
use efa_os::Attributes;
use rustix::process::{Resource, getrlimit};

use super::imds;
use super::view::{Asked, Fork, Limits, Machine, VerbsDevice, View};

/// Whom to ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Files alone.
    Files,
    /// The libraries and the metadata service as well.
    Everybody,
}

/// Where the metadata service is, unless a variable says otherwise.
const SERVICE: &str = "169.254.169.254:80";

/// This machine, as it is now.
pub fn live(ask: Ask) -> View {
    let everybody = ask == Ask::Everybody;
    // First: it loads the libraries, which /proc/self/maps then tells of, and may say where sysfs is.
    let verbs = if everybody { verbs() } else { Asked::Not };
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect();
    let mut view = View {
        root: "/".into(),
        sysfs: environment.get("SYSFS_PATH").filter(|path| !path.is_empty()).map_or("/sys".to_owned(), Clone::clone),
        environment,
        machine: Machine {
            kernel: String::new(),
            architecture: std::env::consts::ARCH.to_owned(),
            page: rustix::param::page_size() as u64,
            name: String::new(),
        },
        limits: Limits { memlock: getrlimit(Resource::Memlock).current, ipc_lock: false },
        refusals: BTreeMap::new(),
        verbs,
        fork: if everybody { fork() } else { Fork::Unknown },
        metadata: Asked::Not,
        rules: None,
    };
    view.machine.kernel = view.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    view.machine.name = view.text("/proc/sys/kernel/hostname").unwrap_or_default();
    view.limits.ipc_lock = may_lock(&view);
    if everybody {
        view.metadata = metadata(&view);
    }
    view
}

/// CAP_IPC_LOCK in force, which is what the kernel asks for beyond the limit.
fn may_lock(view: &View) -> bool {
    const CAP_IPC_LOCK: u64 = 1 << 14;
    let status = view.text("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    set & CAP_IPC_LOCK != 0
}

fn fork() -> Fork {
    match efa_os::fork_safety() {
        Ok(efa_os::Fork::Unneeded) => Fork::Unneeded,
        Ok(efa_os::Fork::Enabled) => Fork::Enabled,
        Ok(efa_os::Fork::Disabled) => Fork::Disabled,
        Ok(_) | Err(_) => Fork::Unknown,
    }
}

/// Only a machine of EC2's is asked, or a service that a variable names: to another it would be a stranger.
fn metadata(view: &View) -> Asked<imds::Metadata> {
    let ec2 = view.text("/sys/devices/virtual/dmi/id/sys_vendor").is_some_and(|vendor| vendor.contains("Amazon EC2"));
    let named = view.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    if view.switch("AWS_EC2_METADATA_DISABLED") == Some(true) || (!ec2 && named.is_none()) {
        return Asked::Not;
    }
    let address = named.map(|url| url.trim_start_matches("http://").trim_end_matches('/').to_owned());
    let address = address.map(|address| if address.contains(':') { address } else { format!("{address}:80") });
    match imds::ask(address.as_deref().unwrap_or(SERVICE)) {
        Ok(metadata) => Asked::Answered(metadata),
        Err(why) => Asked::Failed(why),
    }
}

fn verbs() -> Asked<Vec<VerbsDevice>> {
    match efa_os::list() {
        Err(error) => Asked::Failed(error.to_string()),
        Ok(listed) => Asked::Answered(
            listed
                .iter()
                .map(|one| match one.open().and_then(|device| device.attributes()) {
                    Ok(attributes) => described(&attributes),
                    Err(error) => VerbsDevice {
                        name: one.name().to_owned(),
                        error: Some(error.to_string()),
                        ..VerbsDevice::default()
                    },
                })
                .collect(),
        ),
    }
}

fn described(of: &Attributes) -> VerbsDevice {
    let mut limits = named(&of.limits);
    limits.insert("message bytes".to_owned(), of.port.max_message.into());
    VerbsDevice {
        name: of.name.clone(),
        error: None,
        gid: of.gid.to_string(),
        port: of.port.state.to_string(),
        megabits: of.port.megabits,
        capabilities: of.caps.iter_names().map(|(name, _)| name.to_owned()).collect(),
        limits,
        path: of.path.to_string(),
        libraries: of.libraries.to_vec(),
    }
}

fn named(limits: &DeviceLimits) -> BTreeMap<String, u64> {
    let all: [(&str, u64); 12] = [
        ("queue pairs", limits.max_qp.into()),
        ("completion queues", limits.max_cq.into()),
        ("regions", limits.max_mr.into()),
        ("region bytes", limits.max_mr_size),
        ("domains", limits.max_pd.into()),
        ("address handles", limits.max_ah.into()),
        ("RDMA bytes", limits.max_rdma_size.into()),
        ("sends of a queue pair", limits.max_send_depth.into()),
        ("receives of a queue pair", limits.max_recv_depth.into()),
        ("inline bytes", limits.max_inline.into()),
        ("inline bytes, wide", limits.max_inline_wide.into()),
        ("completions of a queue", limits.max_cqe.into()),
    ];
    all.map(|(name, value)| (name.to_owned(), value)).into()
}

/// A software device of this process, as if a library told of it.
pub(super) fn software(ctx: &Context<efa_os::AnyDevice>) -> VerbsDevice {
    VerbsDevice {
        name: ctx.name().to_owned(),
        error: None,
        gid: ctx.gid().to_string(),
        port: "active".to_owned(),
        megabits: None,
        capabilities: ctx.caps().iter_names().map(|(name, _)| name.to_owned()).collect(),
        limits: named(&ctx.limits()),
        path: ctx.data_path().to_string(),
        libraries: Vec::new(),
    }
}
