//! Formats errors for the log. Pure.

/// Formats an error with its sources, which name the cause.
pub fn with_sources(error: &dyn std::error::Error) -> String {
    let below = std::iter::successors(error.source(), |error| error.source());
    below.fold(error.to_string(), |text, error| format!("{text}: {error}"))
}
