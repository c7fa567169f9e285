//! The metrics of the process itself, with the names and units of Prometheus's client libraries,
//! and those of the build. Read from `/proc`; on systems other than Linux, only the build is known.

use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use std::fs;

const BUILD: Metric = Metric::gauge(
    "build_info",
    Unit::Builds,
    "1, with the version and the platform of the program.",
);

/// The number of ticks per second in which Linux counts the time of a process (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

type ProcessMetric = (Metric, fn(&ProcessFigures) -> Option<MetricValue>);

const METRICS: [ProcessMetric; 7] = [
    (
        Metric::counter(
            "process_cpu_seconds",
            Unit::Seconds,
            "Processor time that the process has used, in user and kernel mode.",
        )
        .of_convention(),
        |of| of.cpu_s.map(MetricValue::Sum),
    ),
    (
        Metric::gauge(
            "process_resident_memory_bytes",
            Unit::Bytes,
            "Memory of the process in RAM.",
        )
        .of_convention(),
        |of| of.resident_bytes.map(MetricValue::Level),
    ),
    (
        Metric::gauge(
            "process_virtual_memory_bytes",
            Unit::Bytes,
            "Address space that the process has mapped; most of it is reserved for instances and takes no RAM.",
        )
        .of_convention(),
        |of| of.virtual_bytes.map(MetricValue::Level),
    ),
    (
        Metric::gauge("process_open_fds", Unit::Files, "Open files, connections included.")
            .of_convention(),
        |of| of.open_files.map(MetricValue::Level),
    ),
    (
        Metric::gauge("process_max_fds", Unit::Files, "Maximum open files.").of_convention(),
        |of| of.most_files.map(MetricValue::Level),
    ),
    (
        Metric::gauge("process_threads", Unit::Threads, "Threads of the process.").of_convention(),
        |of| of.threads.map(MetricValue::Level),
    ),
    (
        Metric::gauge(
            "process_start_time_seconds",
            Unit::Seconds,
            "When the process started, in seconds since 1970.",
        )
        .of_convention(),
        |of| of.started_at_s.map(MetricValue::Level),
    ),
];

/// The system's figures of the process.
#[derive(Debug, Clone, Default, PartialEq)]
struct ProcessFigures {
    cpu_s: Option<f64>,
    resident_bytes: Option<f64>,
    virtual_bytes: Option<f64>,
    open_files: Option<f64>,
    most_files: Option<f64>,
    threads: Option<f64>,
    started_at_s: Option<f64>,
}

impl ProcessFigures {
    fn now() -> Self {
        let files = fs::read_dir("/proc/self/fd").ok();
        Self {
            // The listing itself has one open file.
            open_files: files.map(|files| files.count().saturating_sub(1) as f64),
            ..Self::parse(
                &proc_text("self/stat"),
                &proc_text("self/status"),
                &proc_text("self/limits"),
                &proc_text("stat"),
            )
        }
    }

    /// Parses `/proc/self/stat`, `/proc/self/status`, `/proc/self/limits` and `/proc/stat`; see
    /// proc(5).
    fn parse(stat: &str, status: &str, limits: &str, system: &str) -> Self {
        // The program's name, which may contain spaces, is in parentheses before these fields.
        let fields: Vec<f64> = stat
            .rsplit_once(')')
            .map_or("", |(_, fields)| fields)
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        let [user, kernel, start] = [14_usize, 15, 22].map(|field| fields.get(field - 3).copied());
        let boot = number_after(system, "btime");
        let [resident, whole] =
            ["VmRSS:", "VmSize:"].map(|name| Some(number_after(status, name)? * 1_024.0));
        Self {
            cpu_s: user
                .zip(kernel)
                .map(|(user, kernel)| (user + kernel) / TICKS_PER_SECOND),
            resident_bytes: resident,
            virtual_bytes: whole,
            open_files: None,
            most_files: number_after(limits, "Max open files"),
            threads: number_after(status, "Threads:"),
            started_at_s: boot
                .zip(start)
                .map(|(boot, since)| boot + since / TICKS_PER_SECOND),
        }
    }
}

fn proc_text(name: &str) -> String {
    fs::read_to_string(format!("/proc/{name}")).unwrap_or_default()
}

/// Returns the number after a word at the beginning of a line.
fn number_after(text: &str, word: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(word))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Returns the current metrics of the process.
pub fn families() -> Vec<MetricFamily> {
    let figures = ProcessFigures::now();
    let labels = [
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
    ];
    let sample = MetricSample::new(labels, MetricValue::Level(1.0));
    let build = BUILD.family(&["version", "os", "arch"], [sample]);
    [build]
        .into_iter()
        .chain(METRICS.iter().map(|(metric, read): &ProcessMetric| {
            let value = read(&figures).map(|value| MetricSample::new([], value));
            metric.family(&[], value)
        }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_process_are_read_as_proc_writes_them() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 0 0 0 0 250 50 0 0 20 0 9 0 12345 1 2";
        let status = "Name:\ta\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t9\n";
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        let system = "cpu 1 2\nbtime 1700000000\n";
        let wanted = ProcessFigures {
            cpu_s: Some(3.0),
            resident_bytes: Some(1_048_576.0),
            virtual_bytes: Some(2_097_152.0),
            open_files: None,
            most_files: Some(1_024.0),
            threads: Some(9.0),
            started_at_s: Some(1_700_000_123.45),
        };
        assert_eq!(ProcessFigures::parse(stat, status, limits, system), wanted);
        assert_eq!(
            ProcessFigures::parse("", "", "Max open files unlimited", ""),
            ProcessFigures::default()
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_all_figures() {
        for family in families() {
            assert_eq!(family.samples.len(), 1, "{}", family.metric.name);
        }
    }
}
