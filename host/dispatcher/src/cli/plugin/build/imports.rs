//! Finds imports of a project in JavaScript or TypeScript that cannot work: modules of Node.js, which
//! a component does not have, and files without their extension. Knows what esbuild prints; the
//! compilers have not run yet.

use super::{Project, adapter, failed, tool};
use crate::error::{Exit, Failure};
use serde::Deserialize;
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Modules of Node.js, and the advice of each row. If a package needs several, the first row applies.
const INSTEAD: [(&[&str], &str); 6] = [
    (
        &["net", "tls", "dgram", "dns", "http", "https", "http2"],
        "a component has no sockets: call an HTTP API with `fetch`",
    ),
    (
        &["child_process", "worker_threads", "cluster"],
        "a component has no processes, threads or native code: leave this work to a service, and \
         call it with `fetch`",
    ),
    (
        &["fs"],
        "a component has no files: import the data as a module, or keep it in a store with `openStore`",
    ),
    (
        &["crypto"],
        "use `crypto.subtle.digest`, or a package in plain JavaScript such as @noble/hashes",
    ),
    (
        &[],
        "use another package, or another entry of this one, that works in browsers",
    ),
    (
        &[
            "assert",
            "buffer",
            "events",
            "punycode",
            "string_decoder",
            "url",
            "util",
        ],
        "install the npm package of the same name, which works in browsers",
    ),
];
/// The row of [`INSTEAD`] for modules that no row names.
const OTHERS: usize = 4;
/// The row for packages of native code, and the packages by which others load it.
const NATIVE: usize = 1;
const LOADERS: [&str; 3] = ["bindings", "detect-libc", "node-gyp-build"];
/// The words of esbuild about a module of Node.js.
const BUILT_IN: &str = "is built into node";
/// The folder of packages.
const PACKAGES: &str = "node_modules/";
/// The folder of the SDK.
pub(super) const SDK: &str = "dispatcher-guest/";

/// Refuses a project with an import that cannot work. `esbuild` bundles the project's entry.
pub(super) fn check(
    project: &Project,
    mut esbuild: Command,
    is_typed: bool,
) -> Result<(), Failure> {
    let folder = project.folder.join(adapter::FOLDER);
    fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
    let file = folder.join("imports.json");
    // One of an earlier build, if it was stopped.
    let _ = fs::remove_file(&file);
    esbuild.args(["--log-level=error", "--log-limit=0", "--loader:.node=empty"]);
    let bundle = file.with_extension("js");
    esbuild.arg(format!("--outfile={}", bundle.display()));
    esbuild.arg(format!("--metafile={}", file.display()));
    let missing = built_in_modules(&tool::complaints(&mut esbuild)?);
    if missing.is_empty() {
        // The compiler checks the names. Without a graph, a later tool says what is wrong.
        if is_typed || !file.exists() {
            return Ok(());
        }
        return refused(Graph::read(&file)?.shortened(&project.folder));
    }
    let modules: BTreeSet<&str> = missing.iter().map(|one| one.module.as_str()).collect();
    for module in modules {
        esbuild.arg(format!("--external:{module}"));
    }
    tool::complaints(&mut esbuild)?;
    let graph = if file.exists() {
        Graph::read(&file)?
    } else {
        Graph::default()
    };
    refused(graph.needing_node(&project.folder, &missing))
}

fn refused(lines: Vec<String>) -> Result<(), Failure> {
    if lines.is_empty() {
        return Ok(());
    }
    Err(Failure {
        exit: Exit::Failed,
        lines,
    })
}

/// An import of a module of Node.js.
#[derive(Debug, PartialEq, Eq)]
struct NodeImport {
    module: String,
    file: String,
    line: usize,
}

/// Returns the imports of modules of Node.js that esbuild could not resolve.
fn built_in_modules(printed: &str) -> Vec<NodeImport> {
    let mut found = Vec::new();
    for error in printed.split("[ERROR] ").skip(1) {
        if !error.contains(BUILT_IN) {
            continue;
        }
        let module = error
            .strip_prefix("Could not resolve \"")
            .and_then(|rest| rest.split('"').next());
        // The place is `file:line:column:`.
        let place = error
            .lines()
            .map(str::trim)
            .find(|line| line.ends_with(':'));
        let mut parts = place.unwrap_or_default().rsplitn(4, ':').skip(2);
        if let (Some(module), Some(Ok(line)), Some(file)) =
            (module, parts.next().map(str::parse), parts.next())
        {
            found.push(NodeImport {
                module: module.to_owned(),
                file: file.to_owned(),
                line,
            });
        }
    }
    found
}

/// The modules and their imports, as esbuild writes them.
#[derive(Debug, Default, Deserialize)]
struct Graph {
    inputs: BTreeMap<String, Input>,
    outputs: BTreeMap<String, Output>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Output {
    entry_point: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Input {
    imports: Vec<Import>,
}

#[derive(Debug, Deserialize)]
struct Import {
    path: String,
    kind: String,
    /// The text in the source. esbuild leaves it out for modules that it does not bundle.
    original: Option<String>,
}

/// An import of a package in a file of the project.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PackageImport {
    file: String,
    original: String,
}

/// The modules of Node.js that a package needs, and the packages from there to those that import them.
#[derive(Debug)]
struct PackageNeed {
    row: usize,
    modules: Vec<String>,
    packages: Vec<String>,
}

impl Graph {
    fn read(file: &Path) -> Result<Self, Failure> {
        let bytes = super::read(file)?;
        serde_json::from_slice(&bytes).map_err(|error| failed(file, &error))
    }

    /// Returns a line for each import in the project that needs modules of Node.js.
    fn needing_node(&self, folder: &Path, missing: &[NodeImport]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut needs: BTreeMap<PackageImport, PackageNeed> = BTreeMap::new();
        let importers = self.importers();
        for one in missing {
            if package_of(&one.file).is_none() {
                let place = shown(folder, &one.file, |number, _| number == one.line);
                let instead = INSTEAD[row_of(&one.module)].1;
                let module = &one.module;
                lines.push(format!(
                    "{place}: a component does not have the module {module} of Node.js; {instead}"
                ));
                continue;
            }
            let (import, packages) = way_to(&one.file, &importers);
            let is_native = packages
                .last()
                .is_some_and(|package| LOADERS.contains(&package.as_str()));
            let module = one.module.trim_start_matches("node:").to_owned();
            let new = PackageNeed {
                row: if is_native {
                    NATIVE
                } else {
                    row_of(&one.module)
                },
                modules: vec![module],
                packages,
            };
            match needs.entry(import) {
                Entry::Vacant(place) => drop(place.insert(new)),
                Entry::Occupied(mut place) => place.get_mut().join(new),
            }
        }
        lines.extend(needs.iter().map(|(import, need)| need.told(folder, import)));
        lines
    }

    /// Returns the importer of each file that is the nearest to the project's entry, and the text
    /// of its import.
    fn importers(&self) -> BTreeMap<&str, (&str, &str)> {
        let mut importers = BTreeMap::new();
        let entries = self.outputs.values();
        let mut next: VecDeque<&str> = entries
            .filter_map(|output| output.entry_point.as_deref())
            .collect();
        while let Some(file) = next.pop_front() {
            for import in self
                .inputs
                .get(file)
                .into_iter()
                .flat_map(|input| &input.imports)
            {
                let path = import.path.as_str();
                if let Some(original) = &import.original
                    && !importers.contains_key(path)
                {
                    importers.insert(path, (file, original.as_str()));
                    next.push_back(path);
                }
            }
        }
        importers
    }

    /// Returns a line for each import in the project of a file whose name lacks its end.
    fn shortened(&self, folder: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        let own = self
            .inputs
            .iter()
            .filter(|(file, _)| package_of(file).is_none());
        for (file, import) in
            own.flat_map(|(file, input)| input.imports.iter().map(move |import| (file, import)))
        {
            let original = import.original.as_deref().unwrap_or_default();
            let is_relative = original.starts_with("./") || original.starts_with("../");
            if !is_relative
                || !matches!(import.kind.as_str(), "import-statement" | "dynamic-import")
            {
                continue;
            }
            let end = import.path.strip_prefix(&joined(file, original));
            if let Some(end) = end.filter(|end| !end.is_empty()) {
                let place = shown(folder, file, |_, line| quotes(line, original));
                lines.push(format!(
                    "{place}: Node.js, which runs `npm test`, needs the whole name: \"{}{end}\"",
                    original.trim_end_matches('/')
                ));
            }
        }
        lines
    }
}

impl PackageNeed {
    /// Keeps the modules of the first row of [`INSTEAD`], and the shortest way to them.
    fn join(&mut self, other: Self) {
        if other.row > self.row {
            return;
        }
        if other.row < self.row {
            *self = other;
            return;
        }
        self.modules.extend(other.modules);
        if (other.packages.len(), &other.packages) < (self.packages.len(), &self.packages) {
            self.packages = other.packages;
        }
    }

    fn told(&self, folder: &Path, import: &PackageImport) -> String {
        let place = shown(folder, &import.file, |_, line| {
            quotes(line, &import.original)
        });
        let package = self.packages.first().map_or("", String::as_str);
        let modules: BTreeSet<&str> = self.modules.iter().map(String::as_str).collect();
        let modules = Vec::from_iter(modules).join(", ");
        let through: Vec<String> = self
            .packages
            .windows(2)
            .map(|pair| format!("{} requires {}", pair[0], pair[1]))
            .collect();
        let through = if through.is_empty() {
            String::new()
        } else {
            format!(" ({})", through.join(", "))
        };
        let instead = INSTEAD[self.row].1;
        format!(
            "{place}: the package {package} needs {modules} of Node.js, which a component does not \
             have{through}; {instead}"
        )
    }
}

/// Returns the import in the project by which a file of a package is loaded, and the packages
/// from there to the file.
fn way_to(file: &str, importers: &BTreeMap<&str, (&str, &str)>) -> (PackageImport, Vec<String>) {
    let mut packages = vec![package_of(file).unwrap_or(file).to_owned()];
    let mut import = PackageImport {
        file: file.to_owned(),
        original: String::new(),
    };
    let mut at = file;
    while let Some((importer, original)) = importers.get(at) {
        let Some(package) = package_of(importer) else {
            import = PackageImport {
                file: (*importer).to_owned(),
                original: (*original).to_owned(),
            };
            break;
        };
        if packages.last().is_some_and(|last| last != package) {
            packages.push(package.to_owned());
        }
        at = importer;
    }
    packages.reverse();
    (import, packages)
}

/// Returns the row of [`INSTEAD`] for a module of Node.js.
fn row_of(module: &str) -> usize {
    // No npm package replaces a module that is imported as `node:events`.
    let (name, has_npm_package) = module
        .strip_prefix("node:")
        .map_or((module, true), |name| (name, false));
    let name = name.split('/').next().unwrap_or(name);
    let row = INSTEAD.iter().position(|(names, _)| names.contains(&name));
    row.filter(|row| has_npm_package || *row < OTHERS)
        .unwrap_or(OTHERS)
}

/// Returns the package that a file belongs to; none for a file of the project.
pub(super) fn package_of(file: &str) -> Option<&str> {
    if file.starts_with(SDK) {
        return Some(SDK.trim_end_matches('/'));
    }
    let (_, path) = file.rsplit_once(PACKAGES)?;
    let scope = if path.starts_with('@') { 2 } else { 1 };
    let end = path.match_indices('/').nth(scope - 1);
    Some(end.map_or(path, |(end, _)| &path[..end]))
}

/// Returns whether a line has this text as a string.
fn quotes(line: &str, text: &str) -> bool {
    let quotes = ['"', '\'', '`'];
    !text.is_empty()
        && quotes
            .iter()
            .any(|quote| line.contains(&format!("{quote}{text}{quote}")))
}

/// Returns `file:line: text` of the first line of a source that is wanted, or only the file.
fn shown(folder: &Path, file: &str, is_wanted: impl Fn(usize, &str) -> bool) -> String {
    let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
    let mut lines = text.lines().zip(1..);
    match lines.find(|(line, number)| is_wanted(*number, line)) {
        Some((line, number)) => {
            format!("{file}:{number}: {}", line.trim().trim_end_matches(';'))
        }
        None => file.to_owned(),
    }
}

/// Returns the path of a relative import, without the end that it leaves out.
fn joined(file: &str, original: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in original.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"✘ [ERROR] Could not resolve "net"

    node_modules/pg/lib/stream.js:2:20:
      2 │ const net = require('net')
        ╵                     ~~~~~

  The package "net" wasn't found on the file system but is built into node. Are you trying to bundle for node?

✘ [ERROR] Could not resolve "./order"

    handler.ts:2:7:
      2 │ import "./order";
        ╵        ~~~~~~~~~

✘ [ERROR] Could not resolve "node:fs/promises"

    handler.ts:3:7:
      3 │ import "node:fs/promises";

  The package "node:fs/promises" wasn't found on the file system but is built into node. Are you
"#;

    fn import_of(module: &str, file: &str, line: usize) -> NodeImport {
        NodeImport {
            module: module.to_owned(),
            file: file.to_owned(),
            line,
        }
    }

    fn graph(text: &str) -> Graph {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn modules_of_node_are_read_from_the_output_of_esbuild() {
        let imports = built_in_modules(PRINTED);
        let found: Vec<_> = imports
            .iter()
            .map(|one| (one.module.as_str(), one.file.as_str(), one.line))
            .collect();
        let pg = ("net", "node_modules/pg/lib/stream.js", 2);
        assert_eq!(found, [pg, ("node:fs/promises", "handler.ts", 3)]);
    }

    #[test]
    fn import_is_told_with_its_packages_and_the_worst_module() {
        let folder = tempfile::tempdir().unwrap();
        let source = "import a from \"a\";\nimport { b } from '@b/b/b';\nimport fs from 'fs';\n";
        fs::write(folder.path().join("handler.ts"), source).unwrap();
        let graph = graph(
            r#"{"outputs": {"imports.js.map": {}, "imports.js": {"entryPoint": "handler.ts"}}, "inputs": {
            "handler.ts": {"imports": [
                {"path": "node_modules/a/i.js", "kind": "import-statement", "original": "a"},
                {"path": "node_modules/@b/b/b.js", "kind": "import-statement", "original": "@b/b/b"}]},
            "node_modules/a/i.js": {"imports": [
                {"path": "node_modules/c/c.js", "kind": "require-call", "original": "c"}]},
            "node_modules/c/c.js": {"imports": [
                {"path": "net", "kind": "require-call", "external": true}]},
            "node_modules/@b/b/b.js": {"imports": []}}}"#,
        );
        let lines = graph.needing_node(
            folder.path(),
            &[
                import_of("util", "node_modules/a/i.js", 1),
                import_of("net", "node_modules/c/c.js", 1),
                import_of("tls", "node_modules/c/c.js", 2),
                import_of("events", "node_modules/@b/b/b.js", 1),
                import_of("fs", "handler.ts", 3),
            ],
        );
        let starts = [
            "handler.ts:3: import fs from 'fs': a component does not have the module fs of Node.js; a component has no files",
            "handler.ts:2: import { b } from '@b/b/b': the package @b/b needs events of Node.js, which a component does not have; install",
            "handler.ts:1: import a from \"a\": the package a needs net, tls of Node.js, which a component does not have (a requires c); a component has no sockets",
        ];
        assert_eq!(lines.len(), starts.len(), "{lines:?}");
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn each_module_of_node_has_something_in_its_place() {
        for (module, row) in [
            ("net", 0),
            ("node:dns/promises", 0),
            ("fs/promises", 2),
            ("stream", OTHERS),
            ("events", 5),
            ("node:events", OTHERS),
        ] {
            assert_eq!(row_of(module), row, "{module}");
        }
    }

    #[test]
    fn import_without_its_extension_is_told_with_the_whole_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        let source = "import \"./order\";\nimport(\"../lib\");\nimport \"./order.js\";\n";
        fs::write(folder.path().join("src/handler.js"), source).unwrap();
        let graph = graph(
            r#"{"outputs": {}, "inputs": {
            "src/handler.js": {"imports": [
                {"path": "src/order.js", "kind": "import-statement", "original": "./order"},
                {"path": "lib/index.js", "kind": "dynamic-import", "original": "../lib"},
                {"path": "lib/own.js", "kind": "require-call", "original": "../lib/own"},
                {"path": "src/order.js", "kind": "import-statement", "original": "./order.js"}]},
            "node_modules/a/i.js": {"imports": [
                {"path": "node_modules/a/b.js", "kind": "import-statement", "original": "./b"}]}}}"#,
        );
        let needs = "Node.js, which runs `npm test`, needs the whole name:";
        assert_eq!(
            graph.shortened(folder.path()),
            [
                format!("src/handler.js:1: import \"./order\": {needs} \"./order.js\""),
                format!("src/handler.js:2: import(\"../lib\"): {needs} \"../lib/index.js\""),
            ]
        );
    }

    #[test]
    fn file_belongs_to_its_package() {
        for (file, package) in [
            ("handler.ts", None),
            ("node_modules/pg/lib/index.js", Some("pg")),
            ("node_modules/a/node_modules/@b/c/i.js", Some("@b/c")),
            ("dispatcher-guest/index.js", Some("dispatcher-guest")),
        ] {
            assert_eq!(package_of(file), package, "{file}");
        }
    }
}
