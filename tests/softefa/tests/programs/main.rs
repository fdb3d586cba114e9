//! Programs on the real libibverbs and libefa of this system: ours in C, and those that come with them.
//!
//! Feature `system`: needs a C compiler, libibverbs with its headers, the EFA provider and `ibv_devinfo`. With
//! `NEWEST_RDMA_CORE` in the environment, the folder that `tests/softefa/newest` made, all of these are its: they run with a
//! loader and a libc of their own.

mod processes;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where another rdma-core was unpacked, if it is to be used.
fn newest() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("NEWEST_RDMA_CORE")?).join("root"))
}

/// Its libraries.
fn libraries(root: &Path) -> PathBuf {
    root.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH))
}

/// The C program, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let sources = [
        "main.c",
        "common.c",
        "objects.c",
        "traffic.c",
        "events.c",
        "statuses.c",
        "entries.c",
        "given.c",
        "counters.c",
    ];
    PROGRAM.get_or_init(|| compile("programs", &sources))
}

/// Compiles a program of ours.
fn compile(name: &str, sources: &[&str]) -> PathBuf {
    let name = format!("softefa-{name}{}", if newest().is_some() { "-newest" } else { "" });
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut cc = Command::new("cc");
    if let Some(root) = newest() {
        cc.args(["-DNEWEST", "-Wl,--allow-shlib-undefined"]);
        cc.arg("-I").arg(root.join("usr/include")).arg("-L").arg(libraries(&root));
    }
    let compiled = cc
        .current_dir(crate_dir().join("tests/programs"))
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .args(sources)
        .args(["-lefa", "-libverbs"])
        .output()
        .expect("cc cannot be run: install gcc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// A program that is to run on software devices.
fn on_devices(variables: &[(&str, &str)], program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(crate_dir().join("run"));
    let program = Path::new(program.as_ref());
    match newest() {
        Some(root) => {
            let libraries = libraries(&root);
            // Its tools are beside it; its plugins are not where the system's libibverbs would look.
            let program = if program.is_absolute() { program.to_owned() } else { root.join("usr/bin").join(program) };
            command.env("IBV_DRIVERS", libraries.join("libibverbs/libefa"));
            command.arg(libraries.join("ld-linux-x86-64.so.2")).arg("--library-path").arg(&libraries).arg(program);
        }
        None => {
            command.arg(program);
        }
    }
    command.args(args).envs(variables.iter().copied());
    command
}

/// Runs a program on software devices.
fn run(variables: &[(&str, &str)], program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Output {
    on_devices(variables, program, args).output().expect("tests/softefa/run cannot be run")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What it would have printed.
fn quiet_case(variables: &[(&str, &str)], name: &str) -> String {
    let output = run(variables, program(), &[name]);
    assert!(output.status.success(), "{name} {variables:?}: {}\n{}", output.status, text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it printed.
fn case_with(variables: &[(&str, &str)], name: &str) -> String {
    let printed = quiet_case(variables, name);
    print!("{printed}");
    printed
}

/// On one device, and on two.
fn case(name: &str) {
    case_with(&[], name);
    case_with(&[("SOFTEFA_DEVICES", "2")], name);
}

/// What this rdma-core may not be able to ask for: then it says why, which is counted, and on the newest it never does.
fn newer_case(variables: &[(&str, &str)], name: &str) {
    let printed = case_with(variables, name);
    match printed.lines().find_map(|line| line.strip_prefix("skipped: ")) {
        Some(reason) if newest().is_none() => println!("figure: case {name} {variables:?} is skipped: {reason}"),
        skipped => assert!(skipped.is_none() && newest().is_some(), "{name} is to run on the newest alone: {printed}"),
    }
}

macro_rules! cases {
    ($($(#[$doc:meta])* $test:ident: $name:literal;)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $test() {
                case($name);
            }
        )*
    };
}

cases! {
    a_device_tells_its_attributes: "device";
    what_is_used_is_busy_and_destroyed_in_any_order_otherwise: "objects";
    memory_is_registered_as_a_kernel_would: "regions";
    queue_pairs_move_by_the_table_and_tell_what_they_are: "states";
    queues_are_mapped_by_key_with_their_exact_length_and_outlive_their_object: "mappings";
    a_thousand_queue_pairs_are_made_and_the_last_one_works: "many";
    messages_arrive_whole_from_every_kind_of_buffer_into_every_kind: "send";
    queues_wrap_and_so_do_their_counters: "wrap";
    a_queue_pair_works_after_reset_whatever_phase_libefa_goes_on_with: "reset";
    rdma_reads_arrive_and_are_refused_by_key_and_by_unknown_peers: "read";
    rdma_writes_arrive_with_and_without_an_immediate: "write";
    datagrams_arrive_behind_their_header_or_are_dropped_and_nobody_is_told: "ud";
    a_sender_without_address_handle_is_told_by_its_gid: "sgid";
    every_status_that_this_libefa_can_cause_is_reported: "statuses";
    messages_fill_receives_of_two_buffers_wherever_they_are_cut: "scatter";
    queue_pairs_share_completion_queues_unevenly: "shared";
    a_list_of_requests_may_be_longer_than_a_doorbell_announces: "limits";
    files_in_memory_are_registered_used_and_may_be_cut_off: "dmabuf";
    unmapping_registered_memory_harms_nobody: "unmapped";
    completion_channels_work_with_poll_and_without_blocking: "events";
    no_wakeup_is_lost: "wakeups";
    signals_come_to_the_programs_own_threads_and_end_no_call_halfway: "signals";
    a_drained_send_queue_is_an_asynchronous_event: "drained";
    events_that_nobody_reads_go_with_their_queue: "unread";
    a_forked_child_has_devices_of_its_own: "fork";
    a_child_of_a_busy_process_goes_on: "busy";
    a_child_with_its_parents_memory_takes_nothing_from_it: "vfork";
    what_a_program_leaves_open_is_cleaned_up: "abandon";
}

#[test]
fn wide_entries_carry_80_bytes_inline_and_writes_too_where_the_device_has_them() {
    newer_case(&[], "wide");
    newer_case(&[("SOFTEFA_FEATURES", "none")], "wide");
}

#[test]
fn request_ids_come_back_with_all_their_bits_or_sixteen() {
    newer_case(&[], "ids");
    newer_case(&[("SOFTEFA_FEATURES", "id64")], "ids");
    for name in ["send", "reset", "read"] {
        case_with(&[("SOFTEFA_FEATURES", "wide,id64,cqmem")], name);
    }
}

#[test]
fn entries_that_no_libefa_writes_end_with_their_status() {
    newer_case(&[], "malformed");
}

#[test]
fn writes_between_queue_pairs_that_differ_are_a_feature_mismatch() {
    newer_case(&[("SOFTEFA_PROFILE", "unsolicited")], "mismatch");
}

#[test]
fn completion_queues_in_the_programs_memory_work_and_may_be_cut_off() {
    for layout in ["sub_cqs=1", "sub_cqs=2", "sub_cqs=4"] {
        newer_case(&[("SOFTEFA_LAYOUT", layout)], "external");
    }
    case("address");
}

#[test]
fn verbs_of_newer_versions_are_answered() {
    newer_case(&[], "newer");
}

/// Each of what a driver and a device may be like, once, by what a program may do with it.
#[test]
fn queues_that_lie_elsewhere_and_limits_change_nothing() {
    let kinds = [
        ("SOFTEFA_LAYOUT", "sub_cqs=2"),
        ("SOFTEFA_LAYOUT", "sub_cqs=4"),
        ("SOFTEFA_LAYOUT", "llq=64,send=256,recv=512"),
        ("SOFTEFA_LAYOUT", "llq=192,send=4,recv=0,cq=64"),
        ("SOFTEFA_LIMITS", "batch=4"),
        ("SOFTEFA_LIMITS", "batch=16"),
        ("SOFTEFA_LIMITS", "min_send=32"),
    ];
    let names = [
        "limits", "shared", "objects", "send", "scatter", "reset", "read", "write", "ud", "sgid", "statuses", "events",
        "wakeups", "drained", "unread", "fork", "abandon", "dmabuf",
    ];
    for kind in kinds {
        for name in names {
            quiet_case(&[kind], name);
        }
    }
    println!("figure: {} layouts and limits, each in {} cases", kinds.len(), names.len());
}

#[test]
fn messages_arrive_whole_on_a_hostile_wire() {
    let hostile = [("SOFTEFA_HOSTILE", "loss=50,delay=20,pieces=777"), ("SOFTEFA_DEVICES", "2"), ("SOFTEFA_SEED", "3")];
    for name in ["send", "read", "wakeups"] {
        case_with(&hostile, name);
    }
}

#[test]
fn completion_counters_count_each_operation_in_the_programs_memory() {
    newer_case(&[], "counters");
    newer_case(&[("SOFTEFA_DEVICES", "2")], "counters");
    newer_case(&[("SOFTEFA_FEATURES", "none")], "counters");
}

#[test]
fn latency_is_printed() {
    let printed = case_with(&[], "latency");
    assert!(printed.contains("figure: 64 bytes"), "{printed}");
}

#[test]
fn ibv_devices_and_ibv_devinfo_find_the_devices() {
    let two = [("SOFTEFA_DEVICES", "2")];
    let devices = text(&run(&two, "ibv_devices", &[]));
    assert!(devices.contains("efa_0") && devices.contains("efa_1"), "{devices}");
    let info = run(&two, "ibv_devinfo", &["-v"]);
    assert!(info.status.success(), "{}", text(&info));
    for line in
        ["hca_id:\tefa_0", "hca_id:\tefa_1", "PORT_ACTIVE (4)", "vendor_id:\t\t\t0x1d0f", "max_msg_sz:\t\t0x22e0"]
    {
        assert!(text(&info).contains(line), "no {line:?} in {}", text(&info));
    }
}

#[test]
fn a_bad_variable_is_told_once_and_no_device_is_found() {
    let output = run(&[("SOFTEFA_PROFILE", "fast")], "ibv_devices", &[]);
    let text = text(&output);
    let told = "softefa: SOFTEFA_PROFILE=\"fast\" is not understood: none, read, rdma or unsolicited\n";
    assert!(!output.status.success() && text.matches(told).count() == 1, "{text}");
}

/// Its own folder for what is made on disk: empty again when the program ended.
#[test]
fn nothing_is_left_on_disk() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("softefa-left");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let here = [("TMPDIR", folder.to_str().unwrap())];
    for name in ["device", "fork", "abandon"] {
        case_with(&here, name);
    }
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}
