//! Fuzzes bytes that somebody names as a plugin.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dispatcher_wasm::fuzz::component(bytes));
