//! The embedded files that pages load. Each has a hash in its name, so browsers can cache it
//! forever.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// An embedded file.
struct Asset {
    stem: &'static str,
    extension: &'static str,
    kind: &'static str,
    text: &'static str,
}

const ASSETS: [Asset; 6] = [
    Asset {
        stem: "htmx",
        extension: "js",
        kind: SCRIPT,
        text: include_str!("../../assets/htmx-4.0.1.min.js"),
    },
    Asset {
        stem: "uplot",
        extension: "js",
        kind: SCRIPT,
        text: include_str!("../../assets/uplot-1.6.32.iife.min.js"),
    },
    Asset {
        stem: "uplot",
        extension: "css",
        kind: STYLE,
        text: include_str!("../../assets/uplot-1.6.32.min.css"),
    },
    Asset {
        stem: "dashboard",
        extension: "css",
        kind: STYLE,
        text: include_str!("../../assets/dashboard.css"),
    },
    Asset {
        stem: "dashboard",
        extension: "js",
        kind: SCRIPT,
        text: include_str!("../../assets/dashboard.js"),
    },
    Asset {
        stem: "icon",
        extension: "svg",
        kind: "image/svg+xml",
        text: include_str!("../../assets/icon.svg"),
    },
];

static NAMES: LazyLock<[String; ASSETS.len()]> = LazyLock::new(|| {
    ASSETS.map(
        |Asset {
             stem,
             extension,
             text,
             ..
         }| {
            let digest = Sha256::digest(text.as_bytes());
            let hash: String = digest
                .iter()
                .take(6)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("{stem}.{hash}.{extension}")
        },
    )
});

/// Returns the name of a file with its hash.
pub(super) fn name(stem: &str, extension: &str) -> &'static str {
    let found = ASSETS
        .iter()
        .position(|asset| (asset.stem, asset.extension) == (stem, extension));
    found.map_or("", |at| &NAMES[at])
}

/// Returns the file with this name, if there is one.
pub(super) fn answer(name: &str) -> Option<Response> {
    let at = NAMES.iter().position(|one| one == name)?;
    let headers = [
        (header::CONTENT_TYPE, ASSETS[at].kind),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Some((headers, ASSETS[at].text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_together_are_small() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.text.len()).sum();
        assert!(bytes < 150_000, "{bytes} bytes");
    }

    #[test]
    fn a_file_is_found_by_its_hashed_name_alone_and_kept_for_good() {
        let found = answer(name("dashboard", "css")).expect("there is one");
        let kept = found.headers().get(header::CACHE_CONTROL);
        assert!(
            kept.is_some_and(|kept| kept.to_str().is_ok_and(|kept| kept.contains("immutable")))
        );
        assert!(answer("dashboard.css").is_none());
        assert_eq!(name("none", "css"), "");
    }
}
