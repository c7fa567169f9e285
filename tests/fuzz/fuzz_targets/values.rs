//! Fuzzes queue lists, names, durations, sizes, rates and addresses.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dispatcher_config::fuzz::values(bytes));
