//! JavaScript and TypeScript: npm installs the project's tools: the TypeScript compiler, esbuild,
//! which bundles all modules into one, and componentize-qjs, which builds the component.

use super::adapter::{self, ProjectWorld};
use super::{Project, bundle, imports, tool};
use crate::cli::plugin::language::Language;
use crate::error::{Exit, Failure};
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use std::path::{Path, PathBuf};
use std::process::Command;

const INSTALL: &str = "Node.js 20 or later (Debian: apt-get install nodejs npm)";
const OLDEST: (u32, u32) = (20, 0);
/// The entry of a project whose package.json names none.
const ENTRY: &str = "handler.js";

pub(super) fn build(project: &Project, is_typed: bool) -> Result<PathBuf, Failure> {
    install(project)?;
    let lang = if is_typed {
        Language::TypeScript
    } else {
        Language::JavaScript
    };
    let world = ProjectWorld::of(project).map_err(|failure| explained(failure, hint_of_engine))?;
    let main = entry(project)?;
    let source = if is_typed {
        source_of(project, &main)
    } else {
        Some(main.clone())
    };
    // A project with other folders is checked by its compiler and the bundler alone.
    if let Some(source) = source {
        imports::check(
            project,
            esbuild(project, &world, Path::new(&source))?,
            is_typed,
        )?;
    }
    if is_typed {
        compile(project)?;
    }
    let entry = adapter::javascript(project, &world, &main)?;
    let bundle = entry.with_file_name("bundle.js");
    tool::run_or_hint(
        bundler(project, &world, &entry, &bundle)?.arg("--log-level=warning"),
        hint_of_bundler,
    )?;
    bundle::finish(&bundle)?;
    let program = installed(project, "componentize-qjs", "componentize-qjs")?;
    let mut convert = Command::new(program);
    convert.current_dir(&project.folder);
    convert.args(["--wit", "wit"]);
    let calls_http = world.imports_of("wasi:http") || world.imports_of("wasi:sockets");
    project.place(lang, |component| {
        convert.arg("--js").arg(&bundle).arg("-o").arg(component);
        tool::run_or_hint(&mut convert, |heard| {
            if calls_http {
                return Some(NO_HTTP.into());
            }
            // A module that fails while it is loaded.
            let place = bundle::place_of(heard, &bundle);
            hint_of_engine(heard).or_else(|| Some(format!("it is at {}", place?)))
        })
    })
}

fn compile(project: &Project) -> Result<(), Failure> {
    let mut tsc = Command::new(installed(project, "tsc", "typescript")?);
    tsc.current_dir(&project.folder);
    tool::run(&mut tsc).map_err(|failure| {
        // Its output went to the user as it was, with colors.
        let heard = tool::complaints(tsc.args(["--noEmit", "--pretty", "false"]));
        explained(failure, |_| {
            hint_of_compiler(heard.as_deref().unwrap_or_default())
        })
    })
}

/// Returns the command of esbuild that bundles a module with all that it imports.
fn esbuild(project: &Project, world: &ProjectWorld, module: &Path) -> Result<Command, Failure> {
    let mut command = Command::new(installed(project, "esbuild", "esbuild")?);
    command.current_dir(&project.folder).arg(module);
    // The browser versions of packages need no Node.js.
    command.args([
        "--bundle",
        "--format=esm",
        "--platform=browser",
        "--main-fields=browser,module,main",
        "--define:process.env.NODE_ENV=\"production\"",
    ]);
    for namespace in &world.namespaces {
        command.arg(format!("--external:{namespace}:*"));
    }
    Ok(command)
}

/// Returns the command that bundles the modules of the project, its packages and the adapter. Async
/// functions become generators, so that the adapter's `Promise` tracks every promise.
fn bundler(
    project: &Project,
    world: &ProjectWorld,
    entry: &Path,
    bundle: &Path,
) -> Result<Command, Failure> {
    let mut command = esbuild(project, world, entry)?;
    command.args([
        "--keep-names",
        "--sourcemap=external",
        "--sources-content=false",
        "--charset=utf8",
        "--supported:async-await=false",
    ]);
    command.arg(format!("--outfile={}", bundle.display()));
    Ok(command)
}

const NO_HTTP: &str = "JavaScript and TypeScript call HTTP with `fetch`, by \
    dispatcher:plugin/http@0.1.0: componentize-qjs cannot link a component that imports \
    wasi:http or wasi:sockets. Remove the import from wit/world.wit";
const NO_ASYNC: &str = "componentize-qjs links no asynchronous imports except those of WASI: \
                        import the synchronous interface in wit/world.wit, such as \
                        dispatcher:plugin/queues in place of queues-async";
const NO_NODE: &str = "the engine is QuickJS, without the modules of Node.js: use a package that \
    needs none of them, or install what is missing";
const NO_NODE_GLOBALS: &str = "the engine is QuickJS, without the globals of Node.js: read settings \
    with `setting(\"NAME\")` of dispatcher-guest, and use a package that works in a browser";
const NO_NODE_TYPES: &str = "do not install the types of Node.js: they hide that a component does not \
    have it; read settings with `setting(\"NAME\")` of dispatcher-guest, and use `Uint8Array` for bytes";
const NO_NATIVE: &str = "the package is native code, which a component cannot load: leave this work \
    to a service, and call it with `fetch`";
const NO_TOP_LEVEL_AWAIT: &str = "move the `await` into `handle`: a component cannot wait while \
                                  its modules are loaded";

/// Returns a hint on the output of tsc, which advises to install the types of Node.js.
fn hint_of_compiler(heard: &str) -> Option<String> {
    let names_node = ["TS2580", "TS2591"].iter().any(|code| heard.contains(code));
    names_node.then(|| NO_NODE_TYPES.into())
}

/// Returns a hint on the output of esbuild.
fn hint_of_bundler(heard: &str) -> Option<String> {
    let hint = if heard.contains("Could not resolve") {
        NO_NODE
    } else if heard.contains("No loader is configured for \".node\" files") {
        NO_NATIVE
    } else if heard.contains("Top-level await") {
        NO_TOP_LEVEL_AWAIT
    } else {
        return None;
    };
    Some(hint.into())
}

/// Returns a hint on the output of componentize-qjs, or on a world that does not parse.
fn hint_of_engine(heard: &str) -> Option<String> {
    if heard.contains("type mismatch with async") {
        return Some(NO_ASYNC.into());
    }
    let globals = [
        "process",
        "Buffer",
        "require",
        "module",
        "global",
        "__dirname",
    ];
    if globals
        .iter()
        .any(|name| heard.contains(&format!("{name} is not defined")))
    {
        return Some(NO_NODE_GLOBALS.into());
    }
    let packages = ["wasi:http", "wasi:sockets"];
    let names_http = packages.iter().any(|package| heard.contains(package));
    (names_http || heard.contains("mismatched resource types")).then(|| NO_HTTP.into())
}

fn explained(mut failure: Failure, hint: impl Fn(&str) -> Option<String>) -> Failure {
    for line in &mut failure.lines {
        if let Some(why) = hint(line) {
            *line = format!("{line}; {why}");
        }
    }
    failure
}

/// Installs the packages of package.json, unless they are installed.
fn install(project: &Project) -> Result<(), Failure> {
    tool::need("node", INSTALL)?;
    let list = project.folder.join("package.json");
    let installed = project.folder.join("node_modules/.package-lock.json");
    if !tool::is_stale(&list, &installed) {
        return Ok(());
    }
    tool::need_version("node", &["--version"], OLDEST, INSTALL)?;
    let mut npm = Command::new(tool::need("npm", INSTALL)?);
    let quiet = ["install", "--no-audit", "--no-fund"];
    tool::run(npm.current_dir(&project.folder).args(quiet))
}

/// Returns the path of one of the project's tools.
fn installed(project: &Project, name: &str, package: &str) -> Result<PathBuf, Failure> {
    let file = project.folder.join("node_modules/.bin").join(name);
    if file.exists() {
        return Ok(file);
    }
    let list = project.folder.join("package.json");
    let what = format!("{}: does not list {package}", list.display());
    let install = format!("install it: npm install --save-dev {package}");
    Err(Failure::new(
        Exit::Unreachable,
        format!("{what}; {install}"),
    ))
}

/// Returns the file that exports the handler: `main` in package.json.
fn entry(project: &Project) -> Result<String, Failure> {
    let list = project.folder.join("package.json");
    let read = bounded::read(&list, Limits::SMALL).map_err(|error| error.to_string());
    let entry = read.and_then(|bytes| entry_of(&bytes).map_err(|error| error.to_string()));
    entry.map_err(|why| Failure::new(Exit::Usage, format!("{}: {why}", list.display())))
}

/// Returns the source that the compiler makes `main` of, by the folders that projects have: the
/// project's own, or `src`.
fn source_of(project: &Project, main: &str) -> Option<String> {
    let (stem, _) = main.rsplit_once('.')?;
    let parts: Vec<&str> = stem.split('/').collect();
    let stems = (0..parts.len()).map(|skipped| parts[skipped..].join("/"));
    let places = stems.flat_map(|stem| [stem.clone(), format!("src/{stem}")]);
    let mut files =
        places.flat_map(|place| ["ts", "tsx", "mts"].map(|end| format!("{place}.{end}")));
    files.find(|file| project.folder.join(file).is_file())
}

fn entry_of(package: &[u8]) -> Result<String, serde_json::Error> {
    let package: serde_json::Value = serde_json::from_slice(package)?;
    Ok(package["main"].as_str().unwrap_or(ENTRY).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_file_is_main_of_the_package() {
        for (package, entry) in [
            (r#"{"main": "a.js"}"#, Some("a.js")),
            ("{}", Some(ENTRY)),
            ("{", None),
        ] {
            let found = entry_of(package.as_bytes()).ok();
            assert_eq!(found.as_deref(), entry, "{package}");
        }
    }

    #[test]
    fn source_is_found_by_the_name_of_main() {
        let folder = tempfile::tempdir().unwrap();
        let project = Project::open(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        assert_eq!(source_of(&project, "build/js/handler.js"), None);
        for file in ["src/handler.ts", "handler.v2.ts"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        for (main, source) in [
            ("build/js/handler.js", "src/handler.ts"),
            ("build/js/src/handler.js", "src/handler.ts"),
            ("./build/handler.v2.js", "handler.v2.ts"),
        ] {
            assert_eq!(source_of(&project, main).as_deref(), Some(source), "{main}");
        }
    }

    #[test]
    fn finding_24_node_tool_errors_are_explained() {
        let linked = "component imports instance `wasi:http/types@0.2.12`, but a matching \
                      implementation was not found in the linker: instance export `input-stream` \
                      has the wrong type: mismatched resource types";
        assert_eq!(hint_of_engine(linked).as_deref(), Some(NO_HTTP));
        assert_eq!(hint_of_engine("uncaught SyntaxError"), None);
        let later = "instance export `send` has the wrong type: type mismatch with async";
        assert_eq!(hint_of_engine(later).as_deref(), Some(NO_ASYNC));
        let global = "Error: process is not defined";
        assert_eq!(hint_of_engine(global).as_deref(), Some(NO_NODE_GLOBALS));
        let node = "✘ [ERROR] Could not resolve \"node:fs\"";
        assert_eq!(hint_of_bundler(node).as_deref(), Some(NO_NODE));
        assert_eq!(hint_of_bundler("✘ [ERROR] Expected \";\""), None);
        let types = "handler.ts(4,1): error TS2591: Cannot find name 'process'.";
        assert_eq!(hint_of_compiler(types).as_deref(), Some(NO_NODE_TYPES));
        assert_eq!(
            hint_of_compiler("error TS2304: Cannot find name 'Blob'."),
            None
        );
        let unread = Failure::new(Exit::Failed, "package 'wasi:http@0.2.12' not found");
        let told = explained(unread, hint_of_engine).lines;
        assert!(told[0].ends_with(NO_HTTP), "{told:?}");
    }
}
