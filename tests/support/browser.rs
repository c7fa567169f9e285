//! A browser for tests: Debian's chromium driven by Playwright, with axe-core. Installed once per
//! machine beside the other tools, without root. Knows no page.

use crate::debian::Packaged;
use crate::servers::{run, tools_folder};
use crate::toolchains;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// With the fonts that its screenshots are made with, whatever the machine has.
const CHROMIUM: Packaged = Packaged {
    program: "chromium",
    packages: &[
        "chromium",
        "chromium-common",
        "fonts-inter",
        "fonts-dejavu-core",
    ],
    libraries: &[],
};
/// Playwright without its own browser, and the rules of accessibility.
const PACKAGES: [&str; 2] = ["playwright-core@1.65.1", "axe-core@4.14.1"];

/// A command that runs a script with node: `require` finds Playwright and axe-core, and `CHROMIUM` is
/// the browser. Nothing where node is missing.
pub fn script(file: &Path) -> Option<Command> {
    if !toolchains::has(&["node", "npm"], "the browser") {
        return None;
    }
    let root = CHROMIUM.unpacked_with_libraries();
    let modules = node_modules();
    let machine = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let libraries = [machine.clone(), machine.join("pulseaudio")];
    let libraries = std::env::join_paths(libraries).expect("folders make a path");
    let mut command = Command::new("node");
    command
        .arg(file)
        .env("NODE_PATH", modules.join("node_modules"))
        .env("CHROMIUM", root.join("usr/lib/chromium/chromium"))
        .env("BROWSER_LIBRARIES", libraries)
        .env("FONTCONFIG_FILE", fonts(&root));
    Some(command)
}

fn node_modules() -> PathBuf {
    let tools = tools_folder();
    let folder = tools.join(PACKAGES.join("-").replace('@', "-"));
    fs::create_dir_all(&folder).expect("the folder is ours");
    let lock = File::create(tools.join("lock-node")).expect("the folder is ours");
    lock.lock().expect("a local file can be locked");
    let complete = folder.join("complete");
    if !complete.exists() {
        run(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--prefix"])
                .arg(&folder)
                .args(PACKAGES),
            "Playwright could not be installed",
        );
        File::create(&complete).expect("the folder is ours");
    }
    folder
}

/// A configuration in which the fonts are those of the packages alone.
fn fonts(root: &Path) -> OsString {
    let file = root.join("fonts.conf");
    let alias = |name: &str, font: &str| {
        format!("<alias><family>{name}</family><prefer><family>{font}</family></prefer></alias>")
    };
    let text = format!(
        "<?xml version=\"1.0\"?><!DOCTYPE fontconfig SYSTEM \"fonts.dtd\"><fontconfig>\
         <dir>{}</dir><cachedir>{}</cachedir>{}{}</fontconfig>",
        root.join("usr/share/fonts").display(),
        root.join("font-cache").display(),
        alias("system-ui", "Inter"),
        alias("monospace", "DejaVu Sans Mono"),
    );
    if fs::read_to_string(&file).ok().as_deref() != Some(&*text) {
        fs::write(&file, text).expect("the folder is ours");
    }
    file.into_os_string()
}
