//! The adapter between the contract and a handler in JavaScript or Python: modules that are built
//! into the component with the project's own. They return "done" only if the handler returned as
//! the contract requires and left no work behind. Knows the project's world; runs no tool.

use super::{Project, failed};
use crate::error::{Exit, Failure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use wit_parser::{Resolve, WorldItem};

/// The folder of the modules in a project.
pub(super) const FOLDER: &str = "build/adapter";
const PROMISES: &str = include_str!("promises.js");
const GUARD: &str = include_str!("guard.js");
/// The modules of a component in Python, beginning with the one that componentize-py gets first.
const PYTHON: [(&str, &str); 4] = [
    ("dispatcher_entry.py", include_str!("dispatcher_entry.py")),
    (PYTHON_CHECK, include_str!("dispatcher_check.py")),
    ("dispatcher_files.py", include_str!("dispatcher_files.py")),
    (
        "dispatcher_imports.py",
        include_str!("dispatcher_imports.py"),
    ),
];
/// The one of [`PYTHON`] that looks at the project before it is built.
pub(super) const PYTHON_CHECK: &str = "dispatcher_check.py";
/// The first of [`PYTHON`].
pub(super) const PYTHON_MODULE: &str = "dispatcher_entry";

/// The exports that a component in JavaScript can have, their names in the component, and their
/// names in the project.
const EXPORTS: [(&str, &str, &str); 2] = [
    (
        "dispatcher:plugin/handler-async@",
        "handlerAsync",
        "handler",
    ),
    (
        "dispatcher:plugin/batch-handler-async@",
        "batchHandlerAsync",
        "batchHandler",
    ),
];
/// The exports whose promise nothing would await.
const PLAIN: [&str; 2] = [
    "dispatcher:plugin/handler@",
    "dispatcher:plugin/batch-handler@",
];

/// The interfaces that the SDK calls, with their names in the SDK.
const PROVIDED: [(&str, &str); 11] = [
    ("http", "dispatcher:plugin/http@0.1"),
    ("queues", "dispatcher:plugin/queues@0.1"),
    ("lambda", "dispatcher:plugin/lambda@0.1"),
    ("context", "dispatcher:plugin/context@0.1"),
    ("log", "dispatcher:plugin/log@0.1"),
    ("metrics", "dispatcher:plugin/metrics@0.1"),
    ("settings", "wasi:config/store@0.2"),
    ("store", "wasi:keyvalue/store@0.2"),
    ("atomics", "wasi:keyvalue/atomics@0.2"),
    ("clock", CLOCK),
    ("random", "wasi:random/random@0.2"),
];
/// The interface among them with an async function. Handlers call it only through the SDK.
const CLOCK: &str = "wasi:clocks/monotonic-clock@0.3";

/// The names in a project's `wit/world.wit`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct ProjectWorld {
    pub(in crate::cli) imports: Vec<String>,
    exports: Vec<String>,
    /// The first part of every package's name: `wasi`.
    pub(super) namespaces: BTreeSet<String>,
    /// Whether an imported function is async, so that the SDK may not know that it is awaited.
    is_async: bool,
}

impl ProjectWorld {
    pub(in crate::cli) fn of(project: &Project) -> Result<Self, Failure> {
        let folder = project.folder.join("wit");
        Self::parse(&folder).map_err(|why| {
            // The error lists the available packages, one per line.
            let words: Vec<_> = why.split_whitespace().collect();
            Failure::new(Exit::Failed, words.join(" "))
        })
    }

    fn parse(folder: &Path) -> Result<Self, String> {
        let mut wit = Resolve::default();
        let (package, _) = wit
            .push_path(folder)
            .map_err(|error| format!("{error:#}"))?;
        let selected = wit
            .select_world(&[package], None)
            .map_err(|error| format!("{error:#}"))?;
        let world = &wit.worlds[selected];
        let imports = world.imports.keys().map(|key| wit.name_world_key(key));
        let exports = world.exports.keys().map(|key| wit.name_world_key(key));
        let others = world
            .imports
            .iter()
            .filter(|(key, _)| !wit.name_world_key(key).starts_with(CLOCK));
        let mut functions = others.flat_map(|(_, item)| match item {
            WorldItem::Interface { id, .. } => {
                wit.interfaces[*id].functions.values().collect::<Vec<_>>()
            }
            WorldItem::Function(function) => vec![function],
            WorldItem::Type { .. } => Vec::new(),
        });
        Ok(Self {
            imports: imports.collect(),
            exports: exports.collect(),
            namespaces: wit
                .package_names
                .keys()
                .map(|name| name.namespace.clone())
                .collect(),
            is_async: functions.any(|function| function.kind.is_async()),
        })
    }

    /// Returns an error if the world has an export that a handler in JavaScript cannot have.
    fn check_javascript(&self, project: &Project) -> Result<(), Failure> {
        let mut exports = self.exports.iter();
        let Some(export) =
            exports.find(|export| PLAIN.iter().any(|start| export.starts_with(start)))
        else {
            return Ok(());
        };
        let world = project.folder.join("wit/world.wit");
        let wanted = export.replacen("handler@", "handler-async@", 1);
        Err(Failure::new(
            Exit::Failed,
            format!(
                "{}: a handler in JavaScript is asynchronous: export {wanted} in place of {export}",
                world.display()
            ),
        ))
    }

    /// Returns the module that gives the SDK the imports of the world before the handler is loaded.
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

    /// Returns whether it imports an interface of this package.
    pub(super) fn imports_of(&self, package: &str) -> bool {
        let mut imports = self.imports.iter();
        imports.any(|name| name.split('/').next() == Some(package))
    }
}

/// Writes the files of a component in JavaScript besides the project's modules. Returns the path of
/// the entry.
pub(super) fn javascript(
    project: &Project,
    world: &ProjectWorld,
    main: &str,
) -> Result<PathBuf, Failure> {
    world.check_javascript(project)?;
    let folder = empty(project)?;
    // The bundler runs in the project's folder, where the project's paths are relative.
    let entry = entry(main, world);
    for (name, text) in [
        ("promises.js", PROMISES),
        ("guard.js", GUARD),
        ("entry.js", &entry),
    ] {
        write(&folder.join(name), text)?;
    }
    Ok(folder.join("entry.js"))
}

fn entry(main: &str, world: &ProjectWorld) -> String {
    let path = serde_json::Value::from(format!("../../{main}"));
    let file = serde_json::Value::from(main);
    let provided = world.provided();
    let mut text = format!(
        "import \"./promises.js\";\n{provided}import * as project from {path};\nimport {{ guard }} from \
         \"./guard.js\";\n"
    );
    let is_async = world.is_async;
    for (start, export, name) in EXPORTS {
        if world.exports.iter().any(|one| one.starts_with(start)) {
            text += &format!(
                "export const {export} = guard(project, \"{name}\", {file}, {is_async}, contract);\n"
            );
        }
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

/// Returns the folder for the modules, emptied.
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

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");

    /// A project's WIT with these lines in its world.
    fn world(lines: &str) -> Result<ProjectWorld, String> {
        let folder = tempfile::tempdir().unwrap();
        let contract = folder.path().join("deps/dispatcher-plugin");
        fs::create_dir_all(&contract).unwrap();
        for entry in Path::new(CONTRACT).read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "wit") {
                fs::copy(&path, contract.join(path.file_name().unwrap())).unwrap();
            }
        }
        let text = format!("package my:project;\nworld plugin {{ {lines} }}\n");
        fs::write(folder.path().join("world.wit"), text).unwrap();
        ProjectWorld::parse(folder.path())
    }

    #[test]
    fn world_lists_its_imports_exports_and_namespaces() {
        let parsed = world(
            "import dispatcher:plugin/context@0.1.0; export dispatcher:plugin/handler@0.1.0;",
        );
        let plain = parsed.unwrap();
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
        let world = ProjectWorld {
            exports: vec!["dispatcher:plugin/batch-handler-async@0.1.0".to_owned()],
            is_async: true,
            ..ProjectWorld::default()
        };
        let text = entry("src/a \"b\".js", &world);
        assert!(text.contains(r#"from "../../src/a \"b\".js";"#), "{text}");
        let export = r#"export const batchHandlerAsync = guard(project, "batchHandler", "#;
        assert!(text.contains(export), "{text}");
        assert!(!text.contains("const handlerAsync"), "{text}");
    }
}
