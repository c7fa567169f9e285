//! Classifies errors of the server and the network.

use dispatcher_core::error_kind::{CallError, ErrorKind};
use redis::{ErrorKind as ServerError, RedisError, ServerErrorKind as Server};

/// Returns the kind of an error, which says whether a retry may help.
pub fn kind(error: &RedisError) -> ErrorKind {
    match error.kind() {
        // After a partial answer it is unknown what was done.
        ServerError::Io | ServerError::Parse => ErrorKind::Unreachable,
        // A replica may become a master, and a server that loads its data will have loaded it. The
        // address may name another server by then.
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

/// Whether the connection is unusable and a new one may work.
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

/// Whether the server may have carried out the call without reporting it.
pub(crate) fn is_doubtful(error: &CallError) -> bool {
    error.kind == ErrorKind::Unreachable
}

/// Returns the error of a failed call, in one line.
pub fn failed(place: &str, error: &RedisError) -> CallError {
    let kind = kind(error);
    let text = error.to_string();
    let words = text.lines().next().unwrap_or_default();
    let hint = match error.kind() {
        ServerError::RESP3NotSupported => "; wanted Redis 7.0 or later",
        // Earlier versions do not know the first line of these scripts.
        _ if words.contains("compiling script") => "; wanted Redis 7.0 or later",
        ServerError::Server(Server::CrossSlot) => "; in a cluster all keys of a call share a slot",
        _ => "",
    };
    CallError {
        kind,
        message: named(place, &format!("{words}{hint}")),
    }
}

/// Returns a message that names the server it is about.
pub fn named(place: &str, what: &str) -> String {
    format!("Redis at {place}: {what}")
}

/// Returns the error for an answer that none of the scripts gives.
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

    fn of(kind: ServerError) -> RedisError {
        RedisError::from((kind, "words"))
    }

    #[test]
    fn errors_are_classified_as_transient_or_not() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(kind(&refused.into()), ErrorKind::Unreachable);
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
        let answer = (ServerError::Server(Server::ResponseError), "ERR", says);
        let old = failed("127.0.0.1:1", &answer.into()).message;
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
