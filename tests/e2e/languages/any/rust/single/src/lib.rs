//! Handles one message by the verb that its body names, with wit-bindgen and without the SDK.

use dispatcher::plugin::http::{self, HttpError, Request};
use dispatcher::plugin::types::{Body, Failure, Message, Retry};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{ErrorCode, Fields, OutgoingRequest, Scheme};

wit_bindgen::generate!({
    path: "../../../../../../wit",
    world: "http-handler",
});

struct SingleHandler;

export!(SingleHandler);

impl exports::dispatcher::plugin::handler::Guest for SingleHandler {
    fn handle(message: Message) -> Result<(), Failure> {
        let Body::Text(body) = message.body else {
            return Err(Failure::Reject("not text".into()));
        };
        let (verb, url) = body.split_once(' ').unwrap_or((&body, ""));
        match verb {
            "done" => {
                println!("handled done");
                Ok(())
            }
            "later" => Err(Failure::Retry(Retry {
                after: Some(5000),
                reason: Some("not yet".into()),
            })),
            "http" => judge(get_by_contract(url).map_err(|error| error.to_string())),
            "wasi" => judge(get_by_wasi(url).map_err(|error| error.to_string())),
            _ => Err(Failure::Reject("not wanted".into())),
        }
    }
}

fn judge(status: Result<u16, String>) -> Result<(), Failure> {
    match status {
        Ok(200) => Ok(()),
        Ok(status) => Err(Failure::Reject(format!("status {status}"))),
        Err(why) => Err(Failure::Reject(why)),
    }
}

fn get_by_contract(url: &str) -> Result<u16, HttpError> {
    let response = http::send(&Request {
        method: "GET".into(),
        url: url.into(),
        headers: vec![],
        body: vec![],
        timeout: None,
        max_body: None,
        truncate: false,
    })?;
    Ok(response.status)
}

fn get_by_wasi(url: &str) -> Result<u16, ErrorCode> {
    let (scheme, rest) = url
        .split_once("://")
        .ok_or(ErrorCode::HttpRequestUriInvalid)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let scheme = match scheme {
        "https" => Scheme::Https,
        _ => Scheme::Http,
    };
    let invalid = |()| ErrorCode::HttpRequestUriInvalid;
    let request = OutgoingRequest::new(Fields::new());
    request.set_scheme(Some(&scheme)).map_err(invalid)?;
    request.set_authority(Some(authority)).map_err(invalid)?;
    request
        .set_path_with_query(Some(&format!("/{path}")))
        .map_err(invalid)?;
    let pending = outgoing_handler::handle(request, None)?;
    pending.subscribe().block();
    let response = pending
        .get()
        .expect("it is ready")
        .expect("it is taken once")?;
    Ok(response.status())
}
