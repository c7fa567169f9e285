//! What every message went through, and what is running. Pure.

use super::http::Request;
use super::step::{Invocation, LambdaStep, Record};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// What one message went through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageHistory {
    /// Its body.
    pub body: String,
    /// How often it came.
    pub invoked: u32,
    /// How often the function ran with it.
    pub executed: u32,
    /// The receive count that each event carried.
    pub receive_counts: Vec<u32>,
    /// How often the caller could not know whether the function had run.
    pub unknown: u32,
    /// How often the function itself failed.
    pub failed: u32,
    /// How often it was refused without running, and the caller told so.
    pub throttled: u32,
}

/// The function ran.
#[derive(Debug, Clone)]
pub struct Execution {
    /// When it began.
    pub at: Instant,
    /// The queue's ARN.
    pub queue: String,
    /// The message's body.
    pub body: String,
}

/// Everything so far.
#[derive(Debug, Clone)]
pub struct InvocationRecords {
    /// By message id.
    pub seen: BTreeMap<String, MessageHistory>,
    /// In order.
    pub executions: Vec<Execution>,
    /// Invocations that were decided by the script.
    pub invocations: usize,
    /// The same, by their paths.
    pub by_path: BTreeMap<String, usize>,
    /// Invocations that found no function, or were too large.
    pub refused: usize,
    /// Calls that asked about a function.
    pub questions: usize,
    /// Connections that were made.
    pub connections: usize,
    /// Invocations that have not been answered.
    pub in_flight: usize,
    /// The most there were at once.
    pub most_in_flight: usize,
    /// Maximum records of one event.
    pub largest_batch: usize,
    /// The longest event in bytes.
    pub largest_event: usize,
    pub(super) missing: bool,
    pub(super) timeout: u64,
    pub(super) isolates_tenants: bool,
}

impl InvocationRecords {
    pub(super) fn new() -> Self {
        Self {
            seen: BTreeMap::new(),
            executions: Vec::new(),
            invocations: 0,
            by_path: BTreeMap::new(),
            refused: 0,
            questions: 0,
            connections: 0,
            in_flight: 0,
            most_in_flight: 0,
            largest_batch: 0,
            largest_event: 0,
            missing: false,
            timeout: 3,
            isolates_tenants: false,
        }
    }

    /// How many messages the function ran with at least once.
    pub fn executed(&self) -> usize {
        self.seen.values().filter(|seen| seen.executed > 0).count()
    }

    /// What is known of the message with this body.
    pub fn of(&self, body: &str) -> Option<&MessageHistory> {
        self.seen.values().find(|seen| seen.body == body)
    }

    /// Takes an invocation in.
    pub(super) fn begin(&mut self, function: String, request: &Request) -> Invocation {
        let number = self.invocations;
        self.invocations += 1;
        *self.by_path.entry(request.path.clone()).or_default() += 1;
        self.in_flight += 1;
        self.most_in_flight = self.most_in_flight.max(self.in_flight);
        self.largest_event = self.largest_event.max(request.body.len());
        let event: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let records = event["Records"].as_array();
        let records = records.map_or(&[][..], Vec::as_slice);
        self.largest_batch = self.largest_batch.max(records.len());
        Invocation {
            number,
            function,
            event: request.event,
            trace_header: request.trace_header.clone(),
            tenant: request.tenant.clone(),
            records: records.iter().map(|record| self.record(record)).collect(),
        }
    }

    fn record(&mut self, record: &Value) -> Record {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let count = &record["attributes"]["ApproximateReceiveCount"];
        let id = text(&record["messageId"]);
        let body = text(&record["body"]);
        let seen = self.seen.entry(id.clone()).or_default();
        let before = seen.invoked;
        let receive_count = text(count).parse().unwrap_or(0);
        seen.body.clone_from(&body);
        seen.invoked += 1;
        seen.receive_counts.push(receive_count);
        Record {
            id,
            body,
            queue: text(&record["eventSourceARN"]),
            receive_count,
            before,
        }
    }

    /// Counts what is to happen to it.
    pub(super) fn decided(&mut self, invocation: &Invocation, step: &LambdaStep) {
        for record in &invocation.records {
            let seen = self.seen.get_mut(&record.id).expect("it began");
            seen.executed += u32::from(step.executes());
            seen.unknown += u32::from(step.hides_whether_it_ran());
            seen.failed += u32::from(step.fails());
            seen.throttled += u32::from(step.proves_it_did_not_run());
            if step.executes() {
                self.executions.push(Execution {
                    at: Instant::now(),
                    queue: record.queue.clone(),
                    body: record.body.clone(),
                });
            }
        }
    }

    /// One fewer under way.
    pub(super) fn end(&mut self) {
        self.in_flight -= 1;
    }
}

impl std::fmt::Display for InvocationRecords {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            out,
            "{} invocations, {} in flight, {} refused, {} questions, {} messages, {} executed",
            self.invocations,
            self.in_flight,
            self.refused,
            self.questions,
            self.seen.len(),
            self.executed()
        )?;
        for (id, seen) in self.seen.iter().take(20) {
            writeln!(out, "{id}: {seen:?}")?;
        }
        Ok(())
    }
}
