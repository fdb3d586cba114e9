//! The doctor on hosts that are made up: each check finds something on one and nothing on another, and each report is a file
//! that was read by a person. `EFA_UPDATE_REPORTS=1` writes the files anew; read what changes.

mod made_up;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

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
    let text = list.text();
    assert!(text.contains("GPU 0000:a0:00.0") && text.contains("the same PCI switch"), "{text}");
    assert!(text.contains("31 of 32 at least are EFA-only"), "{text}");
}
