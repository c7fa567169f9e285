//! Converts requests to the contract's types, and responses from them.

pub(super) use crate::bindings::imports::dispatcher::plugin::{http, http_async};

use super::{Error, Request, Response};
use crate::bindings::imports::dispatcher::plugin::http_types as wire;

pub(super) fn request(request: &Request) -> wire::Request {
    let timeout = request.timeout.map(|timeout| timeout.as_millis());
    wire::Request {
        method: request.method.clone(),
        url: request.url.clone(),
        headers: request.headers.clone(),
        body: request.body.clone(),
        timeout: timeout.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
        max_body: Some(request.limit as u64),
        truncate: request.truncate,
    }
}

pub(super) fn response(answer: Result<wire::Response, wire::HttpError>) -> Result<Response, Error> {
    match answer {
        Ok(response) => Ok(Response {
            status: response.status,
            headers: response.headers,
            body: response.body,
        }),
        Err(error) => Err(match error {
            wire::HttpError::Forbidden(why) => Error::Refused(why),
            wire::HttpError::Invalid(why) => Error::Invalid(why),
            wire::HttpError::Busy(why) => Error::Busy(why),
            wire::HttpError::Unreachable(why) => Error::Unreachable(why),
            wire::HttpError::TimedOut(why) => Error::TimedOut(why),
            wire::HttpError::Interrupted(why) => Error::Broken(why),
            wire::HttpError::TooLarge(bytes) => {
                Error::TooLarge(usize::try_from(bytes).unwrap_or(usize::MAX))
            }
        }),
    }
}
