//! Fuzzes configuration file and flags into settings.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dispatcher_config::fuzz::settings(bytes));
