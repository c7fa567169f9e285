//! Classifies errors of the server and the network.

use dispatcher_core::error_kind::{CallError, ErrorKind};
use redis::{ErrorKind as ServerError, RedisError, ServerErrorKind as Server};

/// What may be done about a failed call.
pub fn kind(error: &RedisError) -> ErrorKind {
    match error.kind() {
        // After half an answer nobody knows what was done.
        ServerError::Io | ServerError::Parse => ErrorKind::Unreachable,
        // A replica, or a server that loads its data, will be a master or loaded some day, and what
        // the address names may be another server by then.
        ServerError::Server(
            Server::BusyLoading
            | Server::TryAgain
            | Server::ClusterDown
            | Server::MasterDown
            | Server::ReadOnly
            | Server::Moved
            | Server::Ask
            | Server::ExecAbort,
        ) => ErrorKind::Transient,
        ServerError::AuthenticationFailed | ServerError::Server(Server::NoPerm) => {
            ErrorKind::AccessDenied
        }
        _ => match error.code() {
            Some("BUSY" | "OOM" | "MISCONF" | "NOREPLICAS" | "UNKILLABLE" | "UNBLOCKED") => {
                ErrorKind::Transient
            }
            Some("NOAUTH" | "WRONGPASS" | "DENIED") => ErrorKind::AccessDenied,
            _ => ErrorKind::Invalid,
        },
    }
}

/// Whether the connection is of no use any more, and a new one may be.
pub fn is_over(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ServerError::Io
            | ServerError::Parse
            | ServerError::Server(
                Server::ReadOnly
                    | Server::MasterDown
                    | Server::ExecAbort
                    | Server::Moved
                    | Server::Ask
            )
    )
}

/// Whether the server may have done what it was asked and could not say so.
pub(crate) fn is_doubtful(error: &CallError) -> bool {
    error.kind == ErrorKind::Unreachable
}

/// A failed call, in one line.
pub fn failed(place: &str, error: &RedisError) -> CallError {
    let kind = kind(error);
    let words = error.to_string();
    let words = words.lines().next().unwrap_or_default();
    let hint = match error.kind() {
        ServerError::RESP3NotSupported => "; wanted Redis 7.0 or later",
        // Earlier ones do not know what our scripts begin with.
        _ if words.contains("compiling script") => "; wanted Redis 7.0 or later",
        ServerError::Server(Server::CrossSlot) => "; in a cluster all keys of a call share a slot",
        _ => "",
    };
    CallError {
        kind,
        message: named(place, &format!("{words}{hint}")),
    }
}

/// What is wrong, with the server that it is about.
pub fn named(place: &str, what: &str) -> String {
    format!("Redis at {place}: {what}")
}

/// An answer that none of our scripts gives.
pub(crate) fn unexpected_answer(place: &str, what: &str) -> CallError {
    CallError {
        kind: ErrorKind::Invalid,
        message: named(place, &format!("{what} returned an unexpected answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::{ConnectionInfo, IntoConnectionInfo};

    #[test]
    fn errors_are_classified_as_transient_or_not() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(kind(&refused.into()), ErrorKind::Unreachable);
        let of = |kind| RedisError::from((kind, "words"));
        for (error, wanted) in [
            (ServerError::Server(Server::ReadOnly), ErrorKind::Transient),
            (
                ServerError::Server(Server::BusyLoading),
                ErrorKind::Transient,
            ),
            (ServerError::Server(Server::NoPerm), ErrorKind::AccessDenied),
            (ServerError::AuthenticationFailed, ErrorKind::AccessDenied),
            (ServerError::Server(Server::Moved), ErrorKind::Transient),
            (ServerError::Parse, ErrorKind::Unreachable),
            (ServerError::InvalidClientConfig, ErrorKind::Invalid),
        ] {
            assert_eq!(kind(&of(error)), wanted, "{error:?}");
        }
        for over in [Server::ReadOnly, Server::Moved, Server::Ask] {
            assert!(is_over(&of(ServerError::Server(over))), "{over:?}");
        }
        assert!(!is_over(&of(ServerError::Server(Server::BusyLoading))));
        let says = "Error compiling script (new function)".to_owned();
        let old = (ServerError::Server(Server::ResponseError), "ERR", says);
        let old = failed("127.0.0.1:1", &old.into()).message;
        assert!(old.ends_with("; wanted Redis 7.0 or later"), "{old}");
        let line = failed("127.0.0.1:1", &of(ServerError::Server(Server::Moved))).message;
        assert!(
            line.contains("127.0.0.1:1") && !line.contains('\n'),
            "{line}"
        );
    }

    #[test]
    fn redirect_address_is_parsed() {
        let info: Result<ConnectionInfo, _> = "redis://127.0.0.1:6379/3".into_connection_info();
        assert!(info.is_ok());
    }
}
