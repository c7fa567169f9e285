//! The machine that a figure is of, and how busy it is. Linux only: all is read from /proc.

use crate::support::program::TICKS;
use dispatcher_core::clock;
use std::time::{Duration, UNIX_EPOCH};

/// Prints the date and the machine, before figures.
pub(crate) fn print() {
    let date = UNIX_EPOCH + Duration::from_millis(clock::wall_clock_now().0);
    let date = humantime::format_rfc3339_seconds(date);
    println!("{date}, {}", description());
}

/// Its processor, cores, memory and kernel, in one line.
fn description() -> String {
    let number = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    let model = value("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory_kib = value("/proc/meminfo", "MemTotal").and_then(|text| number(&text));
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{model}, {} cores, {:.0} GiB, Linux {}",
        cores(),
        memory_kib.unwrap_or_default() / f64::from(1 << 20),
        kernel.trim()
    )
}

/// How many cores it has.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The processor time of all processes so far.
pub(crate) fn busy() -> Duration {
    let text = read("/proc/stat");
    let fields = text.lines().next().unwrap_or_default().split_whitespace();
    let fields: Vec<f64> = fields.skip(1).filter_map(|n| n.parse().ok()).collect();
    // user, nice, system; idle and iowait follow, then irq and softirq.
    let busy = fields
        .iter()
        .take(3)
        .chain(fields.get(5..7).into_iter().flatten());
    Duration::from_secs_f64(busy.sum::<f64>() / TICKS)
}

fn value(file: &str, name: &str) -> Option<String> {
    let text = read(file);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let (_, value) = line?.split_once(':')?;
    Some(value.trim().to_owned())
}

fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}
