//! Fuzzes operations on the local queue and on its model.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dispatcher_local::queue::fuzz::operations(bytes));
