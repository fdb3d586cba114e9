//! Several processes on one fabric.
//!
//! With `SEVERAL_PROCESSES=all` in the environment the long forms run: 64 processes, 20 runs.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::{case_with, compile, on_devices, run, text};

fn is_long() -> bool {
    std::env::var("SEVERAL_PROCESSES").is_ok_and(|value| value == "all")
}

/// The program that forks into hosts.
fn peers() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("peers", &["peers_main.c", "peers.c", "common.c"]))
}

/// Runs a case of it, and prints what it printed.
fn hosts(variables: &[(&str, &str)], args: &[&str]) -> String {
    let output = run(variables, peers(), args);
    assert!(output.status.success(), "{args:?} {variables:?}: {}\n{}", output.status, text(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{printed}");
    printed
}

/// Names of sockets that are of a fabric.
fn sockets_of(fabric: &str) -> Vec<String> {
    let sockets = fs::read_to_string("/proc/net/unix").expect("/proc/net/unix");
    let is_its = |line: &&str| line.contains("@efa-soft/") && line.contains(&format!("/{fabric}/"));
    sockets.lines().filter(is_its).map(str::to_owned).collect()
}

/// Waits for a child's end, for a minute.
fn finish(mut child: Child) -> (bool, String) {
    let end = Instant::now() + Duration::from_secs(60);
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break Some(status),
            None if Instant::now() > end => {
                child.kill().expect("a child");
                break None;
            }
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    let mut printed = String::new();
    for pipe in [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read>),
        child.stderr.take().map(|pipe| Box::new(pipe) as _),
    ] {
        pipe.expect("a pipe").read_to_string(&mut printed).expect("text");
    }
    (status.is_some_and(|status| status.success()), printed)
}

/// As two users would start them: with no variable set, on one machine, and no word of each other but an address.
fn pingpong(args: &[&str]) {
    let start = |more: &[&str]| {
        let args: Vec<_> = args.iter().chain(more).copied().collect();
        let mut command = on_devices(&[], "ibv_ud_pingpong", &args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ibv_ud_pingpong")
    };
    // A port that is free just now.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|any| any.local_addr()).expect("a port").port().to_string();
    let server = start(&["-p", &port]);
    // Until it listens, the other one is refused.
    let listens = || fs::read_to_string("/proc/net/tcp6").into_iter().chain(fs::read_to_string("/proc/net/tcp"));
    let hex = format!(":{:04X} ", port.parse::<u16>().expect("a port"));
    let end = Instant::now() + Duration::from_secs(30);
    while !listens().any(|table| table.lines().any(|line| line.contains(&hex) && line.contains(" 0A "))) {
        assert!(Instant::now() < end, "it does not listen: {:?}", finish(server));
        thread::sleep(Duration::from_millis(10));
    }
    let client = start(&["-p", &port, "127.0.0.1"]);
    let (client, server) = (finish(client), finish(server));
    for (success, printed) in [&client, &server] {
        assert!(*success && printed.contains("1000 iters in"), "{args:?}: {}\n---\n{}", client.1, server.1);
    }
    let line = client.1.lines().find(|line| line.contains("usec/iter")).unwrap_or_default();
    println!("figure: ibv_ud_pingpong {} between two processes: {line}", args.join(" "));
}

#[test]
fn ibv_ud_pingpong_runs_between_two_processes_by_polling_and_by_events() {
    pingpong(&["-g", "0"]);
    pingpong(&["-g", "0", "-e"]);
}

#[test]
fn every_operation_moves_the_right_bytes_between_two_processes_whatever_their_number() {
    hosts(&[("SOFTEFA_LIMITS", "rdma=4194304")], &["contents"]);
    hosts(&[("SOFTEFA_LIMITS", "rdma=1100000,msg=32768"), ("SOFTEFA_DEVICES", "2")], &["contents"]);
}

/// Kill -9 in the middle of transfers: 9 or 13 within two seconds, a third one goes on, and nothing is left.
#[test]
fn a_killed_process_is_seen_by_the_others_who_go_on_and_leaves_nothing() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("softefa-killed");
    let fabric = format!("kill-{}", std::process::id());
    for _ in 0..if is_long() { 20 } else { 3 } {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let printed = hosts(&[("TMPDIR", folder.to_str().unwrap()), ("SOFTEFA_FABRIC", &fabric)], &["kill"]);
        assert!(printed.contains("all that waits for a killed process ended"), "{printed}");
        assert_eq!(sockets_of(&fabric), Vec::<String>::new());
        let left: Vec<_> = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()).collect();
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}

#[test]
fn a_process_that_ends_when_it_has_its_message_has_answered_it() {
    hosts(&[], &["last", if is_long() { "200" } else { "30" }]);
}

#[test]
fn sixteen_processes_reach_each_other_or_sixty_four() {
    hosts(&[], &["many", "16"]);
    if is_long() {
        hosts(&[], &["many", "64"]);
    }
}

#[test]
fn two_hosts_with_two_devices_each_are_four_addresses() {
    hosts(&[("SOFTEFA_DEVICES", "2")], &["hosts"]);
}

/// 30,000 messages by events: a half of them between two processes, a half in one.
#[test]
fn no_wakeup_is_lost_in_30_000_messages() {
    for _ in 0..if is_long() { 20 } else { 3 } {
        case_with(&[("WAKEUPS", "15000")], "wakeups");
        hosts(&[], &["events", "15000"]);
    }
}

#[test]
fn bandwidth_and_latency_between_two_processes_are_printed() {
    let printed = hosts(&[], &["bandwidth"]);
    assert_eq!(printed.matches("figure: ").count(), 2, "{printed}");
    let printed = hosts(&[], &["pingpong"]);
    assert!(printed.contains("figure: 64 bytes from process to process"), "{printed}");
}

/// A process that has its addresses until its input ends.
fn claimant(variables: &[(&str, &str)]) -> Child {
    let mut command = on_devices(variables, peers(), &["claim"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut line = [0; 6];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("a line");
    child
}

#[test]
fn an_address_that_another_process_has_is_an_error_that_says_what_to_set() {
    let fabric = format!("taken-{}", std::process::id());
    let same = [("SOFTEFA_FABRIC", fabric.as_str()), ("SOFTEFA_GID", "fe80::77")];
    let mut first = claimant(&same);
    let second = text(&run(&same, "ibv_devices", &[]));
    for part in ["fe80::77", "another process has", "SOFTEFA_GID", "SOFTEFA_FABRIC"] {
        assert!(second.contains(part), "no {part:?} in {second}");
    }
    assert!(!second.contains("efa_0"), "{second}");
    let other = text(&run(&[same[0], ("SOFTEFA_GID", "fe80::78")], "ibv_devinfo", &["-v"]));
    assert!(other.contains("fe80::78") || other.contains("fe80:0000:0000:0000:0000:0000:0000:0078"), "{other}");
    assert_eq!(sockets_of(&fabric).len(), 1);
    drop(first.stdin.take());
    let (success, printed) = finish(first);
    assert!(success, "{printed}");
    assert!(text(&run(&same, "ibv_devices", &[])).contains("efa_0"));
}

#[test]
fn a_process_alone_has_no_socket_and_reaches_nobody() {
    for (fabric, sockets) in [("none", 0), ("two", 2)] {
        let variables = [("SOFTEFA_FABRIC", fabric), ("SOFTEFA_DEVICES", "2")];
        let mut alone = claimant(&variables);
        let files = fs::read_dir(format!("/proc/{}/fd", alone.id())).expect("its files").flatten();
        let names = files.filter_map(|file| fs::read_link(file.path()).ok());
        assert_eq!(names.filter(|name| name.to_string_lossy().starts_with("socket:")).count(), sockets, "{fabric}");
        drop(alone.stdin.take());
        let (success, printed) = finish(alone);
        assert!(success, "{printed}");
    }
    let output = run(&[("SOFTEFA_FABRIC", "none")], peers(), &["contents"]);
    // Both have the same address, and so what each sends comes to itself.
    assert!(!output.status.success() && text(&output).contains("byte 0 of 1 is wrong"), "{}", text(&output));
}
