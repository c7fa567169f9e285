//! Classifies failures of requests by the phase in which they failed, with the error codes of
//! `wasi:http`. Pure.

use dispatcher_core::files;
use std::error::Error as Cause;
use std::io;
use wasmtime_wasi_http::Error;

/// The host has no address that may be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its addresses are not granted")]
pub(super) struct ProhibitedHost;

/// The system has no certificates by which to authenticate servers.
#[derive(Debug, thiserror::Error)]
#[error("no HTTPS: this machine has no certificate authorities: {0}")]
pub(super) struct NoCertificates(pub(super) String);

/// The maximum number of connections is open.
#[derive(Debug, thiserror::Error)]
#[error("too many connections")]
pub(super) struct UsedUp;

/// The system knows no address of the host, or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("dns error: {0}")]
pub(super) struct NoAddress(pub(super) io::Error);

/// The failure of a request without a response, by the phase in which it failed. The error code
/// alone is not enough: a connection can be reset, or time out, in either phase.
#[derive(Debug)]
pub(super) enum SendFailure {
    /// The request was not sent: it was refused, or no connection was made.
    NotSent {
        /// An error code that tells guests of `wasi:http` so.
        code: Error,
        /// The cause in words; empty if the code says everything.
        words: String,
        /// Whether this process lacks a resource that a connection needs.
        is_shortage: bool,
    },
    /// The connection existed, so the server may have received the request.
    MayBeSent(Error),
}

impl SendFailure {
    /// Returns the failure of a request that the host refuses.
    pub(super) const fn refused(code: Error) -> Self {
        Self::NotSent {
            code,
            words: String::new(),
            is_shortage: false,
        }
    }

    /// Returns the error code of `wasi:http`.
    pub(super) fn code(&self) -> &Error {
        match self {
            Self::NotSent { code, .. } | Self::MayBeSent(code) => code,
        }
    }
}

impl From<SendFailure> for Error {
    fn from(failure: SendFailure) -> Self {
        match failure {
            SendFailure::NotSent { code, .. } | SendFailure::MayBeSent(code) => code,
        }
    }
}

/// Classifies a failure to connect: name, address or TLS. In all cases nothing was sent.
pub(super) fn not_connected(error: &(dyn Cause + 'static)) -> SendFailure {
    let texts: Vec<String> = causes(error).map(ToString::to_string).collect();
    let words = texts.join(": ");
    let code = causes(error).find_map(connect_code);
    SendFailure::NotSent {
        // This crate does not depend on the TLS library, so only the text tells its errors apart.
        code: code.unwrap_or_else(|| {
            if words.contains("certificate") {
                Error::TlsCertificateError
            } else if words.contains("handshake") || causes(error).any(is_invalid_data) {
                Error::TlsProtocolError
            } else {
                Error::DestinationUnavailable
            }
        }),
        words,
        is_shortage: causes(error)
            .filter_map(|error| error.downcast_ref::<io::Error>())
            .any(files::is_shortage),
    }
}

/// Classifies a failure on an open connection. None of these codes claims that nothing was sent.
pub(super) fn on_connection(error: &(dyn Cause + 'static)) -> Error {
    let code = causes(error).find_map(connection_code);
    code.unwrap_or_else(|| {
        let texts: Vec<_> = causes(error).map(ToString::to_string).collect();
        Error::InternalError(Some(texts.join(": ")))
    })
}

/// Returns the error and its causes, outermost first, including those that an `io::Error` wraps.
fn causes<'a>(
    error: &'a (dyn Cause + 'static),
) -> impl Iterator<Item = &'a (dyn Cause + 'static)> + 'a {
    std::iter::successors(Some(error), |error| cause_of(*error))
}

fn cause_of<'a>(error: &'a (dyn Cause + 'static)) -> Option<&'a (dyn Cause + 'static)> {
    let wrapped = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match wrapped {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// Whether the received data was invalid. Before a request, only TLS receives data.
fn is_invalid_data(error: &(dyn Cause + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

/// Returns the code for one cause of a failed connect, by the type of the cause.
fn connect_code(error: &(dyn Cause + 'static)) -> Option<Error> {
    if error.is::<ProhibitedHost>() {
        return Some(Error::DestinationIpProhibited);
    }
    if error.is::<UsedUp>() {
        return Some(Error::ConnectionLimitReached);
    }
    if error.is::<NoCertificates>() {
        return Some(Error::TlsAlertReceived {
            alert_id: None,
            alert_message: Some(error.to_string()),
        });
    }
    if error.is::<NoAddress>() {
        return Some(Error::DnsError {
            rcode: Some("address not available".to_owned()),
            info_code: None,
        });
    }
    let error = error.downcast_ref::<io::Error>()?;
    if files::is_shortage(error) {
        return Some(Error::ConnectionLimitReached);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(Error::ConnectionRefused),
        io::ErrorKind::TimedOut => Some(Error::ConnectionTimeout),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some(Error::DestinationIpUnroutable)
        }
        _ => None,
    }
}

/// Returns the code for one cause of a failure on a connection, by the type of the cause.
fn connection_code(error: &(dyn Cause + 'static)) -> Option<Error> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return match error.kind() {
            // The system has stopped waiting for the other side.
            io::ErrorKind::TimedOut => Some(Error::ConnectionReadTimeout),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Some(Error::ConnectionTerminated),
            _ => None,
        };
    }
    let error = error.downcast_ref::<hyper::Error>()?;
    if error.is_parse_too_large() {
        return Some(Error::HttpResponseHeaderSectionSize(None));
    }
    if error.is_parse() {
        return Some(Error::HttpProtocolError);
    }
    if error.is_incomplete_message() {
        return Some(Error::HttpResponseIncomplete);
    }
    if error.is_canceled() || error.is_closed() {
        return Some(Error::ConnectionTerminated);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Outer(#[source] Box<dyn Cause + Send + Sync>);

    fn not_sent(cause: impl Into<Box<dyn Cause + Send + Sync>>) -> (String, String) {
        let SendFailure::NotSent { code, words, .. } = not_connected(&Outer(cause.into())) else {
            panic!("nothing was sent");
        };
        (format!("{code:?}"), words)
    }

    fn maybe_sent(cause: impl Into<Box<dyn Cause + Send + Sync>>) -> String {
        format!("{:?}", on_connection(&Outer(cause.into())))
    }

    #[test]
    fn nested_causes_of_a_failed_connect_are_found() {
        for cause in [
            Box::new(ProhibitedHost) as Box<dyn Cause + Send + Sync>,
            Box::new(Outer(Box::new(ProhibitedHost))),
            Box::new(io::Error::other(ProhibitedHost)),
        ] {
            assert_eq!(not_sent(cause).0, "DestinationIpProhibited");
        }
        let bad = io::Error::other("invalid peer certificate: UnknownIssuer");
        assert_eq!(not_sent(bad).0, "TlsCertificateError");
        let odd = io::Error::new(io::ErrorKind::InvalidData, "received corrupt message");
        assert_eq!(not_sent(odd).0, "TlsProtocolError");
        let unknown = NoAddress(io::Error::from(io::ErrorKind::TimedOut));
        assert!(not_sent(unknown).0.starts_with("DnsError"));
    }

    /// Every number that `connect`, `socket` or a handshake can fail with, also those that no list
    /// has: the codes say what `wasi:http` defines for the time before a request is sent.
    #[test]
    fn every_error_of_a_failed_connect_has_a_code_of_a_request_that_was_not_sent() {
        let before = [
            "ConnectionLimitReached",
            "ConnectionRefused",
            "ConnectionTimeout",
            "DestinationIpUnroutable",
            "DestinationUnavailable",
        ];
        for number in 1..134 {
            let (code, words) = not_sent(io::Error::from_raw_os_error(number));
            assert!(before.contains(&code.as_str()), "{number}: {code}");
            assert!(words.contains(&format!("os error {number})")), "{words}");
        }
        assert_eq!(not_sent("whatever").0, "DestinationUnavailable");
        let reset = not_sent(io::Error::from(io::ErrorKind::UnexpectedEof));
        assert_eq!(reset.0, "DestinationUnavailable");
    }

    #[test]
    fn same_errors_on_a_connection_never_claim_that_nothing_was_sent() {
        for number in 1..134 {
            let code = maybe_sent(io::Error::from_raw_os_error(number));
            assert!(
                code == "ConnectionTerminated"
                    || code == "ConnectionReadTimeout"
                    || code.starts_with("InternalError"),
                "{number}: {code}"
            );
        }
        let late = maybe_sent(io::Error::from(io::ErrorKind::TimedOut));
        assert_eq!(late, "ConnectionReadTimeout");
        for text in ["received fatal alert: BadRecordMac", "bad certificate"] {
            let code = maybe_sent(io::Error::other(text));
            assert!(
                code.starts_with("InternalError") && code.contains(text),
                "{code}"
            );
        }
    }
}
