//! C: zig, or clang with the libc of WASI, builds a core module from all sources and the bindings'
//! object. The module is wrapped here.

use super::{Project, failed, read, tool, wrapped};
use crate::cli::plugin::language::Language;
use crate::error::Failure;
use dispatcher_wasm::wrap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const INSTALL: &str = "python3 -m pip install ziglang (or the WASI SDK, with WASI_SDK_PATH)";
/// The folder of Debian's wasi-libc.
const DEBIAN: &str = "/usr/include/wasm32-wasi";
/// Warnings that are errors here: a handler that ends without `return` would return an arbitrary
/// verdict, perhaps done; a handler that differs from the bindings' declaration is never called.
const ERRORS: [&str; 4] = [
    "-Werror=return-type",
    "-Werror=implicit-function-declaration",
    "-Werror=int-conversion",
    "-Werror=incompatible-pointer-types",
];
/// The folders with sources of a project and with the object of the bindings.
const FOLDERS: [&str; 3] = ["", "src", "bindings"];

pub(super) fn build(project: &Project) -> Result<PathBuf, Failure> {
    let compiler = compiler()?;
    wrapped(project, Language::C, |core| {
        let mut command = Command::new(&compiler[0]);
        command.args(&compiler[1..]).current_dir(&project.folder);
        // A library rather than a program, because its functions are called repeatedly.
        command.args(["-mexec-model=reactor", "-O2", "-Wall", "-I."]);
        command.args(ERRORS).arg("-o").arg(core);
        for folder in FOLDERS {
            command.args(sources(folder, &project.names(folder)));
        }
        tool::run(&mut command)?;
        wrap::without_debug(&read(core)?).map_err(|why| failed(core, &why))
    })
}

/// Returns the files of a folder to compile and link.
fn sources(folder: &str, names: &[String]) -> Vec<PathBuf> {
    let names = names.iter();
    let wanted = names.filter(|name| {
        // Other objects in the project are not checked.
        name.ends_with(".c") || folder == "bindings" && name.ends_with(".o")
    });
    wanted.map(|name| Path::new(folder).join(name)).collect()
}

/// Returns the first compiler found: the WASI SDK, zig, zig of the Python package, Debian's clang.
fn compiler() -> Result<Vec<OsString>, Failure> {
    if let Some(kit) = std::env::var_os("WASI_SDK_PATH") {
        let clang = Path::new(&kit).join("bin/clang");
        return Ok(words(&clang, &["--target=wasm32-wasip1"]));
    }
    if let Some(zig) = tool::find("zig") {
        return Ok(words(&zig, &["cc", "--target=wasm32-wasi"]));
    }
    if let Some(python) = tool::find("python3")
        && tool::works(Command::new(&python).args(["-c", "import ziglang"]))
    {
        return Ok(words(
            &python,
            &["-m", "ziglang", "cc", "--target=wasm32-wasi"],
        ));
    }
    match tool::find("clang") {
        Some(clang) if Path::new(DEBIAN).exists() => {
            Ok(words(&clang, &["--target=wasm32-wasi", "--sysroot=/usr"]))
        }
        _ => Err(tool::missing("C compiler for WebAssembly", INSTALL)),
    }
}

fn words(program: &Path, arguments: &[&str]) -> Vec<OsString> {
    let arguments = arguments.iter().map(OsString::from);
    std::iter::once(program.into()).chain(arguments).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_compiled_and_linked_with_the_bindings_object() {
        let names = ["a.c", "a.h", "old.o", "notes.md"].map(str::to_owned);
        assert_eq!(sources("", &names), [Path::new("a.c")]);
        let found = sources("bindings", &names);
        assert_eq!(
            found,
            [Path::new("bindings/a.c"), Path::new("bindings/old.o")]
        );
    }
}
