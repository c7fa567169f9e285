//! Plain requests of a test's own: to the program's admin address, to a server's raw protocol.
//! Knows neither.

use std::time::Duration;
use ureq::Agent;

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status, whatever it is.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(crate::PATIENCE))
        .build()
        .into()
}

fn answer(url: &str, got: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> HttpAnswer {
    let mut response = got.unwrap_or_else(|error| panic!("{url}: {error}"));
    HttpAnswer {
        status: response.status().as_u16(),
        body: response.body_mut().read_to_string().expect("it is text"),
    }
}

/// Gets.
pub fn get(url: &str) -> HttpAnswer {
    answer(url, agent().get(url).call())
}

/// Gets with these headers.
pub fn get_with(url: &str, headers: &[(&str, &str)]) -> HttpAnswer {
    let add = |request: ureq::RequestBuilder<_>, (name, value): &(&str, &str)| {
        request.header(*name, *value)
    };
    let request = headers.iter().fold(agent().get(url), add);
    answer(url, request.call())
}

/// Gets bytes with these headers, of an answer that is a success.
pub fn bytes(url: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let add = |request: ureq::RequestBuilder<_>, (name, value): &(&str, &str)| {
        request.header(*name, *value)
    };
    let request = headers.iter().fold(agent().get(url), add);
    let mut response = request
        .call()
        .unwrap_or_else(|error| panic!("{url}: {error}"));
    assert_eq!(response.status(), 200, "{url}");
    response.body_mut().read_to_vec().expect("it is whole")
}

type Request = ureq::RequestBuilder<ureq::typestate::WithBody>;

fn with(request: Request, headers: &[(&str, &str)]) -> Request {
    let add = |request: Request, (name, value): &(&str, &str)| request.header(*name, *value);
    headers.iter().fold(request, add)
}

/// Posts a text with these headers.
pub fn post(url: &str, headers: &[(&str, &str)], body: &str) -> HttpAnswer {
    answer(url, with(agent().post(url), headers).send(body))
}

/// Puts bytes with these headers.
pub fn put(url: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpAnswer {
    answer(url, with(agent().put(url), headers).send(body))
}

/// Posts nothing with these headers; where the answer says that it continues.
pub fn location(url: &str, headers: &[(&str, &str)]) -> String {
    let got = with(agent().post(url), headers).send_empty();
    let response = got.unwrap_or_else(|error| panic!("{url}: {error}"));
    let place = response.headers().get("location");
    let place = place.unwrap_or_else(|| panic!("{url}: {}", response.status()));
    place.to_str().expect("it is text").to_owned()
}

/// Gets again and again until the status is this; for what no line tells.
pub fn wait_for_status(url: &str, status: u16) -> HttpAnswer {
    let deadline = std::time::Instant::now() + crate::PATIENCE;
    loop {
        let got = get(url);
        if got.status == status {
            return got;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{url} answers {got:?} and not {status}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
