//! A browser for tests: Debian's chromium driven by Playwright, with axe-core. Installed once per
//! machine beside the other tools, without root. Knows no page.

use crate::debian::DebianProgram;
use crate::toolchains::node_packages;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

/// With the fonts that its screenshots are made with, whatever the machine has.
const CHROMIUM: DebianProgram = DebianProgram {
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
    let modules = node_packages(&PACKAGES)?;
    let root = CHROMIUM.unpacked_with_libraries();
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
