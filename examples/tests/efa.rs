//! The program `efa`, as a program: on this machine, whatever it has, and as two on software devices.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

use efa_examples::host::doctor::checks;

const EFA: &str = env!("CARGO_BIN_EXE_efa");

fn efa(arguments: &[&str]) -> Command {
    let mut command = Command::new(EFA);
    command.args(arguments).env("EFA_OS_FABRIC", format!("efa-{}", std::process::id()));
    // No machine is asked that is not this test's.
    command.env("AWS_EC2_METADATA_DISABLED", "true").env_remove("EFA_OS_DEVICES");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Its status, what it said, and what it complained of.
fn ran(arguments: &[&str]) -> (i32, String, String) {
    ended(efa(arguments).output().unwrap())
}

fn ended(output: Output) -> (i32, String, String) {
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code().unwrap(), out, err)
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let (_, out, err) = ran(arguments);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
}

#[test]
fn devices_are_listed_with_the_fabric_and_the_versions_also_where_there_are_none() {
    let (status, out, err) = ran(&["devices"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("fabric "), "{out}");
    let list = json(&["devices", "--json", "--soft"]);
    assert_eq!(list["software"][0]["name"], "software0", "{list}");
    assert!(list["efas"].is_array() && list["fabric_why"].is_string(), "{list}");
    let (_, out, _) = ran(&["devices", "--soft"]);
    assert!(out.contains("RDMA_WRITE: writes to peers' memory"), "{out}");
}

#[test]
fn the_doctor_says_what_is_wrong_and_its_status_whether_something_is() {
    let (status, out, err) = ran(&["doctor"]);
    let problems = out.lines().any(|line| line.starts_with("problem "));
    assert_eq!((status, err.as_str()), (i32::from(problems), ""), "{out}");
    let report = json(&["doctor", "--json"]);
    let ids: BTreeSet<_> =
        report["outcomes"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, checks().map(|(_, check)| check.id).collect());
    let (_, verbose, _) = ran(&["doctor", "--verbose"]);
    assert!(verbose.lines().any(|line| line.starts_with("fine ")) && verbose.len() > out.len(), "{verbose}");
    assert!(!out.contains('\x1b'), "colours without a terminal: {out}");
}

#[test]
fn each_check_is_explained_and_one_that_is_none_is_told() {
    let (status, list, _) = ran(&["doctor", "--explain"]);
    assert_eq!(status, 0);
    for (_, check) in checks() {
        assert!(list.contains(check.id));
    }
    let (status, out, _) = ran(&["doctor", "--explain", "security-group"]);
    assert!(status == 0 && out.contains("0.0.0.0/0") && out.lines().all(|line| line.len() <= 120), "{out}");
    let all = json(&["doctor", "--explain", "--json"]);
    assert_eq!(all.as_array().unwrap().len(), checks().count());
    let (status, _, err) = ran(&["doctor", "--explain", "nonsense"]);
    assert!(status == 3 && err.contains("nonsense"), "{err}");
}

#[test]
fn h28_rules_are_judged_from_a_file_as_the_command_printed_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.json");
    let rule = |protocol: &str, egress: bool| {
        let other = r#"{"GroupId":"sg-1"}"#;
        format!(r#"{{"GroupId":"sg-1","IsEgress":{egress},"IpProtocol":"{protocol}","ReferencedGroupInfo":{other}}}"#)
    };
    for (protocol, state) in [("-1", "fine"), ("tcp", "found")] {
        let rules = [rule(protocol, false), rule("-1", true)].join(",");
        std::fs::write(&file, format!(r#"{{"SecurityGroupRules":[{rules}]}}"#)).unwrap();
        let report = json(&["doctor", "--json", "--rules", file.to_str().unwrap()]);
        let outcomes = report["outcomes"].as_array().unwrap();
        let outcome = outcomes.iter().find(|one| one["id"] == "security-group").unwrap();
        assert_eq!(outcome["state"], state, "{outcome}");
    }
    let (status, _, err) = ran(&["doctor", "--rules", "/nowhere"]);
    assert!(status == 3 && err.contains("cannot be read"), "{err}");
}

#[test]
fn software_devices_count_traffic_and_rates_and_prometheus_has_them() {
    let (status, out, err) = ran(&["stat", "--once", "--all", "--interval", "0.2", "--soft"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("software1") && out.contains("send_wrs"), "{out}");
    let counted = json(&["stat", "--json", "--interval", "0.2", "--soft"]);
    let sent = |when: &str| counted[when]["software0"]["send_wrs"].as_u64().unwrap();
    assert!(sent("after") > sent("before"), "{counted}");
    let (_, out, _) = ran(&["stat", "--prometheus", "--soft"]);
    assert!(out.contains("efa_send_wrs_total{device=\"software0\"} "), "{out}");
    let (status, _, err) = ran(&["stat", "--interval", "0"]);
    assert!(status == 2 && err.contains("0.01"), "{err}");
}

#[test]
fn counters_of_a_host_without_efa_are_none_and_no_error() {
    let (status, out, err) = ran(&["stat", "--once", "--interval", "0.01"]);
    assert!(status < 2 && err.is_empty(), "{out}{err}");
    let (status, out, _) = ran(&["stat", "--prometheus"]);
    assert!(status == 0 && out.lines().all(|line| line.starts_with('#') || line.starts_with("efa_")), "{out}");
}

#[test]
fn completions_and_a_manual_page_are_made_of_the_same_command_line() {
    for shell in ["bash", "zsh", "fish"] {
        let (status, out, _) = ran(&["completions", shell]);
        assert!(status == 0 && out.contains("prometheus"), "{shell}: {out}");
    }
    let (status, out, _) = ran(&["man"]);
    assert!(status == 0 && out.contains(".TH efa") && out.contains("Exit status: 0 fine"), "{out}");
    assert!(out.contains("redact") && out.contains("prometheus"), "{out}");
}

#[test]
fn each_help_says_what_its_options_do() {
    for command in [&["--help"][..], &["devices", "--help"], &["doctor", "--help"], &["stat", "--help"]] {
        let (status, out, _) = ran(command);
        assert_eq!(status, 0);
        // An option and what it does are two lines, or one.
        let bare = out.lines().zip(out.lines().skip(1)).filter(|(line, next)| {
            line.trim_start().starts_with("--") && !line.trim().contains("  ") && next.trim().is_empty()
        });
        assert_eq!(bare.count(), 0, "{out}");
    }
    assert_eq!(ran(&["nonsense"]).0, 2);
}

/// A doctor that waits.
struct Listening {
    child: Child,
    address: String,
    errors: BufReader<std::process::ChildStderr>,
}

impl Listening {
    fn start(arguments: &[&str]) -> Self {
        let mut child = efa(&[&["doctor", "--listen", "127.0.0.1:0"], arguments].concat()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening at ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, address, errors }
    }

    fn end(mut self) -> (i32, String) {
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        self.errors.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code().unwrap(), said)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn two_hosts_tell_each_other_what_they_are_and_ping_each_other_both_ways() {
    let listening = Listening::start(&["--device", "soft", "--verbose"]);
    let arguments = ["doctor", "--device", "soft", "--json", "--with", &listening.address];
    let (_, out, err) = ran(&arguments);
    let both: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    let state = |id: &str| {
        let between = both["met"]["between"].as_array().unwrap();
        between.iter().find(|one| one["id"] == id).map(|one| one["state"].clone())
    };
    assert_eq!((state("ping-out"), state("ping-in")), (Some("fine".into()), Some("fine".into())), "{out}");
    assert_eq!(state("same-architecture"), Some("fine".into()));
    assert_eq!(both["met"]["theirs"]["host"]["kernel"], both["ours"]["host"]["kernel"]);
    let (_, said) = listening.end();
    assert!(said.contains("ping-out") && said.contains("100 answered") && said.contains("the other side: "), "{said}");
}

#[test]
fn a_side_without_a_device_is_told_to_both_and_nobody_waits_for_pings() {
    let listening = Listening::start(&["--device", "soft"]);
    let arguments = ["doctor", "--device", "efa", "--with", &listening.address];
    let (status, out, err) = ran(&arguments);
    let (_, said) = listening.end();
    if out.contains("ping-in") {
        println!("\nskipped: this machine has an EFA");
        return;
    }
    assert!(status < 2, "{out}{err}");
    assert!(out.contains("here: ") && said.contains("there: "), "{out}{said}");
}

#[test]
fn a_side_that_is_no_doctor_or_is_not_there_is_an_error() {
    let (status, _, err) = ran(&["doctor", "--with", "127.0.0.1:9", "--timeout", "1"]);
    assert!(status == 3 && err.contains("127.0.0.1:9"), "{err}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = stream.read(&mut [0; 64]);
    });
    let (status, _, err) = ran(&["doctor", "--with", &address, "--timeout", "2"]);
    assert!(status == 3 && err.contains("no doctor"), "{err}");
    other.join().unwrap();
}
