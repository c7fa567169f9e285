//! The SDKs and the contract as packages: each is packed as for its registry, and installed from the
//! archive into a new project in place of the copy that the project has. Nothing is published.

use crate::languages::calls;
use dispatcher_tests::registry::Registry;
use dispatcher_tests::toolchains;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use wit_component::{DecodedWasm, WitPrinter, decode, encode};
use wit_parser::{PackageId, Resolve};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A project that `plugin new` has written.
pub(crate) struct NewProject {
    /// The program's data folder, in which the project is.
    pub(crate) data: Arc<TempDir>,
    pub(crate) folder: PathBuf,
}

impl NewProject {
    pub(crate) fn of(language: &str, name: &str) -> Self {
        let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
        calls(&data, &["plugin", "new", "--lang", language, name]);
        let folder = data.path().join(name);
        Self { data, folder }
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.join(file), text).expect("the project is ours");
    }

    pub(crate) fn change(&self, file: &str, change: impl FnOnce(String) -> String) {
        let text = std::fs::read_to_string(self.folder.join(file)).expect("the project is ours");
        let changed = change(text.clone());
        assert_ne!(changed, text, "{file}");
        self.write(file, &changed);
    }

    /// Runs a tool in its folder.
    pub(crate) fn runs(&self, program: impl AsRef<Path>, arguments: &[&str]) {
        let mut command = Command::new(program.as_ref());
        run(command.args(arguments).current_dir(&self.folder));
    }

    fn loses(&self, folder: &str) {
        std::fs::remove_dir_all(self.folder.join(folder)).expect("the project has it");
    }

    /// With the SDK from the archive that npm makes.
    pub(crate) fn installs_npm_package(&self) {
        self.loses("dispatcher-guest");
        let into = self.data.path();
        let sdk = format!("{ROOT}/guest-sdk/javascript");
        run(Command::new("npm").args(["pack", &sdk]).current_dir(into));
        let archive = archive(into, ".tgz");
        self.change("package.json", |text| {
            text.replace("file:./dispatcher-guest", &format!("file:{archive}"))
        });
    }

    /// With the SDK from a wheel. Returns the archive of the sources, which was made with it.
    pub(crate) fn installs_wheel(&self) -> String {
        self.loses("dispatcher_guest");
        let into = self.data.path();
        // The backend that `pyproject.toml` names, which pip fetches by itself to install the archive.
        let python = toolchains::python(&["flit_core==3.12.0"]);
        let pack = "import sys, flit_core.buildapi as b; b.build_sdist(sys.argv[1]); b.build_wheel(sys.argv[1])";
        run(Command::new(python)
            .args(["-B", "-c", pack])
            .arg(into)
            .current_dir(format!("{ROOT}/guest-sdk/python")));
        let wheel = archive(into, ".whl");
        self.change("requirements.txt", |text| format!("{text}{wheel}\n"));
        archive(into, ".tar.gz")
    }

    /// With the SDK from the archives of its crates, as a registry would have them.
    pub(crate) fn installs_crates(&self) {
        self.loses("dispatcher-guest");
        let into = self.data.path();
        let target = into.join("packed");
        // Without a lock file: the one of the crate would need the registry to have its macros.
        let pack = [
            "package",
            "--no-verify",
            "--allow-dirty",
            "--exclude-lockfile",
        ];
        let crates = ["dispatcher-guest-macros", "dispatcher-guest"];
        let crates = crates.map(|name| ["--package", name]);
        let mut cargo = Command::new("cargo");
        cargo.args(pack).args(crates.as_flattened());
        let manifest = format!("{ROOT}/Cargo.toml");
        cargo.args(["--manifest-path", &manifest, "--target-dir"]);
        run(cargo.arg(&target));
        for name in ["dispatcher-guest-macros-0.1.0", "dispatcher-guest-0.1.0"] {
            let archive = target.join(format!("package/{name}.crate"));
            run(Command::new("tar")
                .arg("xzf")
                .arg(archive)
                .current_dir(into));
        }
        let patch = "\n[patch.crates-io]\n\
                     dispatcher-guest = { path = \"../dispatcher-guest-0.1.0\" }\n\
                     dispatcher-guest-macros = { path = \"../dispatcher-guest-macros-0.1.0\" }\n";
        self.change("Cargo.toml", |text| {
            text.replace("{ path = \"dispatcher-guest\" }", "\"0.1.0\"") + patch
        });
    }

    /// With the contract from an OCI registry.
    pub(crate) fn installs_contract(&self) {
        const FOLDER: &str = "wit/deps/dispatcher-plugin";
        self.loses(FOLDER);
        std::fs::create_dir(self.folder.join(FOLDER)).expect("the project is ours");
        let registry = Registry::open();
        let contract = by_way_of(&registry);
        self.write(&format!("{FOLDER}/package.wit"), &contract);
    }
}

/// Runs a tool with the caches of the tests.
fn run(command: &mut Command) {
    command.envs(toolchains::environment());
    let ended = command.output().expect("its tool starts");
    assert!(ended.status.success(), "{command:?}: {ended:?}");
}

/// The only file in a folder that ends so.
fn archive(folder: &Path, end: &str) -> String {
    let entries = folder.read_dir().expect("the folder is ours").flatten();
    let names = entries.map(|entry| entry.path().display().to_string());
    let mut names = names.filter(|name| name.ends_with(end));
    let only = names.next().expect("an archive was made");
    assert_eq!(names.next(), None);
    only
}

/// Puts the contract into a registry, tagged with its version, and gets it: its text.
fn by_way_of(registry: &Registry) -> String {
    let version = "0.1.0";
    let mut wit = Resolve::default();
    let read = wit.push_path(format!("{ROOT}/wit"));
    let (package, _) = read.expect("the contract is sound");
    let name = wit.packages[package].name.to_string();
    assert_eq!(name, format!("dispatcher:plugin@{version}"));
    let wasm = encode(&wit, package).expect("the contract is sound");
    registry.push_as("dispatcher/plugin", version, &wasm);
    let pulled = registry.pull("dispatcher/plugin", version);
    let decoded = decode(&pulled).expect("it is a package");
    let DecodedWasm::WitPackage(decoded, again) = decoded else {
        panic!("it is a component");
    };
    let text = printed(&decoded, again);
    assert_eq!(text, printed(&wit, package), "nothing is lost");
    text
}

fn printed(wit: &Resolve, package: PackageId) -> String {
    let mut printer = WitPrinter::default();
    let printing = printer.print(wit, package, &[]);
    printing.expect("the package is sound");
    printer.output.into()
}

#[test]
fn contract_is_a_package_of_an_oci_registry() {
    let text = by_way_of(&Registry::open());
    assert!(text.contains("interface batch-handler"), "{text}");
}
