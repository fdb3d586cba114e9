//! The two documents that others judge core by say what is so: `core/RULES.md`, where each of the device's rules is
//! enforced and which test shows it, and `core/SAFETY.md`, what is unsafe and why that is sound.
//!
//! Lines that start with `figure:` are for `tests/run`, which shows them under its step.
#![allow(missing_docs)]

#[path = "ledger/inventory.rs"]
mod inventory;
#[path = "ledger/rules.rs"]
mod rules;
#[path = "ledger/tree.rs"]
mod tree;

use std::collections::BTreeMap;
use std::io::Write;

use inventory::{Counts, Inventory};
use rules::{Kind, Ledger};
use tree::{Tree, core_dir, read};

#[test]
fn the_ledger_has_every_rule_once_and_every_test_and_text_that_it_names_exists() {
    let tree = Tree::of_this_repository();
    let ledger = Ledger::parse(&read(&core_dir().join("RULES.md")));
    let complaints = ledger.complaints(&tree);
    assert!(complaints.is_empty(), "core/RULES.md:\n{}", complaints.join("\n"));
    for line in ledger.figures() {
        figure(&line);
    }
    figure(&format!("compile-fail: {} files, {} texts", tree.cases.len(), tree.texts));
}

#[test]
fn the_inventory_counts_what_is_unsafe_in_each_file_and_all_else_forbids_it() {
    let sources = tree::inventoried();
    let document = read(&core_dir().join("SAFETY.md"));
    let inventory = Inventory::parse(&document);
    let complaints = inventory.complaints(&sources);
    assert!(complaints.is_empty(), "core/SAFETY.md:\n{}", complaints.join("\n"));
    let mut modules: BTreeMap<&str, Counts> = BTreeMap::new();
    for (file, counts) in &inventory.files {
        // Of efa-os and efa-cuda as a whole.
        let module = file.split(['/', '.']).next().unwrap();
        *modules.entry(module).or_default() += *counts;
    }
    modules.retain(|_, counts| counts.blocks > 0);
    let all: Vec<String> = modules.iter().map(|(module, counts)| format!("{module} {}", counts.blocks)).collect();
    let total: u32 = modules.values().map(|counts| counts.blocks).sum();
    figure(&format!("unsafe blocks: {total}: {}", all.join(", ")));
}

#[test]
fn the_claims_of_safety_name_tests_and_compile_fail_files_that_exist() {
    let tree = Tree::of_this_repository();
    let document = read(&core_dir().join("SAFETY.md"));
    let tests: Vec<&str> = document.split('`').filter(|code| code.contains(".rs::")).collect();
    let cases = document.split("compile-fail `").skip(1).filter_map(|after| after.split('`').next());
    let unknown_test = tests.iter().copied().filter(|name| !tree.tests.contains(*name));
    let unknown: Vec<&str> = unknown_test.chain(cases.filter(|case| !tree.cases.contains_key(*case))).collect();
    assert!(unknown.is_empty(), "core/SAFETY.md names what does not exist: {unknown:#?}");
    assert!(tests.len() > 20, "core/SAFETY.md names only {tests:?}");
}

#[test]
fn each_mutant_names_a_rule_of_the_ledger_and_changes_one_place() {
    let ledger = Ledger::parse(&read(&core_dir().join("RULES.md")));
    let mut rules = std::collections::BTreeSet::new();
    for (file, patch) in tree::mutants() {
        let head = patch.lines().next().unwrap_or_default();
        let (rule, test) = head.strip_prefix("# ").and_then(|head| head.split_once(": ")).unwrap_or_default();
        let row = ledger.rules.iter().chain(&ledger.reports).find(|row| row.id == rule);
        let row = row.unwrap_or_else(|| {
            panic!("{file}: the first line is `# Rnn: cargo test ..`, or `# Hnn: ..`, not `{head}`")
        });
        assert!(test.starts_with("cargo test -p efa-"), "{file}: {test}");
        assert!(file.starts_with(&format!("{}_", rule.to_lowercase())), "{file} is of {rule}");
        let by = |kind| row.enforced.iter().any(|(by, _)| *by == kind);
        assert!(
            rule.starts_with('H') || Kind::ALL.into_iter().any(|kind| kind != Kind::Documented && by(kind)),
            "{file}: {rule} is not enforced"
        );
        assert_eq!(patch.matches("\n@@ ").count(), 1, "{file}: one place");
        assert!(
            ["core", "os", "cuda"].iter().any(|of| patch.contains(&format!("\n--- a/{of}/src/"))),
            "{file}: of core, os or cuda"
        );
        rules.insert(rule.to_owned());
    }
    // What types or constructors enforce has a mutant, so that a test that notices nothing is noticed.
    let without: Vec<&str> = ledger
        .rules
        .iter()
        .filter(|row| row.enforced.iter().any(|(kind, _)| matches!(kind, Kind::Type | Kind::Constructor)))
        .map(|row| row.id.as_str())
        .filter(|id| !rules.contains(*id))
        .collect();
    assert!(without.is_empty(), "rules of types or constructors without a mutant in tests/mutants: {without:?}");
}

/// Past libtest's capture: a line of its own, whatever the thread count.
fn figure(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nfigure: {line}").unwrap();
}
