//! With feature `planted` the stub of a device completes RDMA reads twice: the corpus finds it.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

#[test]
fn the_corpus_finds_the_planted_bug() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/completions");
    let finds = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        catch_unwind(|| efa_fuzz::completions(&bytes)).is_err()
    };
    let found = fs::read_dir(&folder).unwrap().filter(|entry| finds(&entry.as_ref().unwrap().path())).count();
    println!("{found} inputs find it");
    assert!(found > 0, "no input of {} finds it", folder.display());
}
