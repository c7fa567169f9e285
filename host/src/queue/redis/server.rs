//! What a server says of itself. Pure.

/// The policy by which a server throws keys away when its memory ends; `None` where it does not.
/// `info` is its answer to `INFO memory`.
pub fn evicts(info: &str) -> Option<String> {
    let of = |name: &str| {
        let mut lines = info.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(value.trim())
    };
    let limited = of("maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = of("maxmemory_policy").filter(|policy| *policy != "noeviction");
    policy.filter(|_| limited).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_with_a_limit_and_a_policy_throws_away() {
        let info = |limit: u32, policy: &str| {
            format!(
                "# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_human:1M\r\nmaxmemory_policy:{policy}\r\n"
            )
        };
        let lru = "allkeys-lru";
        assert_eq!(evicts(&info(1, lru)).as_deref(), Some(lru));
        assert_eq!(evicts(&info(0, lru)), None);
        assert_eq!(evicts(&info(1, "noeviction")), None);
        assert_eq!(evicts(""), None);
    }
}
