//! The built-in templates: the files of a new project, byte by byte. Pure; does not know where they
//! are written.

use super::language::Language;

/// One file of a language's template.
struct File {
    /// The language, as `--lang` takes it.
    language: &'static str,
    /// Where it is in a project.
    path: &'static str,
    bytes: &'static [u8],
}

/// Made by `host/build.rs`.
const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/templates.rs"));

/// A message that every template handles.
pub(in crate::cli) const SAMPLE: &str = r#"{"id": "o-1", "amount": 250}"#;

/// What the templates call themselves, and the same where a language wants no `-`.
const NAMES: [&str; 2] = ["order-check", "order_check"];

/// The files of a project of this name: each by its path in the folder.
pub(super) fn project(
    language: Language,
    name: &str,
) -> impl Iterator<Item = (&'static str, Vec<u8>)> + use<'_> {
    let files = FILES.iter();
    let of_it = files.filter(move |file| file.language == language.name());
    of_it.map(move |file| (file.path, named(file.bytes, name)))
}

fn named(bytes: &[u8], name: &str) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        // A binding's object: it holds types and no name of the project.
        return bytes.to_owned();
    };
    let text = text.replace(NAMES[0], name);
    text.replace(NAMES[1], &name.replace('-', "_")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn files(language: Language) -> BTreeMap<&'static str, Vec<u8>> {
        project(language, "my-orders").collect()
    }

    #[test]
    fn every_template_has_instructions_and_the_contract() {
        for language in Language::ALL {
            let files = files(language);
            for wanted in ["README.md", ".gitignore"] {
                assert!(files.contains_key(wanted), "{language:?}: {wanted}");
            }
            let contract = match language {
                Language::Rust => "wit/v0.1/types.wit",
                _ => "wit/deps/dispatcher-plugin/types.wit",
            };
            assert!(files.contains_key(contract), "{language:?}: {contract}");
            let at_the_top = files.keys().filter(|path| !path.contains('/'));
            let names: Vec<_> = at_the_top.map(ToString::to_string).collect();
            assert_eq!(Language::of(&names), Ok(language));
        }
    }

    #[test]
    fn template_name_is_replaced_everywhere() {
        for language in Language::ALL {
            let mut named = 0;
            for (path, bytes) in files(language) {
                let text = String::from_utf8_lossy(&bytes);
                let left = NAMES.iter().find(|name| text.contains(**name));
                assert_eq!(left, None, "{language:?}: {path}");
                named += usize::from(text.contains("my-orders"));
            }
            assert!(named > 0, "{language:?}");
        }
    }
}
