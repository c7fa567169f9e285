//! Checks the table for scheduled messages. Opens nothing.

use super::Check;
use crate::problem::Problem;
use crate::section::{Layers, WrittenValue};

impl Check {
    pub(super) fn schedule_table(&mut self, program: Layers<'_>) -> Option<String> {
        self.read(program.one("schedule-table"), table)
    }
}

/// Parses the name of a DynamoDB table ("Naming rules and data types", DynamoDB developer guide).
fn table(given: &WrittenValue) -> Result<String, Problem> {
    let text = given.text.trim();
    if (3..=255).contains(&text.len())
        && text
            .chars()
            .all(|c: char| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        Ok(text.to_owned())
    } else {
        let found = format!("`{text}` cannot name a table of DynamoDB");
        let wanted = "3 to 255 letters, digits, `-`, `_` or `.`";
        Err(Problem::new(&given.at, found, wanted))
    }
}

#[cfg(test)]
mod tests {
    use crate::flags::Flags;
    use crate::section::WrittenValue;
    use crate::settings;
    use std::time::Duration;

    fn problems(flag: &str, text: &str) -> Vec<String> {
        let mut flags = Flags::default();
        flags.take("plugin", WrittenValue::new("--plugin", "p.wasm"));
        assert!(flags.take(flag, WrittenValue::new(format!("--{flag}"), text)));
        let (settings, problems) = settings(&flags);
        if problems.is_empty() && flag == "schedule-interval" {
            assert_eq!(settings.program.schedule_interval, Duration::from_secs(90));
        }
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn poll_interval_is_one_second_to_ten_minutes_and_tables_are_named() {
        for (flag, text, wanted) in [
            ("schedule-interval", "90", None),
            ("schedule-interval", "0", Some("wanted 1s to 10m")),
            ("schedule-interval", "15m", Some("wanted 1s to 10m")),
            ("schedule-table", "jobs", None),
            ("schedule-table", "a b", Some("wanted 3 to 255 letters")),
            ("allow-send", "local:later", None),
            ("allow-send", "a b", Some("is not a queue name")),
            ("allow-connect", "192.0.2.7:7000", None),
            (
                "allow-connect",
                "feed:7000",
                Some("wanted an IP address and a port"),
            ),
        ] {
            let found = problems(flag, text);
            match wanted {
                None => assert_eq!(found, [""; 0], "{text}"),
                Some(wanted) => {
                    assert_eq!(found.len(), 1, "{found:?}");
                    assert!(found[0].contains(wanted), "{found:?}");
                }
            }
        }
    }
}
