//! What a Redis server has counted. Pure.

/// How many scripts and how many commands were run, those within scripts included, as the answer of
/// `INFO commandstats` has it; without the calls that look and reset.
pub(crate) fn calls(stats: &str) -> (u64, u64) {
    let mut calls = (0, 0);
    for line in stats.lines() {
        let Some((name, rest)) = line.split_once(":calls=") else {
            continue;
        };
        let count = rest.split(',').next().and_then(|count| count.parse().ok());
        let count: u64 = count.unwrap_or_default();
        if name.starts_with("cmdstat_info") || name.starts_with("cmdstat_config") {
            continue;
        }
        calls.1 += count;
        if name == "cmdstat_evalsha" {
            calls.0 += count;
        }
    }
    calls
}
