//! What a process holds, read every few seconds: memory, open files, threads, tasks; and whether
//! it grows. Knows `/proc` and the metrics page, nothing of messages.

use dispatcher_tests::http;
use std::fmt::Write as _;
use std::path::Path;

/// A process at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// Seconds since the run began.
    pub at_s: f64,
    /// By the order of `NAMES`.
    pub values: [f64; 4],
}

/// What is read of a process: resident memory in MiB, open files, threads, tasks of the control
/// runtime.
pub(crate) const NAMES: [&str; 4] = ["memory_mib", "files", "threads", "tasks"];

/// By how much the last third may differ from the middle third.
const FLAT: f64 = 0.05;
/// A difference of so little is none, whatever it is in parts of a hundred.
const NOTHING: [f64; 4] = [1.0, 1.0, 1.0, 2.0];

/// Looks at a process; at its metrics page, too, if it has one. `None` if it is gone.
pub(crate) fn take(at_s: f64, process: u32, admin: Option<&str>) -> Option<Sample> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let tasks = admin.and_then(|admin| {
        let page = http::get(&format!("{admin}/metrics")).body;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix("dispatcher_tasks "));
        line?.parse::<f64>().ok()
    });
    Some(Sample {
        at_s,
        values: [
            number("VmRSS:")? / 1024.0,
            files.count() as f64,
            number("Threads:")?,
            tasks.unwrap_or_default(),
        ],
    })
}

/// What one column did over the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trend {
    /// The first and the last value.
    pub ends: (f64, f64),
    /// Growth an hour, by least squares over the last two thirds.
    pub an_hour: f64,
    /// The means of the middle and of the last third.
    pub thirds: (f64, f64),
    /// Whether the last third is within 5 % of the middle one.
    pub flat: bool,
}

/// The trend of one column; `None` of too few samples.
pub(crate) fn trend(samples: &[Sample], column: usize) -> Option<Trend> {
    let third = samples.len() / 3;
    if third == 0 {
        return None;
    }
    let value = |sample: &Sample| sample.values[column];
    let mean = |part: &[Sample]| part.iter().map(value).sum::<f64>() / part.len() as f64;
    let (middle, last) = (&samples[third..2 * third], &samples[2 * third..]);
    let thirds = (mean(middle), mean(last));
    let settled = &samples[third..];
    let count = settled.len() as f64;
    let at = settled.iter().map(|sample| sample.at_s).sum::<f64>() / count;
    let of = mean(settled);
    let covariance = |sample: &Sample| (sample.at_s - at) * (value(sample) - of);
    let variance = |sample: &Sample| (sample.at_s - at).powi(2);
    let slope = settled.iter().map(covariance).sum::<f64>()
        / settled
            .iter()
            .map(variance)
            .sum::<f64>()
            .max(f64::MIN_POSITIVE);
    let apart = (thirds.1 - thirds.0).abs();
    Some(Trend {
        ends: (value(samples.first()?), value(samples.last()?)),
        an_hour: slope * 3_600.0,
        thirds,
        flat: apart <= NOTHING[column] || apart <= thirds.0 * FLAT,
    })
}

/// All trends of a process in lines, and whether all are flat.
pub(crate) fn report(name: &str, samples: &[Sample]) -> (String, bool) {
    let mut out = format!(
        "{name}: {:<11} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "", "first", "last", "middle ⅓", "last ⅓", "per hour"
    );
    let mut all_flat = true;
    for (column, what) in NAMES.iter().enumerate() {
        let Some(trend) = trend(samples, column) else {
            continue;
        };
        all_flat &= trend.flat;
        // Writing into a string cannot fail.
        let _ = writeln!(
            out,
            "{name}: {what:<11} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>+9.2} {}",
            trend.ends.0,
            trend.ends.1,
            trend.thirds.0,
            trend.thirds.1,
            trend.an_hour,
            if trend.flat { "flat" } else { "NOT FLAT" }
        );
    }
    (out, all_flat)
}

/// Writes the samples of all processes into one table.
///
/// # Errors
/// What the file system says.
pub(crate) fn write_csv(path: &Path, all: &[(&str, Vec<Sample>)]) -> std::io::Result<()> {
    let mut text = format!("process,at_s,{}\n", NAMES.join(","));
    for (name, samples) in all {
        for Sample { at_s, values } in samples {
            let values = values.map(|value| format!("{value:.2}")).join(",");
            // Writing into a string cannot fail.
            let _ = writeln!(text, "{name},{at_s:.1},{values}");
        }
    }
    std::fs::write(path, text)
}
