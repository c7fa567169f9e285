//! The form of a declaration.

/// A table of settings, and a struct of the values of those that stand alone. Each entry is
///
/// ```text
/// /// What it does, as --help and the reference page show it
/// "key" => Setting::new("VALUE")…, field: Type = |given| given.one(parse).unwrap_or(default);
/// ```
///
/// The field may be left out: then `check` reads the setting together with others, by its key.
macro_rules! settings {
    (
        $(#[$about:meta])*
        $table:ident of $part:expr, in $tables:expr;
        $(#[$about_values:meta])*
        struct $values:ident;
        $(
            $(#[doc = $help:literal])+
            $key:literal => $row:expr $(, $field:ident: $type:ty = $read:expr)?;
        )+
    ) => {
        settings! {
            $(#[$about])*
            $table of $part, in $tables;
            $( $(#[doc = $help])+ $key => $row; )+
        }

        $(#[$about_values])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $values {
            $($( #[doc = concat!("`", $key, "`")] pub $field: $type, )?)+
        }

        impl $values {
            /// What was written, or defaults; problems are collected.
            pub fn read(
                layers: $crate::config::section::Layers<'_>,
                problems: &mut Vec<$crate::config::problem::Problem>,
            ) -> Self {
                fn typed<T>(
                    mut written: super::Written<'_>,
                    read: impl FnOnce(&mut super::Written<'_>) -> T,
                ) -> T {
                    read(&mut written)
                }
                Self {
                    $($( $field: typed(super::Written { key: $key, layers, problems }, $read), )?)+
                }
            }

            /// Each key, and whether its value is another in `now`.
            pub fn compare(&self, now: &Self) -> Vec<(&'static str, bool)> {
                vec![ $($( ($key, self.$field != now.$field), )?)+ ]
            }

            /// These values, with those of `now` that need no restart.
            pub fn reloaded(&self, now: &Self) -> Self {
                let waits = |key| {
                    super::of_key($part, key)
                        .is_some_and(|setting| setting.reload == super::Reload::Restart)
                };
                Self {
                    $($( $field: if waits($key) { &self.$field } else { &now.$field }.clone(), )?)+
                }
            }

            /// Each key with its value as the file writes it, if there is one.
            #[cfg(any(test, fuzzing))]
            pub fn written(&self) -> Vec<(&'static str, Option<String>)> {
                vec![ $($( ($key, $crate::config::fuzz::Toml::toml(&self.$field)), )?)+ ]
            }
        }

        impl Default for $values {
            fn default() -> Self {
                Self::read($crate::config::section::Layers(&[]), &mut Vec::new())
            }
        }
    };
    (
        $(#[$about:meta])*
        $table:ident of $part:expr, in $tables:expr;
        $( $(#[doc = $help:literal])+ $key:literal => $row:expr; )+
    ) => {
        $(#[$about])*
        pub(super) const $table: &[super::Setting] = &[
            $({
                let row: super::Setting = $row;
                super::Setting {
                    key: $key,
                    help: &[$($help),+],
                    part: $part,
                    tables: match row.tables {
                        [] => $tables,
                        own => own,
                    },
                    ..row
                }
            }),+
        ];
    };
}
pub(super) use settings;
