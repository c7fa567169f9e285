//! The table of capabilities. The code for grants, linking, the requests of components, missing
//! grants and the denials for a shadow is generated from it.

use super::caller::{Caller, Grant, GrantedTo, Recipient};
use super::description::{Description, split};
use crate::capability;
use crate::problem::Problem;
use std::fmt;
use std::path::PathBuf;
use wasmtime::component::Linker;

macro_rules! capabilities {
    ($($(#[$about:meta])* $asked:ident, $field:ident: $grant:ty;)*) => {
        /// Something that is denied unless it is granted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Capability {
            $($(#[$about])* $asked,)*
        }

        impl Capability {
            const ALL: &[Self] = &[$(Self::$asked,)*];

            pub(crate) const fn description(self) -> &'static Description {
                match self {
                    $(Self::$asked => const { &<$grant as Grant>::DESCRIPTION },)*
                }
            }
        }

        /// The grants of a plugin in the configuration; by default none.
        #[derive(Debug, Clone, Default)]
        pub struct Grants {
            $($(#[$about])* pub $field: $grant,)*
        }

        impl Grants {
            /// Returns the grants of a shadow, which must not reach other systems.
            #[must_use]
            pub fn for_shadow(self) -> Self {
                Self {
                    $($field: self.$field.for_shadow(),)*
                }
            }

            /// Returns the reasons why some grants are not possible.
            pub(crate) fn problems(&self) -> impl Iterator<Item = Problem> {
                [$(self.$field.check().err(),)*].into_iter().flatten()
            }

            /// Returns the capabilities for which a component that requests them is refused, each
            /// with a word for what is missing.
            pub fn missing(&self) -> Vec<(Capability, &'static str)> {
                let missing = [$((Capability::$asked, self.$field.missing()),)*].into_iter();
                missing.filter_map(|(asked, what)| Some((asked, what?))).collect()
            }

            pub(crate) fn give(self, plugin: &Recipient<'_>) -> PluginGrants {
                PluginGrants {
                    $($field: self.$field.give(plugin),)*
                }
            }
        }

        /// The grants of one plugin, shared by all its instances.
        #[derive(Default)]
        pub(crate) struct PluginGrants {
            $(pub(crate) $field: <$grant as Grant>::SharedGrant,)*
        }

        $(
            impl<C: Grantee> GrantedTo<$grant> for C {
                fn granted(&self) -> &<$grant as Grant>::SharedGrant {
                    &self.all_granted().$field
                }
            }
        )*

        /// Adds all capabilities to a linker that already has WASI's functions.
        pub(crate) fn link<C: Grantee>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
            $(<$grant as Grant>::link(linker)?;)*
            Ok(())
        }
    };
}

capabilities! {
    /// Invoking Lambda functions.
    Functions, lambda: Option<capability::lambda::Functions>;
    /// Sending to queues.
    Queues, queues: Option<capability::queues::QueuesGrant>;
    /// Outgoing HTTP requests.
    Http, http: capability::http::AllowedHosts;
    /// Settings.
    Settings, settings: capability::settings::ConfigStore;
    /// Keys and values.
    Stores, stores: capability::store::StoreGrant;
    /// A folder to read, which the component sees as `/`.
    Files, folder: Option<PathBuf>;
    /// TCP connections.
    Connections, peers: Vec<capability::network::Peer>;
    /// Environment variables.
    Variables, env: capability::variables::EnvironmentVariables;
    /// Spans that the plugin makes.
    Spans, spans: capability::spans::SpanGrant;
}

/// A caller with all grants of its plugin.
pub(crate) trait Grantee: Caller {
    fn all_granted(&self) -> &PluginGrants;
}

impl Capability {
    /// Returns all capabilities, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied()
    }

    /// Returns the capabilities that a component with these imports requests. An import does not
    /// mean use: many toolchains import files, variables or HTTP by default.
    pub fn of(imports: &[String]) -> Vec<Self> {
        Self::all()
            .filter(|asked: &Self| {
                let requests = asked.description().requested_by;
                imports
                    .iter()
                    .any(|import| requests.contains(&split(import).0))
            })
            .collect()
    }

    /// Returns the key in the configuration file, which is the flag without its two dashes.
    pub fn key(self) -> &'static str {
        self.description().key
    }

    /// Returns the flag with its placeholder, such as `--allow-http HOST`.
    pub fn flag(self) -> String {
        let Description { key, value, .. } = self.description();
        format!("--{key} {value}")
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.description().name)
    }
}

#[cfg(test)]
mod tests;
