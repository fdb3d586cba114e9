//! What exists in this repository: tests, compile-fail files, items, sources, mutants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::inventory::code_of;

/// What a ledger may name.
#[derive(Default)]
pub(crate) struct Tree {
    /// Test functions, as `tests/peers.rs::name` or `src/gid.rs::name`, seen from core; those of efa-os as `os/tests/..`,
    /// of efa-cuda and efa-examples likewise.
    pub(crate) tests: BTreeSet<String>,
    /// Compile-fail files by stem, with the functions in them, one misuse each. Only those that have a text.
    pub(crate) cases: BTreeMap<String, BTreeSet<String>>,
    /// Compile-fail files without a text.
    pub(crate) without_text: BTreeSet<String>,
    /// Errors in all texts.
    pub(crate) texts: usize,
    /// The identifiers of core's sources by file, as `qp/state.rs`, of efa-os' as `os/device.rs`, of efa-cuda's likewise.
    pub(crate) identifiers: BTreeMap<String, BTreeSet<String>>,
}

impl Tree {
    pub(crate) fn of_this_repository() -> Self {
        let mut tree = Self::default();
        for (file, text) in sources() {
            tree.add_tests(&format!("src/{file}"), &text);
            tree.identifiers.insert(file, identifiers(&code_of(&text)));
        }
        for (file, text) in rust_files(&core_dir().join("tests")) {
            tree.add_tests(&format!("tests/{file}"), &text);
        }
        for (member, folder) in OTHERS.into_iter().flat_map(|member| [(member, "src"), (member, "tests")]) {
            for (file, text) in rust_files(&root().join(member).join(folder)) {
                tree.add_tests(&format!("{member}/{folder}/{file}"), &text);
                if folder == "src" {
                    tree.identifiers.insert(format!("{member}/{file}"), identifiers(&code_of(&text)));
                }
            }
        }
        // The programs have no unsafe code to count, and answer some of the reports.
        for folder in ["src", "tests"] {
            for (file, text) in rust_files(&root().join("examples").join(folder)) {
                tree.add_tests(&format!("examples/{folder}/{file}"), &text);
            }
        }
        for path in files(&tests_dir().join("compile-fail"), "rs") {
            let stem = name(&path).trim_end_matches(".rs").to_owned();
            let stderr = path.with_extension("stderr");
            if stderr.exists() {
                tree.texts += read(&stderr).lines().filter(|line| line.starts_with("error")).count();
                tree.cases.insert(stem, functions(&read(&path)).collect());
            } else {
                tree.without_text.insert(stem);
            }
        }
        assert!(tree.tests.len() > 100 && tree.cases.len() > 20 && tree.identifiers.len() > 50, "found too little");
        tree
    }

    /// Functions that an attribute `#[test]` stands before.
    pub(crate) fn add_tests(&mut self, file: &str, text: &str) {
        for after in text.split("#[test]").skip(1) {
            if let Some(name) = functions(after).next() {
                self.tests.insert(format!("{file}::{name}"));
            }
        }
    }

    /// Whether core has an item of that path: its last name stands in a file of the module, if it names one.
    pub(crate) fn has_item(&self, path: &str) -> bool {
        let mut names = path.split("::").peekable();
        let module = names.peek().copied().unwrap_or_default();
        let of_module = |file: &str| file == format!("{module}.rs") || file.starts_with(&format!("{module}/"));
        let has_module = self.identifiers.keys().any(|file| of_module(file));
        if has_module {
            names.next();
        }
        let files = || self.identifiers.iter().filter(|(file, _)| !has_module || of_module(file));
        names.peek().is_some() && names.all(|name| files().any(|(_, identifiers)| identifiers.contains(name)))
    }
}

/// Core's sources, by path below `core/src`.
pub(crate) fn sources() -> BTreeMap<String, String> {
    rust_files(&core_dir().join("src"))
}

/// The sources of core, and those of efa-os and efa-cuda, by path below `os/src` with `os/` before it: all that the inventory is of.
pub(crate) fn inventoried() -> BTreeMap<String, String> {
    let mut all = sources();
    for member in OTHERS {
        let found = rust_files(&root().join(member).join("src"));
        assert!(found.len() > 10, "found too little of {member}");
        all.extend(found.into_iter().map(|(file, text)| (format!("{member}/{file}"), text)));
    }
    all
}

/// The text of each Rust file below a folder, by its path there.
fn rust_files(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                found.insert(relative, read(&path));
            }
        }
    }
    found
}

/// The mutants, by file name.
pub(crate) fn mutants() -> Vec<(String, String)> {
    let all: Vec<_> =
        files(&tests_dir().join("mutants"), "patch").iter().map(|path| (name(path).to_owned(), read(path))).collect();
    assert!(all.len() >= 20, "only {} mutants", all.len());
    all
}

/// The crates besides core.
const OTHERS: [&str; 2] = ["os", "cuda"];

fn root() -> PathBuf {
    tests_dir().parent().unwrap().to_owned()
}

pub(crate) fn core_dir() -> PathBuf {
    root().join("core")
}

fn tests_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Words of letters, digits and underscores.
fn identifiers(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
}

fn functions(text: &str) -> impl Iterator<Item = String> {
    let names = text.split("fn ").skip(1);
    names.filter_map(|after| after.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned))
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut all: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}
