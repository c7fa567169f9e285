//! Describes a capability to people, and by which interfaces components request it. Pure.

/// The interfaces of WASI 0.2.
pub(crate) const WASI_2: &str = "0.2.0";
/// The interfaces of WASI 0.3.
pub(crate) const WASI_3: &str = "0.3.0";
/// The version of WASI 0.2 that the library links: a replacement of one of its functions must name
/// it.
pub(crate) const LINKED_WASI_2: &str = "0.2.12";
/// The version of WASI 0.3 that the library links.
pub(crate) const LINKED_WASI_3: &str = "0.3.0";

/// The newest version of the contract, which may still change: then it has another number.
pub(crate) const CONTRACT_0_2: &str = "0.2.0-rc.1";
/// The versions of the contract, the oldest first.
pub(crate) const CONTRACT: [&str; 2] = ["0.1.0", CONTRACT_0_2];

/// One capability, for `plugin check`, messages, counters and documentation.
#[derive(Debug)]
pub(crate) struct Description {
    /// In words: `outgoing HTTP`.
    pub(crate) name: &'static str,
    /// Its key in the configuration file; its flag has two dashes before it. Also its label where
    /// denials are counted.
    pub(crate) key: &'static str,
    /// What its flag wants: `HOST`.
    pub(crate) value: &'static str,
    /// The names of the interfaces by which a component requests it.
    pub(crate) requested_by: &'static [&'static str],
    /// The interfaces that it links.
    pub(crate) interfaces: &'static [Interface],
    /// The names, or beginnings of names, of interfaces whose calls suspend the whole instance.
    pub(crate) suspends: &'static [&'static str],
    /// The requesting interfaces as the documentation writes them.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test compares the documentation")
    )]
    pub(crate) documented_as: &'static str,
    /// What happens without a grant.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test compares the documentation")
    )]
    pub(crate) without_grant: &'static str,
}

/// An interface that the host links.
#[derive(Debug)]
pub(crate) struct Interface {
    /// `wasi:http/types`
    pub(crate) name: &'static str,
    /// Its versions. Later ones of the same series are compatible, except with drafts.
    pub(crate) versions: &'static [&'static str],
}

impl Interface {
    pub(crate) const fn new(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self { name, versions }
    }

    /// `wasi:http`
    pub(crate) fn package(&self) -> &'static str {
        package_of(self.name)
    }

    /// Whether a component that imports this version can be linked.
    pub(crate) fn supports(&self, version: &str) -> bool {
        let fits = |own: &&str| {
            let is_draft = own.contains('-');
            **own == *version || (!is_draft && is_same_series(own, version))
        };
        self.versions.iter().any(fits)
    }

    /// Whether it is one of WASI's that have been released.
    pub(crate) fn is_released_wasi(&self) -> bool {
        let released = [WASI_2, WASI_3];
        self.name.starts_with("wasi:") && self.versions.iter().all(|own| released.contains(own))
    }
}

/// `a:b/c@1.2.3` → `a:b/c` and `1.2.3`.
pub(crate) fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

/// `a:b/c` → `a:b`
pub(crate) fn package_of(interface: &str) -> &str {
    interface.split('/').next().unwrap_or(interface)
}

/// Whether versions of 0.x are compatible: they differ in the last number alone.
pub(crate) fn is_same_series(one: &str, other: &str) -> bool {
    let series = |version: &str| {
        version
            .rsplit_once('.')
            .map(|(series, _)| series.to_owned())
    };
    series(one).is_some() && series(one) == series(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_supported_within_its_series_and_a_draft_exactly() {
        let released = Interface::new("wasi:http/types", &[WASI_2, WASI_3]);
        for (version, is_supported) in [
            ("0.2.0", true),
            ("0.2.99", true),
            ("0.3.1", true),
            ("0.4.0", false),
            ("1.2.0", false),
            ("", false),
        ] {
            assert_eq!(released.supports(version), is_supported, "{version}");
        }
        let draft = Interface::new("wasi:keyvalue/store", &["0.2.0-draft2"]);
        for (version, is_supported) in [
            ("0.2.0-draft2", true),
            ("0.2.0-draft", false),
            ("0.2.0", false),
        ] {
            assert_eq!(draft.supports(version), is_supported, "{version}");
        }
    }
}
