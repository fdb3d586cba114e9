//! The ledger of rules: two tables in Markdown, and what can be wrong with them.

use std::collections::BTreeMap;

use super::tree::Tree;

/// How a rule is enforced, the strongest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Type,
    Constructor,
    Post,
    Status,
    Documented,
}

/// One row. A report's has no pending part, and says how the fault is ruled out in words.
#[derive(Default, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) enforced: Vec<(Kind, Vec<String>)>,
    tests: Vec<String>,
    cases: Vec<String>,
    pending: bool,
}

/// Both tables.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) rules: Vec<Row>,
    pub(crate) reports: Vec<Row>,
    malformed: Vec<String>,
}

/// Reports that core must answer; it may answer more.
const REPORTS: [&str; 14] =
    ["H01", "H02", "H04", "H06", "H07", "H11", "H13", "H14", "H16", "H17", "H21", "H27", "H30", "H33"];

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Type, Self::Constructor, Self::Post, Self::Status, Self::Documented];

    fn name(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Constructor => "constructor",
            Self::Post => "post",
            Self::Status => "status",
            Self::Documented => "documented",
        }
    }
}

impl Ledger {
    pub(crate) fn parse(text: &str) -> Self {
        let mut ledger = Self::default();
        for line in text.lines().filter(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
            let id = cells[0].to_owned();
            let result = match (id.as_bytes(), cells.as_slice()) {
                ([b'R', b'0'..=b'9', b'0'..=b'9'], [_, rule, enforced, tests, cases, pending]) => {
                    rule_row(id, rule, enforced, tests, cases, pending).map(|row| ledger.rules.push(row))
                }
                ([b'H', b'0'..=b'9', b'0'..=b'9'], [_, report, how, tests, cases]) => {
                    report_row(id, report, how, tests, cases).map(|row| ledger.reports.push(row))
                }
                ([b'R' | b'H', b'0'..=b'9', ..], _) => Err(format!("{id}: {} cells", cells.len())),
                _ => Ok(()),
            };
            ledger.malformed.extend(result.err());
        }
        ledger
    }

    /// All that is wrong with it.
    pub(crate) fn complaints(&self, tree: &Tree) -> Vec<String> {
        let mut complaints = self.malformed.clone();
        for number in 1..=40 {
            let id = format!("R{number:02}");
            let times = self.rules.iter().filter(|row| row.id == id).count();
            if times != 1 {
                complaints.push(format!("{id} has {times} rows"));
            }
        }
        for id in REPORTS {
            if !self.reports.iter().any(|row| row.id == id) {
                complaints.push(format!("{id} has no row"));
            }
        }
        let mut rows: BTreeMap<&str, &Row> = BTreeMap::new();
        for row in self.rules.iter().chain(&self.reports) {
            if rows.insert(&row.id, row).is_some() && row.id.starts_with('H') {
                complaints.push(format!("{} has two rows", row.id));
            }
            row.check(tree, &mut complaints);
        }
        let mut numbered = |name: &str, what: &str, is_in: &dyn Fn(&Row) -> bool| {
            for id in numbers_in(name) {
                match rows.get(id.as_str()) {
                    None => complaints.push(format!("{what} is of {id}, which has no row")),
                    Some(row) if !is_in(row) => complaints.push(format!("{what} is not in the row of {id}")),
                    Some(_) => {}
                }
            }
        };
        for test in &tree.tests {
            let name = test.rsplit("::").next().unwrap_or_default();
            numbered(name, test, &|row| row.tests.contains(test));
        }
        for (case, misuses) in &tree.cases {
            numbered(case, &format!("compile-fail {case}"), &|row| row.has_case(case));
            for misuse in misuses {
                numbered(misuse, &format!("compile-fail {case}::{misuse}"), &|row| row.has_case(case));
            }
        }
        for case in &tree.without_text {
            complaints.push(format!("compile-fail {case} has no text"));
        }
        complaints
    }

    /// What is enforced, counted by the strongest kind of each rule.
    pub(crate) fn figures(&self) -> Vec<String> {
        let enforced: Vec<&Row> = self.rules.iter().filter(|row| !row.enforced.is_empty()).collect();
        let strongest = |row: &Row| row.enforced.iter().map(|by| by.0).min();
        let count = |kind| enforced.iter().filter(|row| strongest(row) == Some(kind)).count();
        let by: Vec<String> = Kind::ALL.into_iter().map(|kind| format!("{} {}", kind.name(), count(kind))).collect();
        let ids = |rows: Vec<&Row>| rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>().join(" ");
        let pending: Vec<&Row> = self.rules.iter().filter(|row| row.enforced.is_empty()).collect();
        let in_part: Vec<&Row> = enforced.iter().filter(|row| row.pending).copied().collect();
        vec![
            format!("rules enforced: {} of {}: {}", enforced.len(), self.rules.len(), by.join(", ")),
            format!("rules pending: {}: {}", pending.len(), ids(pending)),
            format!("rules with a part pending: {}: {}", in_part.len(), ids(in_part)),
            format!("field reports answered: {}", self.reports.len()),
        ]
    }
}

impl Row {
    fn check(&self, tree: &Tree, complaints: &mut Vec<String>) {
        let id = &self.id;
        for (kind, items) in &self.enforced {
            if items.is_empty() {
                complaints.push(format!("{id}: by {}, but by which item?", kind.name()));
            }
            for item in items.iter().filter(|item| !tree.has_item(item)) {
                complaints.push(format!("{id}: core has no item {item}"));
            }
        }
        for test in self.tests.iter().filter(|test| !tree.tests.contains(*test)) {
            complaints.push(format!("{id}: no test {test}"));
        }
        for case in &self.cases {
            let (file, misuse) = case.split_once("::").map_or((case.as_str(), None), |(file, f)| (file, Some(f)));
            let misuses = tree.cases.get(file);
            if misuses.is_none_or(|misuses| misuse.is_some_and(|misuse| !misuses.contains(misuse))) {
                complaints.push(format!("{id}: no compile-fail file or misuse {case}, or it has no text"));
            }
        }
        let is_report = id.starts_with('H');
        let enforced = is_report || self.enforced.iter().any(|(kind, _)| *kind != Kind::Documented);
        if enforced && self.tests.is_empty() && self.cases.is_empty() {
            complaints.push(format!("{id}: nothing shows it"));
        }
        if self.enforced.iter().any(|(kind, _)| matches!(kind, Kind::Post | Kind::Status)) && self.tests.is_empty() {
            complaints.push(format!("{id}: what happens at run time is shown by a test"));
        }
        if !is_report && self.enforced.is_empty() && !self.pending {
            complaints.push(format!("{id}: neither enforced nor pending"));
        }
    }

    fn has_case(&self, file: &str) -> bool {
        self.cases.iter().any(|case| case.split("::").next() == Some(file))
    }
}

fn rule_row(id: String, rule: &str, enforced: &str, tests: &str, cases: &str, pending: &str) -> Result<Row, String> {
    if rule.is_empty() {
        return Err(format!("{id}: what is the rule?"));
    }
    let mut by = Vec::new();
    for part in enforced.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let name = part.split(':').next().unwrap_or_default();
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        by.push((kind.ok_or(format!("{id}: enforced by `{name}`?"))?, code(part)));
    }
    Ok(Row { id, enforced: by, tests: code(tests), cases: code(cases), pending: !pending.is_empty() })
}

fn report_row(id: String, report: &str, how: &str, tests: &str, cases: &str) -> Result<Row, String> {
    if report.is_empty() || how.is_empty() {
        return Err(format!("{id}: what was reported, and how is it ruled out?"));
    }
    Ok(Row { id, tests: code(tests), cases: code(cases), ..Row::default() })
}

/// What stands in backticks.
fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The rules and reports whose numbers are parts of a name: R01 and H30 of `h30_r01_of_it`.
fn numbers_in(name: &str) -> Vec<String> {
    let is_number = |part: &&str| matches!(part.as_bytes(), [b'r' | b'h', b'0'..=b'9', b'0'..=b'9']);
    name.split('_').filter(is_number).map(str::to_uppercase).collect()
}

mod on_made_up_ledgers {
    use super::*;

    const GOOD: &str = "| R02 | two | type: `qp::MovesTo` | `tests/a.rs::r02_it_is_kept` | `r01_init::from_rtr` | |";

    /// A ledger in which all is well but, maybe, the row of R02.
    fn with(row: &str) -> String {
        let rule = |number| format!("| R{number:02} | a rule | type: `qp::MovesTo` | | `r01_init` | |\n");
        let rules: String = (1..=40).map(|n| if n == 2 { format!("{row}\n") } else { rule(n) }).collect();
        rules + &REPORTS.map(|id| format!("| {id} | a fault | cannot be said | `tests/a.rs::it_works` | |\n")).concat()
    }

    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.add_tests("tests/a.rs", "#[test]\nfn it_works() {}\n#[test]\nfn r02_it_is_kept() {}\nfn helper() {}");
        tree.cases.insert("r01_init".into(), ["from_rtr".to_owned()].into());
        tree.identifiers.insert("qp/state.rs".into(), ["MovesTo".to_owned()].into());
        tree
    }

    #[track_caller]
    fn says(ledger: &str, tree: &Tree, what: &str) {
        let complaints = Ledger::parse(ledger).complaints(tree);
        assert!(complaints.iter().any(|complaint| complaint.contains(what)), "{complaints:#?}");
    }

    #[test]
    fn a_good_one_has_no_complaints_and_is_counted() {
        let ledger = Ledger::parse(&with(GOOD));
        assert_eq!(ledger.complaints(&tree()), [""; 0]);
        let figures = ledger.figures();
        assert_eq!(figures[0], "rules enforced: 40 of 40: type 40, constructor 0, post 0, status 0, documented 0");
        assert_eq!(figures[1], "rules pending: 0: ");
    }

    #[test]
    fn a_rule_is_counted_once_by_the_strongest_of_its_kinds_or_as_pending() {
        let row = "| R02 | two | status: `qp::MovesTo`; post: `qp::MovesTo` | `tests/a.rs::r02_it_is_kept` | | more |";
        let figures = Ledger::parse(&with(row)).figures();
        assert_eq!(figures[0], "rules enforced: 40 of 40: type 39, constructor 0, post 1, status 0, documented 0");
        assert_eq!(figures[2], "rules with a part pending: 1: R02");
        let figures = Ledger::parse(&with("| R02 | two | | | | all of it |")).figures();
        assert_eq!(figures[0], "rules enforced: 39 of 40: type 39, constructor 0, post 0, status 0, documented 0");
        assert_eq!(figures[1], "rules pending: 1: R02");
    }

    #[test]
    fn a_rule_or_report_that_is_missing_or_there_twice_is_noticed() {
        says(&with(""), &tree(), "R02 has 0 rows");
        says(&format!("{}{GOOD}\n", with(GOOD)), &tree(), "R02 has 2 rows");
        says(&with(GOOD).replace("| H33 |", "| none |"), &tree(), "H33 has no row");
        says(&format!("{}| H33 | a | b | `tests/a.rs::it_works` | |\n", with(GOOD)), &tree(), "H33 has two rows");
    }

    #[test]
    fn a_row_of_too_few_cells_or_an_unknown_kind_is_noticed() {
        says(&with("| R02 | two |"), &tree(), "R02: 2 cells");
        says(&with(&GOOD.replace("type:", "luck:")), &tree(), "R02: enforced by `luck`?");
        says(&with("| R02 | two | | | | |"), &tree(), "R02: neither enforced nor pending");
    }

    #[test]
    fn a_test_that_does_not_exist_is_noticed() {
        says(&with(&GOOD.replace("r02_it", "it")), &tree(), "R02: no test tests/a.rs::it_is_kept");
        says(&with(&GOOD.replace("r02_it_is_kept", "helper")), &tree(), "R02: no test tests/a.rs::helper");
        says(&with("| R02 | two | type: `qp::MovesTo` | | | |"), &tree(), "R02: nothing shows it");
        says(&with("| R02 | two | post: `qp::MovesTo` | | `r01_init` | |"), &tree(), "R02: what happens at run time");
    }

    #[test]
    fn an_unknown_file_misuse_or_item_is_noticed() {
        says(&with(&GOOD.replace("tests/a.rs", "tests/b.rs")), &tree(), "R02: no test tests/b.rs::r02_it_is_kept");
        says(
            &with(&GOOD.replace("r01_init", "r01_exit")),
            &tree(),
            "no compile-fail file or misuse r01_exit::from_rtr",
        );
        says(
            &with(&GOOD.replace("from_rtr", "from_rts")),
            &tree(),
            "no compile-fail file or misuse r01_init::from_rts",
        );
        says(&with(&GOOD.replace("qp::MovesTo", "qp::Moves")), &tree(), "R02: core has no item qp::Moves");
        says(&with(&GOOD.replace("qp::MovesTo", "qp")), &tree(), "R02: core has no item qp");
        says(&with(&GOOD.replace("`qp::MovesTo`", "")), &tree(), "R02: by type, but by which item?");
    }

    #[test]
    fn what_carries_a_number_and_is_not_in_its_row_is_noticed() {
        let mut more = tree();
        more.add_tests("tests/b.rs", "#[test]\nfn h30_r01_it_is_so() {}\n#[test]\nfn h99_odd() {}");
        says(&with(GOOD), &more, "tests/b.rs::h30_r01_it_is_so is not in the row of R01");
        says(&with(GOOD), &more, "tests/b.rs::h30_r01_it_is_so is not in the row of H30");
        says(&with(GOOD), &more, "tests/b.rs::h99_odd is of H99, which has no row");
        let mut more = tree();
        more.cases.insert("r05_new".into(), ["r02_a_misuse".to_owned()].into());
        says(&with(GOOD), &more, "compile-fail r05_new is not in the row of R05");
        says(&with(GOOD), &more, "compile-fail r05_new::r02_a_misuse is not in the row of R02");
        more.without_text.insert("r06_new".into());
        says(&with(GOOD), &more, "compile-fail r06_new has no text");
    }
}
