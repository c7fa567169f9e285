//! Fuzz targets: texts of users into settings. No text panics, every problem says where and what in
//! one line, and what was accepted is accepted again, as the same, when it is written out.

use super::discovery::FoundQueues;
use super::flags::Flags;
use super::problem::Problem;
use super::section::WrittenValue;
use super::value::{self, BareUnit};
use super::{Settings, check, file, function, prefix, queues};
use crate::backends;
use crate::name::QueueName;
use std::path::Path;
use std::time::Duration;

mod written;

pub use written::Toml;

/// Flags, one a line as `--flag value`, an empty line, and the text of a file.
pub fn settings(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (lines, file) = text.split_once("\n\n").unwrap_or(("", &text));
    let mut flags = Flags::default();
    for line in lines.lines() {
        let (flag, value) = line.split_once(' ').unwrap_or((line, ""));
        let name = flag.trim_start_matches('-');
        // Another file would be read from the disk.
        if name != "config" {
            flags.take(name, WrittenValue::new(flag, value));
        }
    }
    let none = FoundQueues::new();
    let (settings, problems) = read(&flags, file, &none);
    problems.iter().for_each(check_problem);
    let patterns = settings.patterns().map(|pattern| {
        let mut queue = pattern.as_queue().clone();
        queue.name = queue.name.replace('*', "x");
        (pattern.to_string(), vec![queue])
    });
    let found: FoundQueues = patterns.collect();
    if !found.is_empty() {
        let (_, problems) = read(&flags, file, &found);
        problems.iter().for_each(check_problem);
    } else if problems.is_empty() {
        hold(&settings);
        let text = written::file(&settings);
        let (again, problems) = read(&Flags::default(), &text, &none);
        assert_eq!(problems, [], "{text}");
        assert_eq!(written::file(&again), text);
    }
}

fn read(flags: &Flags, text: &str, found: &FoundQueues) -> (Settings, Vec<Problem>) {
    let (mut file, mut problems) = file::read(Path::new("dispatcher.toml"), text);
    problems.extend(flags.problems.iter().cloned());
    let mut flags = flags.clone();
    let prefix = prefix::apply(&mut flags, &mut file, &mut problems);
    let mut check = check::Check {
        problems,
        found: found.clone(),
        prefix,
    };
    let settings = check.settings(&flags, &file);
    (settings, check.problems)
}

fn check_problem(problem: &Problem) {
    assert!(!problem.at.is_empty() && !problem.found.is_empty());
    let line = problem.to_string();
    assert!(!line.contains(char::is_control), "{line:?}");
}

/// Checks the promises of `Settings`.
fn hold(settings: &Settings) {
    assert!(!settings.routes.is_empty());
    let mut seen = Vec::new();
    for route in &settings.routes {
        assert!((1..=10_000).contains(&route.settings.batch_size));
        assert!(route.settings.concurrency >= 1 && !route.queues.is_empty());
        assert!(route.retry.first <= route.retry.most);
        let weighted = route.queues.iter().filter(|queue| queue.weight.is_some());
        assert!([0, route.queues.len()].contains(&weighted.count()));
        for queue in &route.queues {
            assert!(queue.rate.is_none_or(|rate| rate > 0.0 && rate.is_finite()));
            assert_ne!(route.dead_letter.as_ref(), Some(&queue.name));
            assert!(!seen.contains(&&queue.name), "{}", queue.name);
            seen.push(&queue.name);
        }
    }
}

/// One value: its first byte says of which kind.
pub fn values(bytes: &[u8]) {
    let Some((kind, text)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let given = WrittenValue::new("here", &*text);
    let any = Duration::ZERO..=Duration::MAX;
    let lease = Duration::ZERO..=Duration::from_secs(43_200);
    match kind % 12 {
        0 => queue_list(&given),
        1 => names(&given),
        2 => same(
            &given,
            |given| value::duration(given, BareUnit::Refused, &any),
            time,
        ),
        3 => same(
            &given,
            |given| value::duration(given, BareUnit::Seconds, &lease),
            time,
        ),
        4 => same(
            &given,
            |given| value::size(given, &(1 << 16..=4 << 30)),
            usize::to_string,
        ),
        5 => same(
            &given,
            |given| value::number(given, &(1..=u64::MAX)),
            u64::to_string,
        ),
        6 => same(&given, value::rate, |rate| format!("{rate}/s")),
        7 => same(&given, value::url, String::clone),
        8 => same(&given, value::socket, ToString::to_string),
        9 => same(&given, value::namespace, String::clone),
        10 => same(&given, function::read, String::clone),
        _ => {
            same(&given, function::pattern, String::clone);
            same(&given, value::pair, |(key, value)| format!("{key}={value}"));
        }
    }
}

/// Checks that an accepted value is accepted as the same when it is written out.
fn same<T: PartialEq + std::fmt::Debug>(
    given: &WrittenValue,
    read: impl Fn(&WrittenValue) -> Result<T, Problem>,
    write: impl Fn(&T) -> String,
) {
    match read(given) {
        Err(problem) => check_problem(&problem),
        Ok(value) => {
            let text = write(&value);
            assert_eq!(
                read(&WrittenValue::new("again", &*text)),
                Ok(value),
                "{text}"
            );
        }
    }
}

fn time(time: &Duration) -> String {
    humantime::format_duration(*time).to_string()
}

fn queue_list(given: &WrittenValue) {
    let mut problems = Vec::new();
    let none = FoundQueues::new();
    let list = queues::read(std::slice::from_ref(given), &none, &mut problems);
    problems.iter().for_each(check_problem);
    // The weights of patterns are those of the queues that they find.
    if problems.is_empty() && list.patterns.is_empty() {
        let texts: Vec<_> = list.queues.iter().map(written::queue).collect();
        let again = WrittenValue::new("here", texts.join(","));
        let again = queues::read(&[again], &none, &mut problems);
        assert_eq!((again.queues, problems), (list.queues, Vec::new()));
    }
}

fn names(given: &WrittenValue) {
    let (name, weight) = QueueName::split_weight(&given.text);
    assert!(name.len() + weight.map_or(0, |weight| weight.len() + 1) == given.text.len());
    let Ok(name) = given.text.parse::<QueueName>() else {
        return;
    };
    let printed = name.to_string();
    assert_eq!(printed.parse().as_ref(), Ok(&name), "{printed}");
    let backend = name.backend.name();
    assert!(backend == backends::unnamed() || printed.starts_with(&format!("{backend}:")));
    assert!(!printed.contains(char::is_control), "{printed:?}");
}

#[cfg(test)]
mod tests {
    use dispatcher_core::fuzz::replay;

    #[test]
    fn the_corpus_of_settings_finds_nothing() {
        replay("settings", super::settings);
    }

    #[test]
    fn the_corpus_of_values_finds_nothing() {
        replay("values", super::values);
    }
}
