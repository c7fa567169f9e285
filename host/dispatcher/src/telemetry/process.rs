//! Metrics of the process itself, named and counted as the client libraries of Prometheus do, and what
//! was built. Read from `/proc`; elsewhere than on Linux only the build is known.

use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use std::fs;

const BUILD: Metric = Metric::gauge(
    "build_info",
    Unit::Builds,
    "1, with the version and the platform of the program.",
);

/// Linux counts the time of a process in hundredths of a second (`USER_HZ`).
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

/// What the system knows of the process.
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
        let text = |name: &str| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        let files = fs::read_dir("/proc/self/fd").ok();
        Self {
            // The listing itself is one of them.
            open_files: files.map(|files| files.count().saturating_sub(1) as f64),
            ..Self::parse(
                &text("self/stat"),
                &text("self/status"),
                &text("self/limits"),
                &text("stat"),
            )
        }
    }

    /// From `/proc/self/stat`, `/proc/self/status`, `/proc/self/limits` and `/proc/stat`; proc(5).
    fn parse(stat: &str, status: &str, limits: &str, system: &str) -> Self {
        // The program's name, which may have blanks, is in parentheses before these fields.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let fields: Vec<f64> = fields
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        let ticks = |field: usize| fields.get(field - 3).copied();
        let boot = number_after(system, "btime");
        let bytes = |name| Some(number_after(status, name)? * 1_024.0);
        Self {
            cpu_s: ticks(14)
                .zip(ticks(15))
                .map(|(user, system)| (user + system) / TICKS_PER_SECOND),
            resident_bytes: bytes("VmRSS:"),
            virtual_bytes: bytes("VmSize:"),
            open_files: None,
            most_files: number_after(limits, "Max open files"),
            threads: number_after(status, "Threads:"),
            started_at_s: boot
                .zip(ticks(22))
                .map(|(boot, since)| boot + since / TICKS_PER_SECOND),
        }
    }
}

/// The number after a word that begins a line.
fn number_after(text: &str, word: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(word))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The metrics of the process now.
pub(crate) fn families() -> Vec<MetricFamily> {
    let figures = ProcessFigures::now();
    let build = [
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
    ];
    let build = [MetricSample::new(build, MetricValue::Level(1.0))];
    let build = BUILD.family(&["version", "os", "arch"], build);
    let of_process = |(metric, read): &ProcessMetric| {
        let value = read(&figures).map(|value| MetricSample::new([], value));
        metric.family(&[], value)
    };
    [build]
        .into_iter()
        .chain(METRICS.iter().map(of_process))
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
