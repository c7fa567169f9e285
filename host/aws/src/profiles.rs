//! Reads the profiles in AWS's configuration and credentials files, to check them; the SDK reads
//! the files itself to use them. Makes no calls.

use dispatcher_core::files::bounded::{self, Limits};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The values of one profile, by key.
pub(crate) type Profile = BTreeMap<String, String>;

/// The profiles of both files.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    by_name: BTreeMap<String, Profile>,
    places: Vec<PathBuf>,
}

impl Profiles {
    /// Reads the files that the variables name, or those in the home folder. A missing file has no
    /// profiles.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let [config, credentials] = config_and_credentials(variable);
        let found = Self::of_texts(&text(config.as_deref()), &text(credentials.as_deref()));
        Self {
            places: config.into_iter().chain(credentials).collect(),
            ..found
        }
    }

    /// Parses the texts of the files.
    pub(crate) fn of_texts(config: &str, credentials: &str) -> Self {
        let mut found = Self::default();
        found.add(config, true);
        found.add(credentials, false);
        found
    }

    /// Returns the profile with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Profile> {
        self.by_name.get(name)
    }

    /// Returns the paths of the files, for messages.
    pub(crate) fn places(&self) -> String {
        let places = self.places.iter().map(|path| path.display().to_string());
        places.collect::<Vec<_>>().join(" or ")
    }

    /// Adds the profiles of a file. In the configuration, a section is `[profile NAME]` or
    /// `[default]`; in the credentials, it is `[NAME]`. Indented lines belong to the key before
    /// them.
    fn add(&mut self, text: &str, is_config: bool) {
        let mut profile: Option<String> = None;
        for line in text.split('\n') {
            let line = line.strip_suffix('\r').unwrap_or(line);
            let is_nested = line.starts_with([' ', '\t']);
            if line.trim().is_empty() || is_nested || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                let section = section.split(']').next().unwrap_or_default().trim();
                let named = section
                    .strip_prefix("profile")
                    .filter(|name| name.starts_with([' ', '\t']));
                profile = match (named, is_config) {
                    (Some(name), _) => Some(name.trim().to_owned()),
                    (None, true) => (section == "default").then(|| section.to_owned()),
                    (None, false) => Some(section.to_owned()),
                };
                if let Some(name) = &profile {
                    self.by_name.entry(name.clone()).or_default();
                }
            } else if let Some(name) = &profile
                && let Some((key, value)) = line.split_once('=')
            {
                let key = key.trim().to_ascii_lowercase();
                let values = self.by_name.entry(name.clone()).or_default();
                values.insert(key, value.trim_matches([' ', '\t']).to_owned());
            }
        }
    }
}

/// Returns the paths of the files, whether or not they exist.
pub(crate) fn files(variable: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    config_and_credentials(variable)
        .into_iter()
        .flatten()
        .collect()
}

fn config_and_credentials(variable: impl Fn(&str) -> Option<String>) -> [Option<PathBuf>; 2] {
    let named = [
        ("AWS_CONFIG_FILE", "config"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
    ];
    named.map(
        |(named_by, name)| match (variable(named_by), variable("HOME")) {
            (Some(path), _) => Some(PathBuf::from(path)),
            (None, Some(home)) => Some(PathBuf::from(home).join(".aws").join(name)),
            (None, None) => None,
        },
    )
}

/// Returns the text of a file; empty if it cannot be read.
fn text(path: Option<&Path>) -> String {
    let read = path.map(|path| bounded::read(path, Limits::SMALL));
    let bytes = read.and_then(Result::ok).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_both_files_are_one() {
        let config = "# mine\n[default]\nregion = eu-west-1\r\n[profile work]\nca_bundle=/a b/ca.pem\ns3 =\n  region = x\n[sso-session work]\nregion = y\n";
        let credentials = "[work]\naws_access_key_id = AKIA\n[plain]\n";
        let profiles = Profiles::of_texts(config, credentials);
        for (name, key, wanted) in [
            ("default", "region", Some("eu-west-1")),
            ("work", "ca_bundle", Some("/a b/ca.pem")),
            ("work", "aws_access_key_id", Some("AKIA")),
            ("work", "region", None),
        ] {
            let value = profiles.get(name).and_then(|profile| profile.get(key));
            assert_eq!(value.map(String::as_str), wanted, "{name} {key}");
        }
        assert!(profiles.get("plain").is_some());
        assert!(profiles.get("sso-session work").is_none());
    }

    #[test]
    fn files_are_those_of_the_variables_or_of_the_home_folder() {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join(".aws")).expect("made");
        std::fs::write(home.path().join(".aws/config"), "[profile at-home]\n").expect("written");
        let other = home.path().join("other");
        std::fs::write(&other, "[profile named]\n").expect("written");
        let at_home =
            Profiles::read(|name| (name == "HOME").then(|| home.path().display().to_string()));
        assert!(at_home.get("at-home").is_some());
        let named = Profiles::read(|name| match name {
            "HOME" => Some(home.path().display().to_string()),
            "AWS_CONFIG_FILE" => Some(other.display().to_string()),
            _ => None,
        });
        assert!(named.get("named").is_some() && named.get("at-home").is_none());
        assert!(Profiles::read(|_| None).get("named").is_none());
    }
}
