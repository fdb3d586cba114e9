//! The declarations here against the C headers: sizes, alignments, offsets, values and signatures.
//!
//! A C program prints what the headers say, which is then compared: of the system's headers, or, with `NEWEST_RDMA_CORE` in
//! the environment, of those that `tests/softefa/newest` unpacked there.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::layout::Registered;
use crate::loader::Table;

fn declarations() -> Registered {
    let parts = [super::device::registered, super::memory::registered, super::cq::registered];
    let more = [super::qp::registered as fn() -> _, super::efadv::registered, super::events::registered];
    let parts = parts.into_iter().chain(more);
    parts.fold(Registered { structs: Vec::new(), constants: Vec::new() }, |mut all, part| {
        let part = part();
        all.structs.extend(part.structs);
        all.constants.extend(part.constants);
        all
    })
}

/// Where another rdma-core was unpacked, if it is to be used.
fn newest() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("NEWEST_RDMA_CORE")?).join("root"))
}

/// The release that the headers are of, from the library's package file: `1.14.44.0` is of 44.
fn release() -> u32 {
    let root = newest().unwrap_or_else(|| "/".into());
    let file = root.join(format!("usr/lib/{}-linux-gnu/pkgconfig/libibverbs.pc", std::env::consts::ARCH));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let version = text.lines().find_map(|line| line.strip_prefix("Version: ")).expect("a version");
    version.split('.').nth(2).and_then(|release| release.parse().ok()).expect("a release")
}

fn headers(cc: &mut Command) {
    if let Some(root) = newest() {
        cc.arg("-I").arg(root.join("usr/include"));
    }
}

/// The lines `what = number` that a C program prints.
fn print(name: &str, statements: &str) -> BTreeMap<String, i64> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/efa-os-headers");
    std::fs::create_dir_all(&folder).unwrap();
    let name = format!("{name}-{}", release());
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(&name));
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <infiniband/efadv.h>\n\
         #undef ibv_query_port\n#undef ibv_reg_mr\n#define PRINT(what, value) printf(\"%s = %lld\\n\", what, (long long)(value))\n\
         int main(void) {{\n{statements}return 0;\n}}\n"
    );
    std::fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    headers(&mut cc);
    let compiled = cc.arg("-std=gnu11").arg("-o").arg(&program).arg(&source).output().expect("cc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).env_remove("LD_PRELOAD").output().expect("it was compiled");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(" = "));
    lines.map(|(what, number)| (what.to_owned(), number.parse().unwrap())).collect()
}

#[test]
fn structs_and_constants_are_as_the_headers_have_them() {
    let (declared, release) = (declarations(), release());
    let mut statements = String::new();
    let mut ask = |what: &str, value: &str| writeln!(statements, "PRINT(\"{what}\", {value});").unwrap();
    let mut ours = BTreeMap::new();
    for of in declared.structs.iter().filter(|of| of.since <= release) {
        let c = of.c;
        let fields = of.fields.iter().filter(|field| field.since <= release);
        if release < of.until && of.fields.iter().all(|field| field.since <= release) {
            ask(&format!("sizeof({c})"), &format!("sizeof({c})"));
            ours.insert(format!("sizeof({c})"), of.size as i64);
        }
        ask(&format!("alignof({c})"), &format!("_Alignof({c})"));
        ours.insert(format!("alignof({c})"), of.align as i64);
        for field in fields {
            let name = field.name;
            ask(&format!("{c}.{name}: offset"), &format!("offsetof({c}, {name})"));
            ours.insert(format!("{c}.{name}: offset"), field.offset as i64);
            ask(&format!("{c}.{name}: size"), &format!("sizeof((({c} *)0)->{name})"));
            ours.insert(format!("{c}.{name}: size"), field.size as i64);
        }
    }
    // Seen from its last member: it grows at its front.
    macro_rules! tail {
        ($($field:ident)*) => {
            $({
                let (what, c) = (concat!("verbs_context.", stringify!($field)), stringify!($field));
                ask(what, &format!("offsetof(struct verbs_context, context) - offsetof(struct verbs_context, {c})"));
                let of = core::mem::offset_of!(super::VerbsContextTail, context);
                ours.insert(what.to_owned(), (of - core::mem::offset_of!(super::VerbsContextTail, $field)) as i64);
            })*
        };
    }
    tail!(create_qp_ex get_srq_num create_srq_ex open_xrcd close_xrcd sz);
    for constant in declared.constants.iter().filter(|constant| constant.since <= release) {
        ask(constant.name, constant.name);
        ours.insert(constant.name.to_owned(), constant.value);
    }
    let theirs = print("layouts", &statements);
    let differ: Vec<String> = ours
        .iter()
        .filter(|(what, value)| theirs.get(*what) != Some(value))
        .map(|(what, value)| format!("{what}: here {value}, in the headers {:?}", theirs.get(what)))
        .collect();
    assert!(differ.is_empty(), "rdma-core {release}:\n{}", differ.join("\n"));
    assert!(ours.len() > 300, "only {} facts were compared", ours.len());
    println!("figure: {} facts of C's headers of rdma-core {release} compared", ours.len());
}

#[test]
fn functions_have_the_signatures_of_the_headers() {
    let release = release();
    let mut statements = String::new();
    let mut names = Vec::new();
    for (symbol, signature) in Table::signatures() {
        if symbol.node.since.is_some_and(|since| since > release) {
            continue;
        }
        let name = symbol.name;
        let same = format!("__builtin_types_compatible_p(typeof({name}), {signature})");
        writeln!(statements, "PRINT(\"{name}\", {same});").unwrap();
        names.push((name, signature));
    }
    let theirs = print("signatures", &statements);
    let differ: Vec<String> = names
        .iter()
        .filter(|(name, _)| theirs.get(*name) != Some(&1))
        .map(|(name, signature)| format!("{name}: here {signature}"))
        .collect();
    assert!(differ.is_empty(), "rdma-core {release}:\n{}", differ.join("\n"));
}
