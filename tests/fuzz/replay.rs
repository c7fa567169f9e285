//! Feeds the corpus of the one target whose code is not in the host to it again, in an ordinary
//! build. The host's targets replay theirs in its unit tests.

#[test]
fn the_corpus_of_batches_finds_nothing() {
    let text = include_str!("corpus/batches.hex");
    assert!(!text.is_empty(), "no inputs");
    for (number, line) in text.lines().enumerate() {
        println!("tests/fuzz/corpus/batches.hex:{}", number + 1);
        let byte = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).expect("two digits");
        let input: Vec<u8> = (0..line.len()).step_by(2).map(byte).collect();
        dispatcher_forward::batches(&input);
    }
}
