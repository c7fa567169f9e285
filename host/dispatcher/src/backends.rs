//! The backends of this program: one line for each, the only place that names their crates.
//! Everything else uses the port `dispatcher_core::backend`.

use dispatcher_core::backend::Backend;
use std::sync::OnceLock;

/// Lists backends: the name of each, which is its Cargo feature too, and where it is.
macro_rules! backends {
    ($($name:tt => $backend:expr,)*) => {
        /// The names of all, whether this binary was built with them or not.
        const NAMES: &[&str] = &[$($name),*];

        /// Those that this binary was built with.
        const BUILT: &[&dyn Backend] = &[$(#[cfg(feature = $name)] &$backend),*];
    };
}

// Names without a backend are of the first.
backends! {
    "sqs" => dispatcher_sqs::SqsBackend,
    "local" => dispatcher_local::LocalBackend,
    "redis" => dispatcher_redis::RedisBackend,
    "dynamodb" => dispatcher_dynamodb::DynamoDbBackend,
}

static ALL: OnceLock<Vec<&'static dyn Backend>> = OnceLock::new();

/// Adds backends that are not in the table, for a program around this one. Has no effect once a
/// backend was asked for.
pub(crate) fn add(more: &[&'static dyn Backend]) {
    ALL.get_or_init(|| [BUILT, more].concat());
}

/// All that this binary has, in the order of the table.
pub fn all() -> &'static [&'static dyn Backend] {
    ALL.get_or_init(|| BUILT.to_vec())
}

/// The one of this name. An error says what is there instead.
pub fn find(name: &str) -> Result<&'static dyn Backend, Absent> {
    let found = all().iter().find(|backend| backend.name() == name);
    found.copied().ok_or_else(|| Absent {
        name: name.to_owned(),
        is_left_out: NAMES.contains(&name),
    })
}

/// The name of the backend whose queues are written without it.
pub fn unnamed() -> &'static str {
    NAMES[0]
}

/// The one whose queues are files of this program.
pub fn embedded() -> Option<&'static dyn Backend> {
    all().iter().copied().find(|backend| backend.is_embedded())
}

/// Those of which something is true, by their names: `redis`, `local and redis`.
pub fn those(can: impl Fn(&dyn Backend) -> bool) -> Vec<&'static str> {
    let able = all().iter().filter(|backend| can(**backend));
    able.map(|backend| backend.name()).collect()
}

/// Whether a word before a colon is the name of a backend, of this binary or another.
pub(crate) fn is_name(word: &str) -> bool {
    NAMES.contains(&word) || find(word).is_ok()
}

/// A backend that this binary does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    name: String,
    is_left_out: bool,
}

impl Absent {
    /// Whether the program knows the backend, and this binary was built without it.
    pub(crate) fn is_left_out(&self) -> bool {
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
        let absent = |is_left_out| Absent {
            name: "redis".to_owned(),
            is_left_out,
        };
        assert!(absent(true).to_string().contains("feature `redis`"));
        assert!(absent(false).to_string().contains("this version"));
        assert!(!find("kafka").expect_err("there is none").is_left_out);
    }
}
