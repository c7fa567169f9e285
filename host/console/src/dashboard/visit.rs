//! One request for a page: the caller, the parameters, and the state that it may see.

use super::links::Links;
use super::looks::{SeenView, View};
use super::sampler::Sampler;
use super::scene::Scene;
use super::view;
use super::view::Section;
use super::{DEPTH_PATIENCE, Dashboard};
use crate::ServedState;
use crate::access::Caller;
use crate::api;
use crate::audit::ActionRequest;
use crate::session::cookies;
use axum::extract::FromRequestParts;
use axum::http::header::{self, COOKIE, HeaderMap, REFERER};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use dispatcher_http::ServedConnection;
use dispatcher_operate::operations::Operations;
use dispatcher_operate::problem::{CallProblem, StatusCode};
use maud::Markup;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The cookie with the result of an action, which the next page shows once.
const NOTICE: &str = "dispatcher-notice";

/// The headers of pages: a page may only load, run and call what this address serves, and may not
/// be framed. A browser sends the page's address as the referrer to this address alone, which
/// proves that no other site acts.
const HEADERS: [(&str, &str); 3] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src \
         'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "same-origin"),
    ("content-type", "text/html; charset=utf-8"),
];

/// A request.
pub(super) struct Visit {
    pub state: ServedState,
    pub operations: Arc<dyn Operations>,
    pub caller: Caller,
    pub asked: ActionRequest,
    pub parameters: Parameters,
    pub notice: Option<String>,
    pub connection: Option<ServedConnection>,
    /// The page that the browser comes from, if it is a page of the dashboard.
    pub from: String,
    path: String,
}

/// The parameters of a query or of a form.
#[derive(Debug, Clone, Default)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    pub(super) fn read(text: &[u8]) -> Self {
        Self(form_urlencoded::parse(text).into_owned().collect())
    }

    /// Returns a parameter, or an empty string if it is missing.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns a number, or 0 if it is missing.
    pub(super) fn number(&self, name: &str) -> usize {
        self.get(name).parse().unwrap_or_default()
    }
}

impl FromRequestParts<ServedState> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &ServedState) -> Result<Self, Response> {
        let dashboard = &state.dashboard;
        let operations = api::running(state).map_err(|problem| {
            let mut answer = wrong(&dashboard.links, &problem);
            // The program is still starting.
            answer
                .headers_mut()
                .insert("refresh", HeaderValue::from_static("1"));
            answer
        })?;
        let caller = parts.extensions.get::<Caller>().cloned();
        let query = parts.uri.query().unwrap_or_default();
        let notices = parts.headers.get_all(COOKIE).iter();
        let notice = notices
            .filter_map(|header| header.to_str().ok())
            .flat_map(|header| cookies(header, NOTICE))
            .next();
        let whole = parts.uri.path();
        let path = whole.find("/ui").map_or("/ui", |at| &whole[at..]);
        Ok(Self {
            operations,
            caller: caller.unwrap_or_default(),
            asked: parts
                .extensions
                .get::<ActionRequest>()
                .cloned()
                .unwrap_or_default(),
            parameters: Parameters::read(query.as_bytes()),
            notice: notice.and_then(decoded),
            connection: parts.extensions.get::<ServedConnection>().cloned(),
            from: from_page(&dashboard.links, &parts.headers),
            path: if query.is_empty() {
                path.to_owned()
            } else {
                format!("{path}?{query}")
            },
            state: state.clone(),
        })
    }
}

/// Returns the page that the browser comes from, if it is a page of the dashboard; the overview
/// instead of the sign-in page.
pub(super) fn from_page(links: &Links, headers: &HeaderMap) -> String {
    let page = links.own(&came_from(headers));
    if page.starts_with(&links.to("/ui/sign-in", &[])) {
        return links.to("/ui", &[]);
    }
    page
}

/// Returns the path of the page that the browser comes from.
fn came_from(headers: &HeaderMap) -> String {
    let referer = headers.get(REFERER).and_then(|value| value.to_str().ok());
    let uri: Option<Uri> = referer.and_then(|referer| referer.parse().ok());
    uri.and_then(|uri| uri.path_and_query().map(ToString::to_string))
        .unwrap_or_default()
}

impl Visit {
    pub(super) fn dashboard(&self) -> &Dashboard {
        &self.state.dashboard
    }

    pub(super) fn links(&self) -> &Links {
        &self.dashboard().links
    }

    pub(super) fn sampler(&self) -> &Sampler {
        &self.dashboard().sampler
    }

    pub(super) fn environment(&self) -> Option<&str> {
        self.dashboard().environment.as_deref()
    }

    pub(super) fn scene(&self) -> Scene<'_> {
        Scene {
            dashboard: self.dashboard(),
            operations: &*self.operations,
            metrics: &self.state.admin.metrics,
            why_not: self.why_not(),
        }
    }

    /// Returns a view for this caller.
    pub(super) fn seen(&self, view: View) -> SeenView {
        SeenView {
            view,
            why_not: self.why_not(),
        }
    }

    /// Records that a view is looked at, and waits some time for its depths.
    pub(super) async fn glance(&self, view: &View) {
        let seen = self.seen(view.clone());
        self.sampler().glance(&seen, DEPTH_PATIENCE).await;
    }

    /// Returns the address of this page.
    pub(super) fn here(&self) -> String {
        self.links().to(&self.path, &[])
    }

    /// Returns whether there may be a session to end.
    pub(super) fn can_sign_out(&self) -> bool {
        self.state.admin.access.needs_token()
    }

    /// Returns the reason why this caller may not act, or `None` if it may.
    pub(super) fn why_not(&self) -> Option<&'static str> {
        if self.caller.can_act() {
            return None;
        }
        Some(if self.state.admin.access.permits_actions() {
            "This session only permits reading. Sign in with the token of --admin-token-file to act."
        } else {
            "Actions need a token: start the program with --admin-token-file FILE."
        })
    }

    /// Answers with a page and status 200.
    pub(super) fn page(
        &self,
        section: Option<Section>,
        title: &str,
        live: Option<String>,
        content: Markup,
    ) -> Response {
        let page = view::Page {
            section,
            title,
            live,
            content,
        };
        let mut answer = html(StatusCode::OK, view::page(self, page));
        if self.notice.is_some() {
            let over = format!(
                "{NOTICE}=; Path={}; Max-Age=0; HttpOnly; SameSite=Strict",
                self.links().cookie_path()
            );
            set_cookie(&mut answer, &over);
        }
        answer
    }

    /// Answers with a page about a problem.
    pub(super) fn wrong(&self, problem: &CallProblem) -> Response {
        wrong(self.links(), problem)
    }

    /// Redirects to a page of the dashboard, which shows a notice.
    pub(super) fn go(&self, back: &str, notice: &str) -> Response {
        let mut answer = see_other(&self.links().own(back));
        let value: String = form_urlencoded::byte_serialize(notice.as_bytes()).collect();
        let cookie = format!(
            "{NOTICE}={value}; Path={}; Max-Age=30; HttpOnly; SameSite=Strict",
            self.links().cookie_path()
        );
        set_cookie(&mut answer, &cookie);
        answer
    }
}

fn decoded(value: &str) -> Option<String> {
    let text = format!("n={value}");
    let mut pairs = form_urlencoded::parse(text.as_bytes());
    let (_, notice) = pairs.next()?;
    Some(notice.into_owned()).filter(|notice| !notice.is_empty())
}

/// Redirects to another page.
pub(super) fn see_other(address: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response()
}

/// Returns whether the script of a page sent a request.
pub(super) fn is_by_script(headers: &HeaderMap) -> bool {
    headers.contains_key("hx-request")
}

/// Converts a redirect for the script of a page, which cannot see the original one.
pub(super) fn for_script(mut answer: Response) -> Response {
    if answer.status() == StatusCode::SEE_OTHER
        && let Some(address) = answer.headers_mut().remove(header::LOCATION)
    {
        answer.headers_mut().insert("hx-redirect", address);
        *answer.status_mut() = StatusCode::NO_CONTENT;
    }
    answer
}

/// Makes the script of a page go to another page.
pub(super) fn redirect_script(answer: &mut Response, address: &str) {
    if let Ok(address) = HeaderValue::from_str(address) {
        answer.headers_mut().insert("hx-redirect", address);
    }
}

/// Answers with HTML and the headers of pages.
pub(super) fn html(status: StatusCode, page: Markup) -> Response {
    let mut answer = (status, page.into_string()).into_response();
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Answers with a page about a problem.
pub(super) fn wrong(links: &Links, problem: &CallProblem) -> Response {
    let status = problem.status;
    let what = what_is_wrong(problem);
    html(status, view::problem(links, status.as_u16(), &what))
}

/// Answers the script of a page with a problem, which it shows above the form that it sent.
pub(super) fn refusal(problem: &CallProblem) -> Response {
    html(problem.status, view::refusal(&what_is_wrong(problem)))
}

fn what_is_wrong(problem: &CallProblem) -> Markup {
    let errors: Vec<String> = problem.errors.iter().map(ToString::to_string).collect();
    view::what_is_wrong(&for_people(&problem.detail), &errors)
}

/// Removes the sentences that name calls of the API.
fn for_people(detail: &str) -> String {
    let sentences = detail.split_inclusive(". ");
    let others: String = sentences
        .filter(|sentence| !sentence.contains(" /api/v1/"))
        .collect();
    let kept = others.trim_end();
    if kept.is_empty() { detail } else { kept }.to_owned()
}

/// Adds a cookie. A cookie that is not a valid header value is left out.
pub(super) fn set_cookie(answer: &mut Response, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        answer.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_as_it_was_written() {
        let notice = "Paused “a”; 1 + 1 = 2";
        let value: String = form_urlencoded::byte_serialize(notice.as_bytes()).collect();
        assert_eq!(decoded(&value).as_deref(), Some(notice));
        assert_eq!(decoded(""), None);
    }

    #[test]
    fn pages_do_not_name_calls_of_the_api() {
        let detail =
            "No queue `a`. GET /api/v1/queues lists those; in a path, write a slash as %2F.";
        assert_eq!(for_people(detail), "No queue `a`.");
        assert_eq!(
            for_people("Nothing was done. Try it."),
            "Nothing was done. Try it."
        );
        let call = "POST /api/v1/queues does.";
        assert_eq!(for_people(call), call, "it is all that there is");
    }

    #[test]
    fn a_script_is_told_where_an_answer_leads() {
        let answer = for_script(see_other("/ui/job?id=1"));
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        assert_eq!(answer.headers()["hx-redirect"], "/ui/job?id=1");
        assert!(!answer.headers().contains_key(header::LOCATION));
    }

    #[test]
    fn nobody_goes_back_to_the_sign_in() {
        let mut headers = HeaderMap::new();
        let links = Links::below("/ops");
        for (from, back) in [
            (
                "http://a/ops/ui/sign-in?back=%2Fops%2Fui%2Fqueue",
                "/ops/ui",
            ),
            ("http://a/ops/ui/queue?name=x", "/ops/ui/queue?name=x"),
        ] {
            headers.insert(REFERER, HeaderValue::from_static(from));
            assert_eq!(from_page(&links, &headers), back);
        }
    }

    #[test]
    fn the_page_that_the_browser_comes_from_is_a_path() {
        let mut headers = HeaderMap::new();
        assert_eq!(came_from(&headers), "");
        headers.insert(REFERER, HeaderValue::from_static("http://evil.com/ui?x=1"));
        assert_eq!(
            came_from(&headers),
            "/ui?x=1",
            "of it only the path is used"
        );
    }
}
