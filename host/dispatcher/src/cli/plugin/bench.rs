//! `dispatcher plugin invoke --bench`: measures a plugin on one message, on one thread, without
//! queue and network.

use super::super::output;
use super::workbench::{self, LoadedComponent, Workbench};
use crate::error::Failure;
use dispatcher_core::clock;
use dispatcher_core::message::Message;
use dispatcher_trials::recording::entry::RecordedVerdict;
use dispatcher_wasm::Reuse;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Reuses an instance forever.
const FOR_EVER: Reuse = Reuse {
    count: u64::MAX,
    age: Duration::from_secs(24 * 3600),
    memory: usize::MAX,
};

/// The measurements of many runs.
struct Figures {
    p50: Duration,
    p99: Duration,
    per_second: f64,
    /// The maximum size of an instance's memories, in bytes.
    memory: usize,
    answers: BTreeMap<&'static str, u32>,
}

/// Measures and prints the results.
pub(super) async fn run(
    workbench: &Workbench,
    message: &Message,
    count: u32,
    json: bool,
) -> Result<(), Failure> {
    output::note("compiling ...");
    let began = clock::now();
    drop(workbench.load(None, false)?);
    let compile = clock::now().since(began);
    // Fills the cache, so that the next load does not compile.
    drop(workbench.load(None, true)?);
    let began = clock::now();
    let fresh = workbench.load(None, true)?;
    let load = clock::now().since(began);
    output::note(format!("{count} runs, each in a fresh instance ..."));
    let cold = measure(&fresh, message, count).await?;
    drop(fresh);
    let reused = workbench.load(Some(FOR_EVER), true)?;
    // The first run creates the instance that the others use.
    drop(reused.run(message.clone()).await?);
    output::note(format!("{count} runs in one instance ..."));
    let warm = measure(&reused, message, count).await?;
    let size = workbench.bytes.len();
    if json {
        output::json(&json!({
            "bytes": size,
            "compile_us": micros(compile),
            "load_us": micros(load),
            "count": count,
            "cold": cold.as_json(),
            "warm": warm.as_json(),
        }))
    } else {
        let size = bytesize::ByteSize::b(size as u64);
        output::line(format!("component  {size}"))?;
        output::line(format!("compile    {}", time(compile)))?;
        output::line(format!("load       {} from the cache", time(load)))?;
        output::line(format!("cold       {}", cold.as_text()))?;
        output::line(format!("warm       {}", warm.as_text()))
    }
}

async fn measure(
    plugin: &LoadedComponent,
    message: &Message,
    count: u32,
) -> Result<Figures, Failure> {
    let mut times = Vec::new();
    let mut memory = 0;
    let mut answers = BTreeMap::new();
    let mut told = false;
    for _ in 0..count {
        let ran = plugin.run(message.clone()).await?;
        if !told && let Some(scene) = ran.scene.as_ref() {
            workbench::show(scene);
            told = true;
        }
        times.push(ran.took);
        memory = memory.max(ran.memory);
        *answers
            .entry(kind(&RecordedVerdict::of(&ran.verdict)))
            .or_default() += 1;
    }
    times.sort();
    let all: Duration = times.iter().sum();
    Ok(Figures {
        p50: percentile(&times, 50),
        p99: percentile(&times, 99),
        per_second: f64::from(count) / all.as_secs_f64().max(1e-9),
        memory,
        answers,
    })
}

/// Returns the smallest of the sorted times that is not exceeded by this percentage of them, or
/// zero if there are none.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

fn kind(answer: &RecordedVerdict) -> &'static str {
    match answer {
        RecordedVerdict::Done => "done",
        RecordedVerdict::Retry { .. } => "retry",
        RecordedVerdict::Reject { .. } => "reject",
        RecordedVerdict::Busy { .. } => "busy",
        RecordedVerdict::Closed { .. } => "closed",
    }
}

impl Figures {
    fn as_json(&self) -> Value {
        json!({
            "p50_us": micros(self.p50),
            "p99_us": micros(self.p99),
            "per_second": self.per_second.round(),
            "memory": self.memory,
            "answers": self.answers,
        })
    }

    fn as_text(&self) -> String {
        let answers: Vec<_> = self
            .answers
            .iter()
            .map(|(kind, n)| format!("{n} {kind}"))
            .collect();
        format!(
            "p50 {}, p99 {}, {:.0} a second, {} of memory each: {}",
            time(self.p50),
            time(self.p99),
            self.per_second,
            bytesize::ByteSize::b(self.memory as u64),
            answers.join(", ")
        )
    }
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

fn time(time: Duration) -> String {
    match time.as_micros() {
        0..10_000 => format!("{:.1} µs", time.as_secs_f64() * 1e6),
        _ => format!("{:.1} ms", time.as_secs_f64() * 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_the_measured_values() {
        let hundred: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&hundred, 50), Duration::from_millis(50));
        assert_eq!(percentile(&hundred, 99), Duration::from_millis(99));
        let seven = Duration::from_millis(7);
        assert_eq!(percentile(&[seven], 50), seven);
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
