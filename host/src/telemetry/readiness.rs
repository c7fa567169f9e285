//! What keeps the program from being ready, by name.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Shared by `Arc`.
#[derive(Debug, Default)]
pub struct Readiness(Mutex<BTreeMap<String, String>>);

impl Readiness {
    /// Not ready, and why.
    pub fn set(&self, name: &str, reason: &str) {
        let mut red = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        red.insert(name.to_owned(), reason.to_owned());
    }

    /// That is over.
    pub fn clear(&self, name: &str) {
        let mut red = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        red.remove(name);
    }
}
