//! The bindings of two WASI drafts: settings, and key-value stores. The drafts have no crates of
//! their own. This module declares only the parts that this crate calls.

wit_bindgen::generate!({
    inline: "
        package dispatcher:sdk;

        world lent {
            import wasi:config/store@0.2.0-rc.1;
            import wasi:keyvalue/store@0.2.0-draft2;
            import wasi:keyvalue/atomics@0.2.0-draft2;
        }

        package wasi:config@0.2.0-rc.1 {
            interface store {
                variant error {
                    upstream(string),
                    io(string),
                }
                get: func(key: string) -> result<option<string>, error>;
                get-all: func() -> result<list<tuple<string, string>>, error>;
            }
        }

        package wasi:keyvalue@0.2.0-draft2 {
            interface store {
                variant error {
                    no-such-store,
                    access-denied,
                    other(string),
                }
                record key-response {
                    keys: list<string>,
                    cursor: option<string>,
                }
                open: func(identifier: string) -> result<bucket, error>;
                resource bucket {
                    get: func(key: string) -> result<option<list<u8>>, error>;
                    set: func(key: string, value: list<u8>) -> result<_, error>;
                    delete: func(key: string) -> result<_, error>;
                    exists: func(key: string) -> result<bool, error>;
                    list-keys: func(cursor: option<string>) -> result<key-response, error>;
                }
            }
            interface atomics {
                use store.{bucket, error};
                variant cas-error {
                    store-error(error),
                    cas-failed(cas),
                }
                resource cas {
                    new: static func(bucket: borrow<bucket>, key: string) -> result<cas, error>;
                    current: func() -> result<option<list<u8>>, error>;
                }
                increment: func(bucket: borrow<bucket>, key: string, delta: s64) -> result<s64, error>;
                swap: func(cas: cas, value: list<u8>) -> result<_, cas-error>;
            }
        }
    ",
    // Only the text above: the crate also has a folder `wit`, which is read by default.
    path: [],
    world: "lent",
    generate_all,
});

pub use self::wasi::{config, keyvalue};
