//! Names of components in a registry. Knows no network.

pub(crate) mod registry;

use std::fmt;
use std::str::FromStr;

/// A component in an OCI registry, pinned: `oci://HOST[:PORT]/NAME@sha256:DIGEST`, where the digest
/// is the manifest's. A tag in front of the digest is for people and is not looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageName {
    host: String,
    name: String,
    digest: String,
}

impl ImageName {
    /// What it begins with.
    pub(crate) const SCHEME: &str = "oci://";
    const ALGORITHM: &str = "@sha256:";

    /// Host, name and digest as registries write them, without the scheme.
    pub fn reference(&self) -> String {
        format!(
            "{}/{}{}{}",
            self.host,
            self.name,
            Self::ALGORITHM,
            self.digest
        )
    }

    /// The manifest's SHA-256 in lower-case hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

impl FromStr for ImageName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = "oci://HOST/NAME@sha256:DIGEST: the digest pins the component, a tag does not";
        let text = text.strip_prefix(Self::SCHEME).ok_or(wanted)?;
        let (place, digest) = text.split_once(Self::ALGORITHM).ok_or(wanted)?;
        let (host, name) = place.split_once('/').ok_or(wanted)?;
        // A port is in the host, so what follows a colon here is a tag.
        let name = name.split_once(':').map_or(name, |(name, _tag)| name);
        let plain = |text: &str, more: &str| {
            let allowed = |letter: char| letter.is_ascii_alphanumeric() || more.contains(letter);
            !text.is_empty() && text.chars().all(allowed)
        };
        let hexadecimal = |letter: char| matches!(letter, '0'..='9' | 'a'..='f');
        let good = plain(host, ".-:[]")
            && plain(name, "._-/")
            && digest.len() == 64
            && digest.chars().all(hexadecimal);
        good.then(|| Self {
            host: host.to_owned(),
            name: name.to_owned(),
            digest: digest.to_owned(),
        })
        .ok_or(wanted)
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", Self::SCHEME, self.reference())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_name_is_pinned_by_its_digest() {
        let digest = "0123456789abcdef".repeat(4);
        let plain = format!("oci://registry.example:5000/team/orders@sha256:{digest}");
        let name: ImageName = plain.parse().expect("a name");
        assert_eq!(
            (name.to_string(), name.digest()),
            (plain.clone(), digest.as_str())
        );
        let tagged = plain.replace("orders@", "orders:1.2@");
        assert_eq!(tagged.parse(), Ok(name));
        for bad in [
            "registry.example/orders",
            "oci://registry.example/orders",
            "oci://registry.example/orders:1",
            "oci://registry.example/orders@sha256:12",
            &plain.replace("sha256", "sha512"),
            &plain.replace("team", "te am"),
            &plain.replace("oci:", "OCI:"),
        ] {
            assert!(bad.parse::<ImageName>().is_err(), "{bad}");
        }
    }
}
