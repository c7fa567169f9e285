//! How many files the process may hold open at once; a connection is one. Knows nothing else.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files as far as the process may by itself: the soft limit up to the
/// hard one. Answers the limit that it had and the one that it has now; `u64::MAX` is none. Where
/// the system refuses, the two are equal: fewer connections are no reason not to start.
pub fn raise_limit() -> (u64, u64) {
    let had = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: had.maximum,
        maximum: had.maximum,
    };
    let raised = setrlimit(Resource::Nofile, wanted).is_ok();
    let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let now = if raised { had.maximum } else { had.current };
    (number(had.current), number(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_never_falls() {
        let (had, now) = raise_limit();
        assert!(now >= had);
        assert_eq!(raise_limit(), (now, now));
    }
}
