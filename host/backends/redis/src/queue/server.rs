//! The settings that a server reports. Pure.

use std::collections::HashMap;

/// Whether a server evicts keys when its memory is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eviction {
    /// It refuses new messages instead, or has no limit.
    Never,
    /// It evicts keys by this policy.
    By(String),
    /// It does not report its policy, for this reason.
    Unknown(String),
}

/// Reads an answer to `INFO memory`.
pub(super) fn of_info(info: &str) -> Eviction {
    let [limit, policy] = ["maxmemory", "maxmemory_policy"].map(|name| {
        let mut lines = info.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(value.trim())
    });
    of_policy("INFO", limit, policy)
}

/// Reads an answer to `CONFIG GET maxmemory maxmemory-policy`.
pub(super) fn of_settings(settings: &HashMap<String, String>) -> Eviction {
    let [limit, policy] =
        ["maxmemory", "maxmemory-policy"].map(|name| settings.get(name).map(String::as_str));
    of_policy("CONFIG", limit, policy)
}

fn of_policy(command: &str, limit: Option<&str>, policy: Option<&str>) -> Eviction {
    match (limit, policy) {
        (_, Some("noeviction")) | (Some("0"), _) => Eviction::Never,
        (_, Some(policy)) => Eviction::By(policy.to_owned()),
        (_, None) => Eviction::Unknown(format!("{command} does not show maxmemory-policy")),
    }
}

/// Returns the worst of several servers.
pub(super) fn worst(of: impl IntoIterator<Item = Eviction>) -> Eviction {
    let mut worst = Eviction::Never;
    for one in of {
        match (&worst, one) {
            (Eviction::By(_), _) | (_, Eviction::Never) => {}
            (Eviction::Unknown(_), Eviction::Unknown(_)) => {}
            (_, one) => worst = one,
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(policy: &str) -> Eviction {
        Eviction::By(policy.to_owned())
    }

    #[test]
    fn server_evicts_only_with_a_limit_and_a_policy() {
        for (limit, policy, wanted) in [
            (1, "allkeys-lru", by("allkeys-lru")),
            (0, "allkeys-lru", Eviction::Never),
            (1, "noeviction", Eviction::Never),
        ] {
            let info = format!(
                "# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_human:1M\r\nmaxmemory_policy:{policy}\r\n"
            );
            assert_eq!(of_info(&info), wanted);
        }
        let silent = of_info("# Memory\r\nused_memory:1\r\n");
        assert!(matches!(silent, Eviction::Unknown(_)), "{silent:?}");
        let settings = [("maxmemory", "7"), ("maxmemory-policy", "volatile-ttl")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(of_settings(&HashMap::from(settings)), by("volatile-ttl"));
        let many = [Eviction::Never, silent.clone(), by("a"), Eviction::Never];
        assert_eq!(worst(many), by("a"));
        assert_eq!(worst([silent.clone(), Eviction::Never]), silent);
        assert_eq!(worst([]), Eviction::Never);
    }
}
