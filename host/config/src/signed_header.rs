//! The header in which a trusted proxy says who sent a request: a JSON Web Token. Pure.

/// The conditions for a proxy's token, and the claims with the name and the role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedHeader {
    /// The keys of who signs: a file or the URL of a JSON Web Key Set.
    pub keys: KeyPlace,
    /// The header, in lower case.
    pub header: String,
    /// The issuer that the token must name (`iss`).
    pub issuer: String,
    /// The audience that the token must name (`aud`).
    pub audience: String,
    /// The claim that is the name of the person.
    pub name: String,
    /// The claims of which each permits everything.
    pub operate: Vec<WantedClaim>,
    /// The claims of which each permits reading; without one, any valid token does.
    pub read: Vec<WantedClaim>,
}

/// The place of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// A file.
    File(std::path::PathBuf),
    /// A URL.
    Url(String),
}

/// A claim with a value, or with a list that has the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedClaim {
    /// The name of the claim.
    pub claim: String,
    /// The value.
    pub value: String,
}

impl WantedClaim {
    /// Parses `CLAIM=VALUE`.
    pub fn parse(text: &str) -> Option<Self> {
        let (claim, value) = text.split_once('=')?;
        let (claim, value) = (claim.trim(), value.trim());
        (!claim.is_empty() && !value.is_empty()).then(|| Self {
            claim: claim.to_owned(),
            value: value.to_owned(),
        })
    }
}
