//! The languages with a template and a build: how to detect a project, and where its component is.
//! Pure; knows no tool.

use std::path::{Path, PathBuf};

/// A language with a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Language {
    /// cargo and dispatcher-guest
    #[value(alias = "rs")]
    Rust,
    /// npm and componentize-qjs
    #[value(name = "javascript", alias = "js")]
    JavaScript,
    /// the same, after the TypeScript compiler
    #[value(name = "typescript", alias = "ts")]
    TypeScript,
    /// pip and componentize-py
    #[value(alias = "py")]
    Python,
    /// the go command
    #[value(alias = "golang")]
    Go,
    /// zig, or clang with wasi-libc
    C,
}

impl Language {
    /// The languages, in the order of lists.
    pub(crate) const ALL: [Self; 6] = [
        Self::Rust,
        Self::JavaScript,
        Self::TypeScript,
        Self::Python,
        Self::Go,
        Self::C,
    ];

    /// Returns its name as a value of `--lang`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
            Self::Python => "python",
            Self::Go => "go",
            Self::C => "c",
        }
    }

    /// Returns its display name.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::JavaScript => "JavaScript",
            Self::TypeScript => "TypeScript",
            Self::Python => "Python",
            Self::Go => "Go",
            Self::C => "C",
        }
    }

    /// Whether a fresh instance costs more than the work of most handlers.
    pub(crate) const fn starts_slowly(self) -> bool {
        !matches!(self, Self::Rust | Self::C)
    }

    /// Returns the file that marks a project of it.
    const fn mark(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
            Self::JavaScript => "package.json",
            Self::TypeScript => "package.json and tsconfig.json",
            Self::Python => "app.py",
            Self::Go => "go.mod",
            Self::C => "a .c file",
        }
    }

    fn is_marked(self, names: &[String]) -> bool {
        let has = |name: &str| names.iter().any(|found| found == name);
        match self {
            Self::JavaScript => has("package.json") && !has("tsconfig.json"),
            Self::TypeScript => has("package.json") && has("tsconfig.json"),
            Self::C => names.iter().any(|name| name.ends_with(".c")),
            Self::Rust | Self::Python | Self::Go => has(self.mark()),
        }
    }

    /// Detects the language of a project by the names of the files in its folder, or explains why
    /// it cannot.
    pub(crate) fn of(names: &[String]) -> Result<Self, String> {
        let marked = Self::ALL.into_iter().filter(|one| one.is_marked(names));
        match marked.collect::<Vec<_>>()[..] {
            [one] => Ok(one),
            [] => {
                let wanted = Self::ALL.map(|one| format!("{} ({})", one.mark(), one.title()));
                Err(format!("no project; wanted one of: {}", wanted.join(", ")))
            }
            ref several => {
                let titles: Vec<_> = several.iter().map(|one| one.title()).collect();
                let found = titles.join(" and ");
                Err(format!("a project of {found}; choose one with --lang"))
            }
        }
    }

    /// Returns the path to which `plugin build` writes the component of a project, unless cargo is
    /// configured otherwise.
    pub(crate) fn component(self, folder: &Path, name: &str) -> PathBuf {
        match self {
            Self::Rust => {
                let file = format!("{}.wasm", name.replace('-', "_"));
                folder.join("target/wasm32-wasip2/release").join(file)
            }
            _ => folder.join("build").join(format!("{name}.wasm")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &str) -> Result<Language, String> {
        let names: Vec<_> = names.split_whitespace().map(str::to_owned).collect();
        Language::of(&names)
    }

    #[test]
    fn language_is_detected_from_project_files() {
        assert_eq!(of("Cargo.toml src README.md"), Ok(Language::Rust));
        assert_eq!(of("package.json handler.js"), Ok(Language::JavaScript));
        let typed = of("package.json tsconfig.json handler.ts");
        assert_eq!(typed, Ok(Language::TypeScript));
        assert_eq!(of("app.py requirements.txt"), Ok(Language::Python));
        assert_eq!(of("go.mod main.go"), Ok(Language::Go));
        assert_eq!(of("handler.c"), Ok(Language::C));
    }

    #[test]
    fn unknown_or_ambiguous_project_names_the_supported_languages() {
        let none = of("README.md handler.cob").unwrap_err();
        for language in Language::ALL {
            assert!(none.contains(language.mark()), "{none}");
        }
        let both = of("Cargo.toml package.json").unwrap_err();
        let told = both.contains("Rust and JavaScript") && both.contains("--lang");
        assert!(told, "{both}");
    }

    #[test]
    fn finding_29_language_aliases_are_accepted() {
        use clap::ValueEnum;
        for (alias, language) in [
            ("js", Language::JavaScript),
            ("ts", Language::TypeScript),
            ("py", Language::Python),
            ("rs", Language::Rust),
            ("golang", Language::Go),
        ] {
            assert_eq!(Language::from_str(alias, false), Ok(language));
        }
    }

    #[test]
    fn each_language_has_the_name_of_its_flag_value() {
        use clap::ValueEnum;
        for language in Language::value_variants() {
            let value = language.to_possible_value().expect("none is hidden");
            assert_eq!(value.get_name(), language.name());
            assert!(Language::ALL.contains(language));
        }
    }
}
