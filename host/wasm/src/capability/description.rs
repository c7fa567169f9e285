//! Describes a capability for users, and names the interfaces by which components request it. Pure.

/// The version of WASI 0.2's interfaces.
pub(crate) const WASI_2: &str = "0.2.0";
/// The version of WASI 0.3's interfaces.
pub(crate) const WASI_3: &str = "0.3.0";
/// The version of WASI 0.2 that the library links. A replacement of one of its functions must name
/// this version.
pub(crate) const LINKED_WASI_2: &str = "0.2.12";
/// The version of WASI 0.3 that the library links.
pub(crate) const LINKED_WASI_3: &str = "0.3.0";

/// The version of the contract.
pub(crate) const CONTRACT: &str = "0.1.0";

/// One capability, for `plugin check`, messages, counters and documentation.
#[derive(Debug)]
pub(crate) struct Description {
    /// The name in words: `outgoing HTTP`.
    pub(crate) name: &'static str,
    /// The key in the configuration file, and the flag without its two dashes. Also the label of
    /// counted denials.
    pub(crate) key: &'static str,
    /// The placeholder of the flag's value: `HOST`.
    pub(crate) value: &'static str,
    /// Returns the flag's value that grants a denied target, if the target determines it.
    pub(crate) value_for: Option<fn(&str) -> String>,
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
    /// The behavior without a grant.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test compares the documentation")
    )]
    pub(crate) without_grant: &'static str,
}

impl Description {
    /// Returns the whole flag that grants this target: `--allow-send local:orders`.
    pub(crate) fn flag_for(&self, target: &str) -> String {
        let value = self.value_for.map(|value_for| value_for(target));
        let value = value.unwrap_or_else(|| self.value.to_owned());
        format!("--{} {value}", self.key)
    }
}

/// An interface that the host links.
#[derive(Debug)]
pub(crate) struct Interface {
    /// The name, such as `wasi:http/types`.
    pub(crate) name: &'static str,
    /// The linked versions. Later versions of the same series are compatible, except for drafts.
    pub(crate) versions: &'static [&'static str],
}

impl Interface {
    pub(crate) const fn new(name: &'static str, versions: &'static [&'static str]) -> Self {
        Self { name, versions }
    }

    /// Returns the package, such as `wasi:http`.
    pub(crate) fn package(&self) -> &'static str {
        package_of(self.name)
    }

    /// Whether a component that imports this version can be linked.
    pub(crate) fn supports(&self, version: &str) -> bool {
        self.versions.iter().any(|own: &&str| {
            let is_draft = own.contains('-');
            **own == *version || (!is_draft && is_same_series(own, version))
        })
    }

    /// Whether it is a released interface of WASI.
    pub(crate) fn is_released_wasi(&self) -> bool {
        let released = [WASI_2, WASI_3];
        self.name.starts_with("wasi:") && self.versions.iter().all(|own| released.contains(own))
    }
}

/// Splits `a:b/c@1.2.3` into `a:b/c` and `1.2.3`.
pub(crate) fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

/// Returns the package: `a:b` for `a:b/c`.
pub(crate) fn package_of(interface: &str) -> &str {
    interface.split('/').next().unwrap_or(interface)
}

/// Whether two 0.x versions are compatible, which means that only their last numbers differ.
pub(crate) fn is_same_series(one: &str, other: &str) -> bool {
    series(one).is_some() && series(one) == series(other)
}

fn series(version: &str) -> Option<&str> {
    version.rsplit_once('.').map(|(series, _)| series)
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
