//! The pages on which a user enters a token.

use super::super::links::Links;
use super::{bare, refusal};
use maud::{DOCTYPE, Markup, html};

/// Renders the sign-in page, also after a wrong token.
pub(in super::super) fn page(links: &Links, back: &str, is_wrong: bool) -> Markup {
    let content = html! {
        h1 { "Sign in" }
        @if is_wrong { p.alert.bad role="alert" { "This is not the token. Nothing was changed." } }
        form.card method="post" action=(links.to("/ui/sign-in", &[])) {
            input type="hidden" name="back" value=(back);
            label for="token" { "Token" }
            input #token type="password" name="token" required autofocus autocomplete="current-password"
                spellcheck="false" aria-describedby="token-help";
            p #token-help.muted.small { "The content of the file of --admin-token-file or, only for reading, of --admin-read-token-file." }
            label for="user" { "Your name, for the log" }
            input #user name="user" maxlength="64" autocomplete="username";
            button.primary type="submit" { "Sign in" }
        }
    };
    bare(links, "Sign in", &content)
}

const OVER: &str = "Your session has ended, or this browser has none. Nothing was done.";

/// Renders the page for a client that sent a form without a session.
pub(in super::super) fn needed(links: &Links, sign_in: &str) -> Markup {
    let content = html! {
        h1 { "Not signed in" }
        p { (OVER) }
        p { a.button.primary href=(sign_in) { "Sign in" } }
    };
    bare(links, "Not signed in", &content)
}

/// Renders the notice above a form that was sent without a session: the form keeps its input while
/// the user signs in.
pub(in super::super) fn over(sign_in: &str) -> Markup {
    refusal(&html! {
        p { (OVER) " " a href=(sign_in) target="_blank" rel="noopener" { "Sign in in a new tab" } ", then send this again here." }
    })
}

/// Renders a page that reloads itself: a browser that follows a link from another site sends no
/// session, but sends it when the page itself makes the request.
pub(in super::super) fn again(address: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { "dispatcher" } meta http-equiv="refresh" content=(format!("0;url={address}")); }
            body { p { a href=(address) { "Continue" } } }
        }
    }
}
