//! Replays the corpus on stable: `cargo test` in this folder.

use std::fs;
use std::path::Path;

/// Calls `body` with each file of a target's corpus.
fn replay(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        body(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files > 0, "{} has no files", folder.display());
}

#[test]
fn the_endpoint_corpus_holds() {
    replay("endpoint", efa_fuzz::endpoint);
}

#[test]
fn the_frames_corpus_holds() {
    replay("frames", efa_fuzz::frames);
}

#[test]
fn the_completions_corpus_holds() {
    replay("completions", efa_fuzz::completions);
}

#[test]
fn the_calls_corpus_holds() {
    replay("calls", efa_fuzz::calls);
}
