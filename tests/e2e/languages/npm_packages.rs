//! The packages of npm in the table of `host/docs/languages.md`: those that work do, and of the others
//! the build or the attempt tells the reason. How imports and tests of a project are checked.

use crate::languages::page_examples::shown;
use crate::languages::sdk_packages::NewProject;
use crate::languages::{PackageRow, call, calls, package_rows};
use dispatcher_tests::service::{JobService, PostedRequest, ServiceStep};
use dispatcher_tests::toolchains;

const PAGE: &str = "host/docs/languages.md";
/// The project's name.
const PACKAGES: &str = "packages";
/// The handlers of packages that are built, but fail at their first use.
const FAIL: [(&str, &str); 3] = [
    (
        "luxon",
        r#"
import { DateTime } from "luxon";
const use = () => DateTime.fromISO("2026-11-28").day;
"#,
    ),
    (
        "jose",
        r#"
import { SignJWT } from "jose";
const use = () => new SignJWT({ id: "o-1" });
"#,
    ),
    (
        "@aws-sdk/client-s3",
        r#"
import { PutObjectCommand, S3Client } from "@aws-sdk/client-s3";
const credentials = { accessKeyId: "test", secretAccessKey: "test" };
const client = new S3Client({ region: "eu-central-1", credentials });
const use = () => client.send(new PutObjectCommand({ Bucket: "b", Key: "k", Body: "text" }));
"#,
    ),
];

/// A project with these packages.
fn project(language: &str, rows: &[PackageRow]) -> NewProject {
    let project = NewProject::of(language, PACKAGES);
    let packages: Vec<_> = rows
        .iter()
        .map(|row| (row.name.as_str(), row.version.as_str()))
        .collect();
    adds(&project, &packages);
    project
}

/// Adds these packages to the dependencies of a project.
fn adds(project: &NewProject, packages: &[(&str, &str)]) {
    project.change("package.json", |text| {
        let mut list: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        for (name, version) in packages {
            list["dependencies"][name] = (*version).into();
        }
        list.to_string()
    });
}

/// Returns the output of a build that is refused.
#[track_caller]
fn refused(project: &NewProject) -> String {
    let refused = call(&project.data, &["plugin", "build", PACKAGES]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    told
}

#[test]
fn schema_of_the_page_is_prepared_in_the_build_and_rejects_malformed_orders() {
    if !toolchains::has(&["node", "npm"], "packages of npm") {
        return;
    }
    let schema = shown(PAGE, "js", "safeParse");
    let handler = format!(
        r#"import {{ Reject }} from "dispatcher-guest";
{schema}
export const handler = {{
  handle(message) {{
    const order = Order.safeParse(message.json());
    if (!order.success) throw new Reject(order.error.issues[0].path.join());
    console.log(`order ${{order.data.id}}: ${{order.data.amount}}`);
  }},
}};
"#
    );
    let project = NewProject::of("javascript", PACKAGES);
    adds(&project, &[("zod", "4.6.7")]);
    project.write("handler.js", &handler);
    let component = calls(&project.data, &["plugin", "build", PACKAGES]).0;
    for (order, verdict) in [
        (r#"{"id": "o-1", "amount": 250}"#, "done"),
        (r#"{"id": "o-1", "amount": "much"}"#, "reject: amount"),
        ("{}", "reject: id"),
    ] {
        let invoke = ["plugin", "invoke", component.trim(), order];
        let invoked = call(&project.data, &invoke);
        let told = String::from_utf8_lossy(&invoked.stdout);
        assert_eq!(told.trim(), verdict, "{order}: {invoked:?}");
    }
}

#[test]
fn packages_of_the_page_work_in_typescript() {
    if !toolchains::has(&["node", "npm"], "packages of npm") {
        return;
    }
    let rows: Vec<_> = package_rows("npm package")
        .into_iter()
        .filter(|row| row.verdict.starts_with("works"))
        .collect();
    assert_eq!(rows.len(), 15);
    let project = project("typescript", &rows);
    adds(&project, &[("@types/lodash", "4.17.27")]);
    project.write("handler.ts", include_str!("packages.ts"));
    let component = calls(&project.data, &["plugin", "build", PACKAGES]).0;
    let api = JobService::start(|_: &PostedRequest| ServiceStep::status(200));
    let host = api.url().replace("http://", "").replace("/jobs", "");
    for row in rows {
        let body = format!("{} {}", row.name, api.url());
        let invoke = ["plugin", "invoke", component.trim(), &body];
        let invoke = [&invoke[..], &["--allow-http", &host]].concat();
        let (out, log) = calls(&project.data, &invoke);
        let told = format!("{} true", row.name);
        assert!(log.contains(&told), "{told}: {out}{log}");
    }
}

#[test]
fn packages_that_cannot_work_are_told_with_the_import_and_the_reason() {
    if !toolchains::has(&["node", "npm"], "packages of npm") {
        return;
    }
    let rows: Vec<_> = package_rows("npm package")
        .into_iter()
        .filter(|row| !row.verdict.starts_with("works"))
        .collect();
    assert_eq!(rows.len(), 7);
    let project = project("typescript", &rows);
    adds(&project, &[("@types/luxon", "3.7.1")]);
    for row in rows {
        let reason = row.verdict.split('`').nth(1).expect("a reason for each");
        if let Some((_, used)) = FAIL.iter().find(|(name, _)| *name == row.name) {
            let handler = "export const handler = { async handle() { await use(); } };\n";
            project.write("handler.ts", &format!("{used}{handler}"));
            let component = calls(&project.data, &["plugin", "build", PACKAGES]).0;
            let invoked = call(&project.data, &["plugin", "invoke", component.trim(), "x"]);
            let told = String::from_utf8_lossy(&invoked.stdout);
            let wanted = format!("retry: uncaught ReferenceError: {reason} is not defined");
            assert_eq!(told.trim(), wanted, "{invoked:?}");
            continue;
        }
        let import = format!("import * as it from \"{}\"", row.name);
        let handler = "export const handler = { handle: () => console.log(it) };";
        project.write("handler.ts", &format!("\n{import};\n{handler}\n"));
        let told = refused(&project);
        let start = format!(
            "error: handler.ts:2: {import}: the package {} needs ",
            row.name
        );
        let line = told.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("{start}: {told}"));
        assert!(line.contains(reason), "{reason}: {line}");
        assert!(!told.contains("tsc"), "before the compiler: {told}");
    }
}

#[test]
fn modules_of_node_and_shortened_names_are_refused_in_javascript() {
    if !toolchains::has(&["node", "npm"], "packages of npm") {
        return;
    }
    let project = NewProject::of("javascript", PACKAGES);
    adds(&project, &[("jsonwebtoken", "9.0.3")]);
    project.write(
        "handler.js",
        r#"import { readFileSync } from "node:fs";
import jwt from 'jsonwebtoken';
export const handler = { handle: () => console.log(jwt, readFileSync) };
"#,
    );
    let told = refused(&project);
    for line in [
        "error: handler.js:1: import { readFileSync } from \"node:fs\": a component does not have the \
         module node:fs of Node.js; a component has no files",
        "error: handler.js:2: import jwt from 'jsonwebtoken': the package jsonwebtoken needs crypto of \
         Node.js, which a component does not have; use `crypto.subtle.digest`",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    project.write(
        "handler.js",
        r#"import { check } from "./order";
export const handler = { handle: (message) => void check(message.json()) };
"#,
    );
    let told = refused(&project);
    let line = "error: handler.js:1: import { check } from \"./order\": Node.js, which runs `npm test`, \
                needs the whole name: \"./order.js\"";
    assert!(told.contains(line), "{told}");
}

#[test]
fn project_in_typescript_is_built_without_its_tests_and_tested_from_its_sources() {
    if !toolchains::has(&["node", "npm"], "the handler in TypeScript") {
        return;
    }
    let project = NewProject::of("typescript", PACKAGES);
    calls(&project.data, &["plugin", "build", PACKAGES]);
    assert!(!project.folder.join("build/js/handler.test.js").exists());
    // Of tests that are no longer there.
    for folder in ["js", "test"] {
        let folder = format!("build/{folder}");
        std::fs::create_dir_all(project.folder.join(&folder)).expect("the project is ours");
        project.write(
            &format!("{folder}/old.test.js"),
            "throw new Error(\"stale\");\n",
        );
    }
    project.runs("npm", &["test"]);

    project.write("fee.ts", "export const fee = 7;\n");
    let print = "    console.log(`order";
    project.change("handler.ts", |text| {
        let text = text.replace(
            print,
            &format!("    console.log(process.env.FEE ?? fee);\n{print}"),
        );
        format!("import {{ fee }} from \"./fee\";\n{text}")
    });
    let told = refused(&project);
    assert!(
        told.contains("do not install the types of Node.js"),
        "{told}"
    );
    assert!(told.contains("Did you mean './fee.js'?"), "{told}");
    // As a package does whose types need those of Node.js, which the template has for its tests.
    project.change("handler.ts", |text| {
        let text = text.replace("\"./fee\"", "\"./fee.js\"");
        format!("/// <reference types=\"node\" />\n{text}")
    });
    calls(&project.data, &["plugin", "build", PACKAGES]);
    project.runs("npm", &["test"]);
}
