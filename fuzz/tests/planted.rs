//! With feature `planted` the stub of a device completes RDMA reads twice, and a request that comes again over a link
//! has another number: the corpus finds both.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

/// A bug is found by some input of a target's corpus.
fn finds(target: &str, body: fn(&[u8]) -> efa_fuzz::Reached) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let finds = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        catch_unwind(|| body(&bytes)).is_err()
    };
    let found = fs::read_dir(&folder).unwrap().filter(|entry| finds(&entry.as_ref().unwrap().path())).count();
    println!("{found} inputs find it");
    assert!(found > 0, "no input of {} finds it", folder.display());
}

#[test]
fn the_corpus_finds_the_planted_bug() {
    finds("completions", efa_fuzz::completions);
}

#[test]
fn the_corpus_finds_that_a_request_is_executed_twice() {
    finds("link", efa_fuzz::link);
}
