//! Fuzzes answers of Lambda into verdicts about a function.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dispatcher_aws::lambda::fuzz::answers(bytes));
