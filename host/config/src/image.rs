//! The names of components in a registry. Makes no calls.

use std::fmt;
use std::str::FromStr;

/// The name of a component in an OCI registry: `oci://HOST[:PORT]/NAME@sha256:DIGEST`, where the
/// digest is the manifest's. A tag before the digest is for people and is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageName {
    /// The host of the registry, with its port if it has one.
    pub host: String,
    /// The name of the repository.
    pub name: String,
    /// The SHA-256 of the manifest in lower-case hexadecimal.
    pub digest: String,
}

impl ImageName {
    /// The prefix of such a name.
    pub const SCHEME: &str = "oci://";
    const ALGORITHM: &str = "@sha256:";

    /// Returns the host, the name and the digest as registries write them, without the scheme.
    pub fn reference(&self) -> String {
        format!(
            "{}/{}{}{}",
            self.host,
            self.name,
            Self::ALGORITHM,
            self.digest
        )
    }
}

impl FromStr for ImageName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = "oci://HOST/NAME@sha256:DIGEST: the digest pins the component, a tag does not";
        let text = text.strip_prefix(Self::SCHEME).ok_or(wanted)?;
        let (place, digest) = text.split_once(Self::ALGORITHM).ok_or(wanted)?;
        let (host, name) = place.split_once('/').ok_or(wanted)?;
        // The port is part of the host, so a colon here precedes a tag.
        let name = name.split_once(':').map_or(name, |(name, _tag)| name);
        let good = is_plain(host, ".-:[]")
            && is_plain(name, "._-/")
            && digest.len() == 64
            && digest
                .chars()
                .all(|letter: char| matches!(letter, '0'..='9' | 'a'..='f'));
        good.then(|| Self {
            host: host.to_owned(),
            name: name.to_owned(),
            digest: digest.to_owned(),
        })
        .ok_or(wanted)
    }
}

/// Whether the text has only letters, digits and characters of `more`.
fn is_plain(text: &str, more: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|letter: char| letter.is_ascii_alphanumeric() || more.contains(letter))
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
            (name.to_string(), name.digest.clone()),
            (plain.clone(), digest)
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
