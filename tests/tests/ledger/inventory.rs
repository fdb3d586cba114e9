//! What is unsafe in each file of core and efa-os, counted, and what the document says of it.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// How often `unsafe` stands before what.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) blocks: u32,
    impls: u32,
    functions: u32,
    /// Traits, and types of pointers to functions.
    types: u32,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.impls += other.impls;
        self.functions += other.functions;
        self.types += other.types;
    }
}

impl Counts {
    /// Of a source, without its comments and strings.
    pub(crate) fn of(source: &str) -> Self {
        let code = code_of(source);
        let mut counts = Self::default();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        for (at, found) in code.match_indices("unsafe") {
            let after = &code[at + found.len()..];
            if code[..at].ends_with(is_word) || after.starts_with(is_word) {
                continue;
            }
            let next = after.trim_start();
            let word: String = next.chars().take_while(|c| is_word(*c)).collect();
            let then = next[word.len()..].trim_start();
            match word.as_str() {
                "impl" => counts.impls += 1,
                "trait" => counts.types += 1,
                "fn" if then.starts_with('(') => counts.types += 1,
                "fn" | "extern" => counts.functions += 1,
                // A block, or whatever else the language may come to have: it must not go uncounted.
                _ => counts.blocks += 1,
            }
        }
        counts
    }
}

/// The table of the document: one row for each file that has any.
#[derive(Default)]
pub(crate) struct Inventory {
    pub(crate) files: BTreeMap<String, Counts>,
    malformed: Vec<String>,
}

const FORBIDS: &str = "#![forbid(unsafe_code)]";

impl Inventory {
    pub(crate) fn parse(document: &str) -> Self {
        let mut inventory = Self::default();
        for line in document.lines().filter(|line| line.starts_with("| `") && line.contains(".rs` |")) {
            let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
            let row = match cells.as_slice() {
                [file, blocks, impls, functions, types, why] if !why.is_empty() => {
                    let number = |cell: &str| if cell.is_empty() { Ok(0) } else { cell.parse() };
                    let parse = || {
                        Ok::<_, std::num::ParseIntError>(Counts {
                            blocks: number(blocks)?,
                            impls: number(impls)?,
                            functions: number(functions)?,
                            types: number(types)?,
                        })
                    };
                    parse().ok().map(|counts| (file.trim_matches('`').to_owned(), counts))
                }
                _ => None,
            };
            let is_new = row.is_some_and(|(file, counts)| inventory.files.insert(file, counts).is_none());
            if !is_new {
                inventory.malformed.push(format!("not `file | blocks | impls | fns | types | why`, once: {line}"));
            }
        }
        inventory
    }

    /// All that is wrong with it, and with the sources.
    pub(crate) fn complaints(&self, sources: &BTreeMap<String, String>) -> Vec<String> {
        let mut complaints = self.malformed.clone();
        for (file, source) in sources {
            let is = Counts::of(source);
            let said = self.files.get(file).copied().unwrap_or_default();
            if is != said {
                complaints.push(format!("{file} has {is:?}, the inventory {said:?}"));
            }
            let forbids = forbids(file, sources);
            if is != Counts::default() {
                continue;
            }
            // A module cannot forbid what a part of it needs.
            let has_unsafe_part = parts(file, sources).any(|part| Counts::of(&sources[part]) != Counts::default());
            if !forbids && !has_unsafe_part {
                complaints.push(format!("{file} has nothing unsafe and no {FORBIDS}"));
            }
        }
        for file in self.files.keys().filter(|file| !sources.contains_key(*file)) {
            complaints.push(format!("there is no {file}"));
        }
        complaints
    }
}

/// Whether the file, or a module above it, forbids unsafe code.
fn forbids(file: &str, sources: &BTreeMap<String, String>) -> bool {
    let says = |file: &str| sources.get(file).is_some_and(|source| source.contains(FORBIDS));
    says(file) || sources.keys().any(|above| says(above) && parts(above, sources).any(|part| part == file))
}

/// The files of the modules below that of a file.
fn parts<'s>(file: &str, sources: &'s BTreeMap<String, String>) -> impl Iterator<Item = &'s String> {
    let folder = match file.strip_suffix("lib.rs") {
        // A crate's own folder.
        Some(folder) if folder.is_empty() || folder.ends_with('/') => folder.to_owned(),
        _ => file.trim_end_matches("mod.rs").trim_end_matches(".rs").trim_end_matches('/').to_owned() + "/",
    };
    let itself = file.to_owned();
    sources.keys().filter(move |other| **other != itself && other.starts_with(&folder))
}

/// The source with its comments, strings and characters blanked out.
pub(crate) fn code_of(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if c == '"' {
            string(rest)
        } else if c == 'r' && !code.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            raw_string(rest)
        } else if c == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            code.push(' ');
            rest = &rest[skipped..];
        }
    }
    code
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let step = match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn raw_string(rest: &str) -> usize {
    let hashes = rest[1..].chars().take_while(|c| *c == '#').count();
    if !rest[1 + hashes..].starts_with('"') {
        return 0;
    }
    let (start, end) = (hashes + 2, format!("\"{}", "#".repeat(hashes)));
    rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len())
}

/// A character, or nothing if it is a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((after, escaped))) => {
            let from = after + escaped.len_utf8();
            rest[from..].find('\'').map_or(0, |at| from + at + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

mod on_made_up_sources {
    use super::*;

    const SOURCE: &str = r##"
        //! An unsafe { } comment. /* and unsafe impl in it
        #![allow(unsafe_code)]
        /* unsafe fn /* nested unsafe { } */ still unsafe */
        unsafe impl<'a> Send for It<'a> {}
        pub unsafe trait Provider { unsafe fn ask(&self); }
        struct Object { release: unsafe fn(u8), quote: char }
        const TEXT: &str = "unsafe { \" unsafe }"; const RAW: &str = r#"unsafe " { "#;
        fn f<'x>(r: &'x u8) -> char { let _ = unsafe { g(*r) }; let is_unsafe = '"'; unsafe
            { h('\'', '\u{41}') } }
    "##;

    #[test]
    fn unsafe_is_counted_by_what_follows_and_not_in_comments_or_strings() {
        assert_eq!(Counts::of(SOURCE), Counts { blocks: 2, impls: 1, functions: 1, types: 2 });
        assert_eq!(Counts::of("let unsafe_code = 1; // unsafe\nlet a = \"unsafe\";"), Counts::default());
    }

    fn sources() -> BTreeMap<String, String> {
        let all = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a/mod.rs", "mod raw;"),
            ("a/raw.rs", "fn f() { unsafe { g() } }"),
            ("b/mod.rs", "#![forbid(unsafe_code)]\nmod safe;"),
            ("b/safe.rs", "fn f() {}"),
            ("c.rs", "#![forbid(unsafe_code)]"),
        ];
        all.into_iter().map(|(file, source)| (file.to_owned(), source.to_owned())).collect()
    }

    const TABLE: &str = "| file | blocks | impls | fns | types | why |\n| `a/raw.rs` | 1 | | 0 | | it must |\n";

    #[test]
    fn a_good_inventory_has_no_complaints() {
        assert_eq!(Inventory::parse(TABLE).complaints(&sources()), [""; 0]);
    }

    #[test]
    fn a_count_that_differs_a_file_that_is_not_there_and_a_row_without_a_reason_are_noticed() {
        let says = |table: &str, what: &str| {
            let complaints = Inventory::parse(table).complaints(&sources());
            assert!(complaints.iter().any(|complaint| complaint.contains(what)), "{complaints:?}");
        };
        says(&TABLE.replace("| 1 |", "| 2 |"), "a/raw.rs has");
        says(&TABLE.replace("| 1 |", "| one |"), "not `file");
        says("", "a/raw.rs has");
        says(&TABLE.replace("it must", ""), "not `file");
        says(&format!("{TABLE}| `a/gone.rs` | 1 | | | | it was |"), "there is no a/gone.rs");
    }

    #[test]
    fn a_file_that_could_forbid_unsafe_code_and_does_not_is_noticed() {
        let mut sources = sources();
        sources.insert("c.rs".into(), "fn f() {}".into());
        let complaints = Inventory::parse(TABLE).complaints(&sources);
        assert_eq!(complaints, [format!("c.rs has nothing unsafe and no {FORBIDS}")]);
    }
}
