//! Functions and numbers as NVIDIA's header has them, compiled by C's compiler; `CUDA_HEADERS` names the folder that
//! `cuda.h` is in.

#![forbid(unsafe_code)]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::table::SIGNATURES;
use crate::raw;

/// C's name of a type of the table.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(of) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(of));
    }
    if let Some(of) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(of));
    }
    let c = match rust {
        "u8" => "unsigned char",
        "u32" => "unsigned int",
        "i32" => "int",
        "u64" => "unsigned long long",
        "usize" => "size_t",
        "c_char" => "char",
        "c_void" => "void",
        "Address" => "CUdeviceptr",
        "Code" => "CUresult",
        "Context" => "CUcontext",
        "Stream" => "CUstream",
        "Event" => "CUevent",
        "DeviceAttribute" => "CUdevice_attribute",
        "PointerAttribute" => "CUpointer_attribute",
        "CaptureStatus" => "CUstreamCaptureStatus",
        "FlushTarget" => "CUflushGPUDirectRDMAWritesTarget",
        "FlushScope" => "CUflushGPUDirectRDMAWritesScope",
        "RangeHandle" => "CUmemRangeHandleType",
        other => panic!("no type of C's is known for {other}"),
    };
    c.to_owned()
}

/// What the compiler says of a text, by a header in a folder; empty: nothing.
fn said(folder: &Path, text: &str) -> String {
    static NTH: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let nth = NTH.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let source = std::env::temp_dir().join(format!("efa-cuda-check-{}-{nth}.c", std::process::id()));
    std::fs::write(&source, format!("#include <stdint.h>\n#include <cuda.h>\n{text}")).unwrap();
    let mut cc = Command::new("cc");
    let output = cc.args(["-std=gnu11", "-fsyntax-only", "-I"]).arg(folder).arg(&source).output().expect("cc");
    std::fs::remove_file(&source).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    said
}

fn headers() -> Option<PathBuf> {
    let folder = std::env::var_os("CUDA_HEADERS").map(PathBuf::from);
    if folder.is_none() {
        println!("\nskipped: no folder of NVIDIA's headers is named by CUDA_HEADERS");
    }
    folder
}

#[test]
fn functions_have_the_signatures_and_numbers_the_values_of_nvidias_header() {
    let Some(folder) = headers() else { return };
    let mut text = String::new();
    let mut facts = 0;
    for (name, types) in SIGNATURES {
        let types: Vec<String> = types.iter().map(|rust| c_type(rust)).collect();
        let function = format!("CUresult ({})", types.join(", "));
        let same = format!("__builtin_types_compatible_p(__typeof__({name}), {function})");
        writeln!(text, "_Static_assert({same}, \"{name}\");").unwrap();
        facts += 1;
    }
    for (name, value) in [raw::NUMBERS, raw::attribute::NUMBERS, raw::pointer::NUMBERS].concat() {
        writeln!(text, "_Static_assert((long long){name} == {value}, \"{name}\");").unwrap();
        facts += 1;
    }
    let said = said(&folder, &text);
    assert!(said.is_empty(), "{said}");
    assert!(facts > 65, "only {facts}");
    println!("figure: {facts} facts of NVIDIA's cuda.h compared");
}

#[test]
fn what_the_header_has_otherwise_is_noticed() {
    let Some(folder) = headers() else { return };
    for wrong in [
        "_Static_assert(__builtin_types_compatible_p(__typeof__(cuInit), CUresult (int)), \"\");",
        "_Static_assert((long long)CUDA_ERROR_NOT_READY == 601, \"\");",
        "_Static_assert(sizeof(cuNoSuchFunction), \"\");",
    ] {
        assert!(!said(&folder, wrong).is_empty(), "{wrong}");
    }
}
