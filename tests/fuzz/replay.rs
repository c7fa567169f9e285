//! Feeds the corpus of the one target whose code is not in the host to it again, in an ordinary
//! build. The host's targets replay theirs in its unit tests.

use std::path::Path;

#[test]
fn the_corpus_of_batches_finds_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/batches");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        println!("{}", path.display());
        dispatcher_forward::batches(&std::fs::read(&path).expect("a readable file"));
        count += 1;
    }
    assert!(count > 0, "no files in {}", folder.display());
}
