//! Fuzzes between the shapes of SQS and ours.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dispatcher_sqs::queue::fuzz::wire(bytes));
