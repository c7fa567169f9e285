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
            /// Reads the written values, or defaults, and collects problems.
            pub fn read(
                layers: $crate::section::Layers<'_>,
                problems: &mut Vec<$crate::problem::Problem>,
            ) -> Self {
                fn typed<T>(
                    mut written: super::WrittenSetting<'_>,
                    read: impl FnOnce(&mut super::WrittenSetting<'_>) -> T,
                ) -> T {
                    read(&mut written)
                }
                Self {
                    $($( $field: typed(super::WrittenSetting { key: $key, layers, problems }, $read), )?)+
                }
            }

            /// Each key, and whether its value is another in `now`.
            pub fn compare(&self, now: &Self) -> Vec<(&'static str, bool)> {
                vec![ $($( ($key, self.$field != now.$field), )?)+ ]
            }

            /// Each key with its value as the file writes it, if there is one.
            #[cfg(any(test, fuzzing))]
            pub fn written(&self) -> Vec<(&'static str, Option<String>)> {
                vec![ $($( ($key, $crate::fuzz::Toml::toml(&self.$field)), )?)+ ]
            }
        }

        impl Default for $values {
            fn default() -> Self {
                Self::read($crate::section::Layers(&[]), &mut Vec::new())
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
