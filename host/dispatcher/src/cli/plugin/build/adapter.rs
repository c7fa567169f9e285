//! What stands between the contract and a handler in JavaScript or Python: modules that are built
//! into the component beside the project's own. They answer "done" only where the handler has
//! returned as the contract wants it and left nothing behind. Knows what the project's world is;
//! runs no tool.

use super::{Project, failed};
use crate::error::{Exit, Failure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use wit_parser::{Resolve, WorldItem};

/// Where the modules go in a project.
const FOLDER: &str = "build/adapter";
const PROMISES: &str = include_str!("adapter/promises.js");
const GUARD: &str = include_str!("adapter/guard.js");
/// The modules of a component in Python, the one that componentize-py is given first.
const PYTHON: [(&str, &str); 2] = [
    (
        "dispatcher_entry.py",
        include_str!("adapter/dispatcher_entry.py"),
    ),
    (
        "dispatcher_imports.py",
        include_str!("adapter/dispatcher_imports.py"),
    ),
];
/// The first of [`PYTHON`].
pub(super) const PYTHON_MODULE: &str = "dispatcher_entry";

/// The exports of the contract, and what JavaScript calls them.
const EXPORTS: [(&str, &str); 2] = [
    ("dispatcher:plugin/handler@", "handler"),
    ("dispatcher:plugin/batch-handler@", "batchHandler"),
];

/// The interfaces that the SDK calls for a handler of version 0.2 of the contract, each by what the SDK
/// calls it.
const PROVIDED: [(&str, &str); 11] = [
    ("http", "dispatcher:plugin/http@0.2"),
    ("queues", "dispatcher:plugin/queues@0.2"),
    ("lambda", "dispatcher:plugin/lambda@0.2"),
    ("context", "dispatcher:plugin/context@0.2"),
    ("log", "dispatcher:plugin/log@0.2"),
    ("metrics", "dispatcher:plugin/metrics@0.2"),
    ("settings", "wasi:config/store@0.2"),
    ("store", "wasi:keyvalue/store@0.2"),
    ("atomics", "wasi:keyvalue/atomics@0.2"),
    ("clock", CLOCK),
    ("random", "wasi:random/random@0.2"),
];
/// The one of them that answers later. No handler calls it but by the SDK.
const CLOCK: &str = "wasi:clocks/monotonic-clock@0.3";

/// What a project's `wit/world.wit` names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProjectWorld {
    pub(super) imports: Vec<String>,
    exports: Vec<String>,
    /// The first part of every package's name: `wasi`.
    pub(super) namespaces: BTreeSet<String>,
    /// Whether an imported function may answer later, and the SDK may not know that it is awaited.
    is_async: bool,
}

impl ProjectWorld {
    pub(super) fn of(project: &Project) -> Result<Self, Failure> {
        let folder = project.folder.join("wit");
        Self::parse(&folder).map_err(|why| {
            // It lists the packages that there are, one a line.
            let words: Vec<_> = why.split_whitespace().collect();
            Failure::new(Exit::Failed, words.join(" "))
        })
    }

    fn parse(folder: &Path) -> Result<Self, String> {
        let why = |error: &dyn std::fmt::Display| format!("{error:#}");
        let mut wit = Resolve::default();
        let (package, _) = wit.push_path(folder).map_err(|error| why(&error))?;
        let world = wit.select_world(&[package], None);
        let world = &wit.worlds[world.map_err(|error| why(&error))?];
        let names = |items: &mut dyn Iterator<Item = &wit_parser::WorldKey>| {
            items.map(|key| wit.name_world_key(key)).collect::<Vec<_>>()
        };
        let is_clock = |key| wit.name_world_key(key).starts_with(CLOCK);
        let others = world.imports.iter().filter(|(key, _)| !is_clock(key));
        let mut functions = others.flat_map(|(_, item)| match item {
            WorldItem::Interface { id, .. } => {
                wit.interfaces[*id].functions.values().collect::<Vec<_>>()
            }
            WorldItem::Function(function) => vec![function],
            WorldItem::Type { .. } => Vec::new(),
        });
        Ok(Self {
            imports: names(&mut world.imports.keys()),
            exports: names(&mut world.exports.keys()),
            namespaces: wit
                .package_names
                .keys()
                .map(|name| name.namespace.clone())
                .collect(),
            is_async: functions.any(|function| function.kind.is_async()),
        })
    }

    /// Whether its handler is of version 0.2 of the contract, for which there is an SDK.
    fn is_of_0_2(&self) -> bool {
        let is_handler = |export: &String| {
            let mut known = EXPORTS.iter();
            known.any(|(start, _)| export.starts_with(&format!("{start}0.2")))
        };
        self.exports.iter().any(is_handler)
    }

    /// The module that gives the SDK what the world imports, before the handler is loaded.
    fn provided(&self) -> String {
        let mut text =
            "import { contract, provide } from \"dispatcher-guest/component\";\n".to_owned();
        let mut names: Vec<&str> = Vec::new();
        for (name, start) in PROVIDED {
            let mut imports = self.imports.iter();
            if let Some(import) = imports.find(|import| import.starts_with(start)) {
                text += &format!("import {name} from \"{import}\";\n");
                names.push(name);
            }
        }
        text + &format!("provide({{ {} }});\n", names.join(", "))
    }

    /// Whether it imports an interface of this package.
    pub(super) fn imports_of(&self, package: &str) -> bool {
        let mut imports = self.imports.iter();
        imports.any(|name| name.split('/').next() == Some(package))
    }
}

/// Writes what a component in JavaScript is made of beside the project's own modules: the entry,
/// which is returned, and the contract with `handle` as an `async func`, in `wit` beside it.
pub(super) fn javascript(
    project: &Project,
    world: &ProjectWorld,
    main: &str,
) -> Result<PathBuf, Failure> {
    let folder = empty(project)?;
    let names = world.exports.iter().filter_map(|export| {
        let known = EXPORTS.iter().find(|(start, _)| export.starts_with(start));
        known.map(|(_, name)| *name)
    });
    // It runs in the project's folder, where paths of the project are relative.
    let entry = entry(main, names, world);
    for (name, text) in [
        ("promises.js", PROMISES),
        ("guard.js", GUARD),
        ("entry.js", &entry),
    ] {
        write(&folder.join(name), text)?;
    }
    copy_async(&project.folder.join("wit"), &folder.join("wit"))?;
    Ok(folder.join("entry.js"))
}

fn entry<'a>(main: &str, names: impl Iterator<Item = &'a str>, world: &ProjectWorld) -> String {
    let path = serde_json::Value::from(format!("../../{main}"));
    let file = serde_json::Value::from(main);
    let provided = world.provided();
    let (sdk, contract) = if world.is_of_0_2() {
        (provided.as_str(), "contract")
    } else {
        ("", "undefined")
    };
    let mut text = format!(
        "import \"./promises.js\";\n{sdk}import * as project from {path};\nimport {{ guard }} from \
         \"./guard.js\";\n"
    );
    let is_async = world.is_async;
    for name in names {
        text += &format!(
            "export const {name} = guard(project, \"{name}\", {file}, {is_async}, {contract});\n"
        );
    }
    text
}

/// Writes the entry of a component in Python and returns its folder.
pub(super) fn python(project: &Project) -> Result<PathBuf, Failure> {
    let folder = empty(project)?;
    for (name, text) in PYTHON {
        write(&folder.join(name), text)?;
    }
    Ok(folder)
}

/// The folder for the modules, with nothing in it.
fn empty(project: &Project) -> Result<PathBuf, Failure> {
    let folder = project.folder.join(FOLDER);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed(&folder, &error));
        }
        _ => {}
    }
    fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
    Ok(folder)
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| failed(file, &error))
}

/// Copies a folder of WIT in which `handle` may answer later. The host takes both.
fn copy_async(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to).map_err(|error| failed(to, &error))?;
    let entries = from.read_dir().map_err(|error| failed(from, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| failed(from, &error))?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_async(&path, &copy)?;
        } else if path.extension().is_some_and(|end| end == "wit") {
            let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
            write(&copy, &with_async(&text))?;
        }
    }
    Ok(())
}

/// The contract's handlers as `async func`; any other WIT as it is.
fn with_async(wit: &str) -> String {
    match wit.contains("package dispatcher:plugin@") {
        true => wit.replace("handle: func(", "handle: async func("),
        false => wit.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/v0.1");

    /// A project's WIT with these lines in its world.
    fn world(lines: &str) -> Result<ProjectWorld, String> {
        let folder = tempfile::tempdir().unwrap();
        let contract = folder.path().join("deps/dispatcher-plugin");
        fs::create_dir_all(&contract).unwrap();
        for entry in Path::new(CONTRACT).read_dir().unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, contract.join(path.file_name().unwrap())).unwrap();
        }
        let text = format!("package my:project;\nworld plugin {{ {lines} }}\n");
        fs::write(folder.path().join("world.wit"), text).unwrap();
        ProjectWorld::parse(folder.path())
    }

    #[test]
    fn world_lists_its_imports_exports_and_namespaces() {
        let plain = world(
            "import dispatcher:plugin/context@0.1.0; export dispatcher:plugin/handler@0.1.0;",
        );
        let plain = plain.unwrap();
        assert!(plain.imports_of("dispatcher:plugin"), "{plain:?}");
        assert!(!plain.imports_of("wasi:http"), "{plain:?}");
        assert_eq!(plain.exports, ["dispatcher:plugin/handler@0.1.0"]);
        let namespaces: Vec<_> = plain.namespaces.iter().map(String::as_str).collect();
        assert_eq!(namespaces, ["dispatcher", "my"]);
        assert!(!plain.is_async);
        let later = world("import dispatcher:plugin/queues-async@0.1.0;");
        assert!(later.unwrap().is_async);
    }

    #[test]
    fn world_with_missing_packages_names_them() {
        let why = world("import wasi:http/types@0.2.0;").unwrap_err();
        assert!(why.contains("wasi:http"), "{why}");
    }

    #[test]
    fn generated_entry_exports_what_the_world_does() {
        let old = ProjectWorld {
            is_async: true,
            ..ProjectWorld::default()
        };
        let text = entry("src/a \"b\".js", ["batchHandler"].into_iter(), &old);
        assert!(!text.contains("dispatcher-guest"), "{text}");
        assert!(text.contains(r#"from "../../src/a \"b\".js";"#), "{text}");
        let export = r#"export const batchHandler = guard(project, "batchHandler", "#;
        assert!(text.contains(export), "{text}");
        assert!(!text.contains("const handler"), "{text}");
    }

    #[test]
    fn only_handlers_of_the_contract_become_async() {
        for name in ["handler", "batch-handler"] {
            let text = fs::read_to_string(Path::new(CONTRACT).join(format!("{name}.wit"))).unwrap();
            assert!(with_async(&text).contains("handle: async func("), "{name}");
            assert_eq!(with_async(&with_async(&text)), with_async(&text));
        }
        let other = "package my:own@0.1.0;\ninterface a { handle: func(); }";
        assert_eq!(with_async(other), other);
    }
}
