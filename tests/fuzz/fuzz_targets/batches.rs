//! Fuzzes batches into Lambda events, and answers into failures.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dispatcher_forward::batches(bytes));
