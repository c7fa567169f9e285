//! The packages of Python in the table of `host/docs/languages.md`: those that work do, and the build
//! names the reason of the others.

use crate::languages::{call, calls, package_rows};
use dispatcher_tests::toolchains;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// What those packages require, so that the versions stay the same.
const REQUIRED: [&str; 7] = [
    "MarkupSafe==3.0.4",
    "pyrsistent==0.20.0",
    "six==1.17.0",
    "soupsieve==2.8.3",
    "text-unidecode==1.3",
    "typing_extensions==4.15.0",
    "packaging==25.0",
];

/// A project with these packages and this `app.py`.
fn project(packages: &[String], app: &str) -> Arc<TempDir> {
    let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    calls(&data, &["plugin", "new", "--lang", "python", "packages"]);
    let project = data.path().join("packages");
    std::fs::write(project.join("app.py"), app).expect("the project is ours");
    let list = project.join("requirements.txt");
    let tools = std::fs::read_to_string(&list).expect("the template has it");
    let tool = tools
        .lines()
        .find(|line| line.starts_with("componentize-py"));
    let all = format!("{}\n{}\n", tool.expect("the tool"), packages.join("\n"));
    std::fs::write(list, all).expect("the project is ours");
    data
}

#[test]
fn packages_of_the_page_work_in_a_component() {
    if !toolchains::has(&["python3"], "packages of Python") {
        return;
    }
    let rows = package_rows("package");
    assert_eq!(rows.len(), 24);
    let working: Vec<_> = rows.iter().filter(|row| row.verdict == "works").collect();
    let pinned = working
        .iter()
        .map(|row| format!("{}=={}", row.name, row.version))
        .chain(REQUIRED.map(str::to_owned));
    let app = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/languages/packages.py"),
    );
    let data = project(&pinned.collect::<Vec<_>>(), &app.expect("it is there"));
    let built = calls(&data, &["plugin", "build", "packages"]).0;
    let names = working.iter().map(|row| row.name.as_str());
    for name in names.chain(["encodings"]) {
        let (out, log) = calls(&data, &["plugin", "invoke", built.trim(), name]);
        let line = format!("{name} True");
        assert!(log.contains(&line), "{line}: {out}{log}");
    }
}

#[test]
fn packages_that_cannot_work_are_refused_with_the_reason() {
    if !toolchains::has(&["python3"], "packages of Python") {
        return;
    }
    let reasons = [
        (
            "pydantic",
            "pydantic",
            "the package pydantic_core is compiled code, which a component cannot load; it is required by \
             pydantic; use marshmallow",
        ),
        ("orjson", "orjson", "is compiled code"),
        ("cryptography", "cryptography.fernet", "is compiled code"),
        ("PyJWT", "jwt", "No module named '_ssl'"),
        (
            "boto3",
            "boto3",
            "the Python within a component cannot call out over the network",
        ),
        (
            "numpy",
            "numpy",
            "the package numpy is compiled code, which a component cannot load; use math and statistics",
        ),
        (
            "redis",
            "redis",
            "the Python within a component cannot call out over the network",
        ),
    ];
    for row in package_rows("package")
        .iter()
        .filter(|row| row.verdict != "works")
    {
        let found = reasons.iter().find(|(name, ..)| *name == row.name);
        let (_, module, reason) = found.expect("a reason for each");
        let app = format!("import {module}\n\n\ndef handle(message):\n    pass\n");
        let data = project(&[format!("{}=={}", row.name, row.version)], &app);
        let refused = call(&data, &["plugin", "build", "packages"]);
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains(reason), "{reason}: {told}");
        let line = format!("app.py:1: import {module}");
        assert!(told.contains(&line), "{line}: {told}");
        // Before the component is built.
        assert!(!told.contains("componentize-py --wit-path"), "{told}");
    }
}

#[test]
fn data_files_of_the_project_are_in_the_component() {
    if !toolchains::has(&["python3"], "packages of Python") {
        return;
    }
    let app = r#"import os
from pathlib import Path

HERE = Path(__file__).parent


def handle(message):
    with open("rules/order.json") as file:
        print("relative", file.read().strip())
    print("beside", (HERE / "rules" / "order.json").read_bytes())
    print("listed", sorted(os.listdir(HERE / "rules")), (HERE / "rules").is_dir())
    print("size", os.path.getsize(HERE / "rules/order.json"), os.path.exists("none"))
    try:
        open("rules/none.json")
    except FileNotFoundError as error:
        print("missing", error.filename)
    try:
        open("rules/order.json", "w")
    except OSError as error:
        print("not written", type(error).__name__)
"#;
    let data = project(&[], app);
    let rules = data.path().join("packages/rules");
    std::fs::create_dir(&rules).expect("the project is ours");
    std::fs::write(rules.join("order.json"), "{\"max\": 3}\n").expect("the project is ours");
    let built = calls(&data, &["plugin", "build", "packages"]).0;
    let (out, log) = calls(&data, &["plugin", "invoke", built.trim(), "x"]);
    for line in [
        r#"relative {"max": 3}"#,
        r#"beside b'{"max": 3}\n'"#,
        "listed ['order.json'] True",
        "size 11 False",
        "missing rules/none.json",
        "not written ",
    ] {
        assert!(log.contains(line), "{line}: {out}{log}");
    }
}

#[test]
fn data_files_beyond_the_limit_are_refused_with_the_package() {
    if !toolchains::has(&["python3"], "packages of Python") {
        return;
    }
    let app = "import babel\n\n\ndef handle(message):\n    pass\n";
    let data = project(&["babel==2.17.0".to_owned()], app);
    let refused = call(&data, &["plugin", "build", "packages"]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    for words in [
        "babel: ",
        " bytes of data files",
        "a component keeps at most 16777216",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}
