//! The doctor on hosts that are made up: each check finds something on one and nothing on another, and each report is
//! a file that was read by a person. `EFA_UPDATE_REPORTS=1` writes the files anew; read what changes.

mod made_up;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

use efa_examples::host::counters;
use efa_examples::host::devices::devices;
use efa_examples::host::doctor::{Report, State, Style, checks, examine};
use efa_examples::host::redact;
use made_up::Description;

/// What the doctor says of each host, made once.
static REPORTS: LazyLock<BTreeMap<String, (Description, Report)>> = LazyLock::new(|| {
    let report = |name: String| {
        let (host, _folder) = made_up::host(&name);
        (name.clone(), (made_up::description(&name), examine(&host)))
    };
    made_up::names().into_iter().map(report).collect()
});

#[test]
fn each_host_is_found_what_its_description_says_and_nothing_else() {
    let mut wrong = Vec::new();
    for (name, (description, report)) in &*REPORTS {
        let found: BTreeSet<_> =
            report.outcomes.iter().filter(|one| one.state == State::Found).map(|one| one.id.clone()).collect();
        let expected: BTreeSet<_> = description.finds.iter().cloned().collect();
        if found != expected {
            wrong.push(format!("{name}: also {:?}, not {:?}", &found - &expected, &expected - &found));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn each_check_finds_something_on_one_host_and_nothing_on_another() {
    let mut states: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (_, report) in REPORTS.values() {
        for outcome in &report.outcomes {
            states.entry(&outcome.id).or_default().insert(format!("{:?}", outcome.state));
        }
    }
    let lacking = |state: &str| {
        let lacks = |id: &&str| !states.get(*id).is_some_and(|seen| seen.contains(state));
        checks().map(|(_, check)| check.id).filter(lacks).collect::<Vec<_>>()
    };
    assert_eq!((lacking("Found"), lacking("Fine")), (vec![], vec![]), "no host for: Found, Fine");
    assert!(REPORTS.len() >= 30);
    println!("\nfigure: doctor: {} checks on {} made-up hosts", checks().count(), REPORTS.len());
}

/// Hosts whose list of devices is a file too.
const LISTED: [&str; 6] = ["h22-no-driver", "m6i", "no-ec2", "nvshmem-switch-known", "p5", "two-kinds-of-rdma"];

#[test]
fn each_list_of_devices_is_what_a_person_has_read() {
    let folder = made_up::folder().join("devices");
    for name in LISTED {
        let (host, _folder) = made_up::host(name);
        let (text, path) = (devices(&host).text(), folder.join(format!("{name}.txt")));
        if std::env::var_os("EFA_UPDATE_REPORTS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "{}", path.display());
    }
}

#[test]
fn each_report_is_what_a_person_has_read() {
    let update = std::env::var_os("EFA_UPDATE_REPORTS").is_some();
    let folder = made_up::folder().join("reports");
    let mut differ = Vec::new();
    for (name, (description, report)) in &*REPORTS {
        let text = format!("# {}\n\n{}", description.says, report.text(Style::default()));
        let path = folder.join(format!("{name}.txt"));
        if update {
            fs::write(&path, &text).unwrap();
        }
        if fs::read_to_string(&path).unwrap_or_default() != text {
            differ.push(format!("{}:\n{text}", path.display()));
        }
    }
    assert!(differ.is_empty(), "EFA_UPDATE_REPORTS=1 writes them anew:\n{}", differ.join("\n"));
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stray: Vec<_> =
        files.filter(|file| !file.strip_suffix(".txt").is_some_and(|name| REPORTS.contains_key(name))).collect();
    assert!(stray.is_empty(), "reports of no host: {stray:?}");
}

/// What a check found on a host, in words: found, expected, remedy.
fn words(host: &str, id: &str) -> String {
    let (_, report) = &REPORTS[host];
    let outcome = report.outcome(id).unwrap_or_else(|| panic!("no check {id}"));
    assert_eq!(outcome.state, State::Found, "{host}: {outcome:?}");
    let parts = [Some(&outcome.found), outcome.expected.as_ref(), outcome.remedy.as_ref()];
    parts.into_iter().flatten().cloned().collect::<Vec<_>>().join("\n")
}

fn says(host: &str, id: &str, parts: &[&str]) {
    let text = words(host, id);
    assert!(parts.iter().all(|part| text.contains(part)), "{host}, {id}: no {parts:?} in\n{text}");
}

#[test]
fn h22_each_missing_piece_has_a_finding_and_a_remedy_of_its_own() {
    says("p5-not-attached", "efa-present", &["none", "efa-only"]);
    says("h22-no-driver", "efa-driver", &["0000:50:1b.0", "not loaded", "modprobe efa"]);
    says("h22-container-without-files", "node-missing", &["32 of 32", "uverbs0", "--device"]);
    says("h22-file-not-permitted", "node-permission", &["uverbs0", "chmod 666"]);
    says("h22-cgroup", "node-cgroup", &["uverbs0", "--device", "instead of mounting"]);
    says("h22-no-provider", "provider-file", &["driver efa", "ibverbs-providers"]);
    says("container-without-libefa", "libefa", &["libefa.so.1", "ibverbs-providers"]);
}

#[test]
fn h23_two_rdma_stacks_and_closed_gpu_modules_are_named_with_kernel_and_driver() {
    says(
        "h23-two-rdma-stacks",
        "one-rdma-stack",
        &["MLNX OFED 24.10-1.1.4", "2.17.3g", "6.1.155", "uninstall MLNX OFED"],
    );
    says("h23-closed-nvidia", "nvidia-open", &["closed, 535.129.03", "6.8.0-1035-aws", "1.28.0", "1.29", "-open"]);
}

#[test]
fn h28_rules_with_addresses_or_for_tcp_and_udp_do_not_count_and_both_commands_are_given() {
    let parts = ["no inbound rule", "tcp with", "no outbound rule", "-1 with 0.0.0.0/0"];
    says("h28-rules-by-address", "security-group", &parts);
    says(
        "h28-rules-by-address",
        "security-group",
        &["security-group-ingress", "security-group-egress", "--protocol -1"],
    );
    assert_eq!(REPORTS["rules-good"].1.outcome("security-group").unwrap().state, State::Fine);
    // Without the rules, the command that prints them.
    let unknown = REPORTS["m6i"].1.outcome("security-group").unwrap();
    assert!(unknown.remedy.as_ref().unwrap().contains("describe-security-group-rules"), "{unknown:?}");
}

#[test]
fn checks_have_different_names_and_say_what_they_look_at() {
    let mut ids: Vec<_> = checks().map(|(_, check)| check.id).collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), all);
    for (_, check) in checks() {
        assert!(check.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{}", check.id);
        assert!(check.explain.len() > 40 && !check.title.ends_with('.'), "{}", check.id);
    }
}

#[test]
fn counters_are_read_of_the_device_and_of_its_port_and_nothing_else_is() {
    let (host, folder) = made_up::host("m6i");
    let device = folder.path().join("sys/class/infiniband/rdmap80s27");
    for (file, text) in [
        ("hw_counters/reg_mr_err", "3\n"),
        ("hw_counters/lifespan", "10\n"),
        ("ports/1/hw_counters/tx_bytes", "18446744073709551615\n"),
        ("ports/1/hw_counters/newer_than_this_tool", "7\n"),
        ("ports/1/hw_counters/broken", "no number\n"),
    ] {
        fs::create_dir_all(device.join(file).parent().unwrap()).unwrap();
        fs::write(device.join(file), text).unwrap();
    }
    let read = counters::read(&host.view);
    let expected = [("newer_than_this_tool", 7), ("reg_mr_err", 3), ("tx_bytes", u64::MAX)];
    let expected = expected.map(|(name, value)| (name.to_owned(), value)).into();
    assert_eq!(read, [("rdmap80s27".to_owned(), expected)].into());
}

#[test]
fn a_redacted_report_has_no_address_and_no_identifier() {
    let (host, _folder) = made_up::host("h28-rules-by-address");
    let text = examine(&host).text(Style { colour: false, verbose: true });
    let list = devices(&host).text();
    assert!(text.contains("sg-0a1b2c3d4e5f") && list.contains("fe80:"), "{text}{list}");
    let shown = redact(&(text + &list), &host.view.machine.name);
    for secret in ["sg-0", "vpc-0", "i-0", "fe80:", "10.0."] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

#[test]
fn h32_each_gpu_is_shown_with_the_four_cards_of_its_own_switch() {
    let (host, _folder) = made_up::host("p5");
    let list = devices(&host);
    assert_eq!((list.efas.len(), list.rails.len()), (32, 8));
    let mut cards: Vec<_> = list.rails.iter().flat_map(|rail| rail.cards.clone()).collect();
    assert!(list.rails.iter().all(|rail| rail.cards.len() == 4), "{:?}", list.rails);
    cards.sort();
    cards.dedup();
    assert_eq!(cards.len(), 32);
    says("h32-thirty-two-cards", "many-cards", &["32 cards, 4 of them near", "efa devices"]);
    let text = list.text();
    assert!(text.contains("GPU 0000:a0:00.0") && text.contains("the same PCI switch"), "{text}");
    assert!(text.contains("at least 31 of 32"), "{text}");
}
