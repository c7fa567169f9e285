//! The backends of this program, one line for each. This is the only place that names their crates.
//! Everything else uses the port `dispatcher_core::backend`.

use dispatcher_core::backend::Backend;
use std::sync::OnceLock;

/// Lists backends: the name of each, which is also its Cargo feature, and its path.
macro_rules! backends {
    ($($name:tt => $backend:expr,)*) => {
        /// The names of all backends, including those that this binary was built without.
        const NAMES: &[&str] = &[$($name),*];

        /// The backends that this binary was built with.
        const BUILT: &[&dyn Backend] = &[$(#[cfg(feature = $name)] &$backend),*];
    };
}

// Queue names without a prefix belong to the first backend.
backends! {
    "sqs" => dispatcher_sqs::SqsBackend,
    "local" => dispatcher_local::LocalBackend,
    "redis" => dispatcher_redis::RedisBackend,
    "postgres" => dispatcher_postgres::PostgresBackend,
    "dynamodb" => dispatcher_dynamodb::DynamoDbBackend,
}

static ALL: OnceLock<Vec<&'static dyn Backend>> = OnceLock::new();

/// Adds backends that are not in the table, for a program that embeds this one. Has no effect after
/// the first use of a backend.
pub fn add(more: &[&'static dyn Backend]) {
    ALL.get_or_init(|| [BUILT, more].concat());
}

/// Returns all backends of this binary, in the order of the table.
pub fn all() -> &'static [&'static dyn Backend] {
    ALL.get_or_init(|| BUILT.to_vec())
}

/// Returns the backend with this name. The error lists the available backends.
pub fn find(name: &str) -> Result<&'static dyn Backend, Absent> {
    let found = all().iter().find(|backend| backend.name() == name);
    found.copied().ok_or_else(|| Absent {
        name: name.to_owned(),
        is_left_out: NAMES.contains(&name),
    })
}

/// Returns the name of the backend whose queues have no prefix.
pub fn unnamed() -> &'static str {
    NAMES[0]
}

/// Returns the backend whose queues are files of this program.
pub fn embedded() -> Option<&'static dyn Backend> {
    all()
        .iter()
        .copied()
        .find(|backend| backend.facts().is_embedded)
}

/// Returns the names of the backends that satisfy a condition.
pub fn those(can: impl Fn(&dyn Backend) -> bool) -> Vec<&'static str> {
    let able = all().iter().filter(|backend| can(**backend));
    able.map(|backend| backend.name()).collect()
}

/// Whether a prefix before a colon is the name of a backend, even one that this binary was built
/// without.
pub fn is_name(word: &str) -> bool {
    NAMES.contains(&word) || find(word).is_ok()
}

/// A backend that this binary does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    name: String,
    is_left_out: bool,
}

impl Absent {
    /// Whether the backend exists, but this binary was built without it.
    pub fn is_left_out(&self) -> bool {
        self.is_left_out
    }
}

impl std::fmt::Display for Absent {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.name;
        if self.is_left_out {
            return write!(
                out,
                "the backend `{name}`, which is not compiled into this binary; wanted a binary with the \
                 Cargo feature `{name}`, or a queue of {}",
                those(|_| true).join(", ")
            );
        }
        write!(
            out,
            "the backend `{name}`, which this version does not have"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_names_match_the_table() {
        for backend in BUILT {
            assert!(NAMES.contains(&backend.name()), "{}", backend.name());
        }
        assert_eq!(find(unnamed()).map(|backend| backend.name()), Ok("sqs"));
    }

    #[test]
    fn disabled_backend_differs_from_an_unknown_one() {
        for (is_left_out, says) in [(true, "feature `redis`"), (false, "this version")] {
            let name = "redis".to_owned();
            let absent = Absent { name, is_left_out }.to_string();
            assert!(absent.contains(says), "{absent}");
        }
        assert!(!find("kafka").expect_err("there is none").is_left_out);
    }
}
