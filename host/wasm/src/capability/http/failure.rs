//! Maps failures of requests to the error codes of `wasi:http`. Pure.

use std::error::Error as Cause;
use std::io;
use wasmtime_wasi_http::Error;

/// All addresses of the host are such as may not be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its addresses are not granted")]
pub(super) struct Prohibited;

/// The system has no certificates to tell by who answers.
#[derive(Debug, thiserror::Error)]
#[error("no HTTPS: this machine has no certificate authorities: {0}")]
pub(super) struct NoCertificates(pub(super) String);

/// The maximum of connections is open.
#[derive(Debug, thiserror::Error)]
#[error("too many connections")]
pub(super) struct UsedUp;

/// The system knows no address of the host, or did not say.
#[derive(Debug, thiserror::Error)]
#[error("dns error: {0}")]
pub(super) struct NoAddress(pub(super) io::Error);

/// Maps an error of the client, with its causes from the outside in, to the guest's error code.
pub(super) fn failed(error: &(dyn Cause + 'static)) -> Error {
    let mut texts = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(told) = error_by_type(error) {
            return told;
        }
        texts.push(error.to_string());
        next = error.source();
    }
    let text = texts.join(": ");
    // The library for TLS is not ours to name here, and its errors are texts to everybody else.
    if text.contains("certificate") {
        return Error::TlsCertificateError;
    }
    if text.contains("handshake") || text.contains("InvalidMessage") || text.contains("alert") {
        return Error::TlsProtocolError;
    }
    Error::InternalError(Some(text))
}

/// What one link of the chain says by its type.
fn error_by_type(error: &(dyn Cause + 'static)) -> Option<Error> {
    if error.is::<Prohibited>() {
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
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return match error.kind() {
            io::ErrorKind::ConnectionRefused => Some(Error::ConnectionRefused),
            io::ErrorKind::TimedOut => Some(Error::ConnectionTimeout),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                Some(Error::DestinationIpUnroutable)
            }
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Some(Error::ConnectionTerminated),
            _ => error.get_ref().and_then(|inner| {
                let inner: &(dyn Cause + 'static) = inner;
                error_by_type(inner)
            }),
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

    fn error_name(cause: impl Into<Box<dyn Cause + Send + Sync>>) -> String {
        format!("{:?}", failed(&Outer(cause.into())))
    }

    #[test]
    fn nested_error_causes_are_found() {
        assert_eq!(error_name(Prohibited), "DestinationIpProhibited");
        assert_eq!(
            error_name(Outer(Box::new(Prohibited))),
            "DestinationIpProhibited"
        );
        assert_eq!(
            error_name(io::Error::other(Prohibited)),
            "DestinationIpProhibited"
        );
        for (kind, is) in [
            (io::ErrorKind::ConnectionRefused, "ConnectionRefused"),
            (io::ErrorKind::ConnectionReset, "ConnectionTerminated"),
            (io::ErrorKind::TimedOut, "ConnectionTimeout"),
            (io::ErrorKind::NetworkUnreachable, "DestinationIpUnroutable"),
        ] {
            assert_eq!(error_name(io::Error::from(kind)), is);
        }
        let bad = io::Error::other("invalid peer certificate: UnknownIssuer");
        assert_eq!(error_name(bad), "TlsCertificateError");
        let unknown = NoAddress(io::Error::from(io::ErrorKind::TimedOut));
        assert!(error_name(unknown).starts_with("DnsError"));
        assert_eq!(
            error_name("whatever"),
            "InternalError(Some(\"client error (Connect): whatever\"))"
        );
    }
}
