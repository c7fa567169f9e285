//! Without a grant no connection is made, and tries are counted.

use crate::tests::*;
use std::net::TcpListener;

#[test]
fn network_is_denied_and_every_try_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (refused, count) = counting();
    let counted = PluginOptions {
        refused: count,
        ..options()
    };
    let plugin = load(&runtime(1), "verdicts", counted);
    let tries = [
        &format!("connect:{}", listener.local_addr().unwrap()),
        "listen:127.0.0.1:0",
        "resolve:localhost:80",
    ];
    for (number, body) in tries.into_iter().enumerate() {
        let answer = rejection(&plugin, body);
        assert!(!answer.starts_with("got"), "{body}: {answer}");
        assert_eq!(refused.load(Ordering::SeqCst), number + 1, "{body}");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody called");
}
