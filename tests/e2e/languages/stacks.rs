//! An uncaught exception is one record of the log, and its stack has the functions, files and lines of the
//! project's sources.

use crate::languages::{call, calls};
use crate::scene::field;
use dispatcher_tests::toolchains;
use std::sync::Arc;
use tempfile::TempDir;

const NAME: &str = "priced";

/// A project of a language with these files, built.
fn project(language: &str, files: &[(&str, &str)]) -> (Arc<TempDir>, String) {
    let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    calls(&data, &["plugin", "new", "--lang", language, NAME]);
    for (file, text) in files {
        std::fs::write(data.path().join(NAME).join(file), text).expect("the project is ours");
    }
    let component = calls(&data, &["plugin", "build", NAME]).0.trim().to_owned();
    (data, component)
}

/// The records that one attempt logs about the exception.
fn records(data: &Arc<TempDir>, component: &str, body: &str) -> Vec<String> {
    let invoke = ["plugin", "invoke", component, body, "--log-format", "json"];
    let ended = call(data, &invoke);
    let log = String::from_utf8_lossy(&ended.stderr).into_owned();
    let records = log.lines().filter(|line| line.contains("\"guest\""));
    records.map(str::to_owned).collect()
}

#[test]
fn stack_of_typescript_has_functions_files_and_lines_of_the_source() {
    if !toolchains::has(&["node", "npm"], "the handler in TypeScript") {
        return;
    }
    let handler = r#"import type { Handler, Message } from "dispatcher-guest";
import { price } from "./price.js";

async function rate(): Promise<number> {
  const response = await fetch("http://127.0.0.1:1/rates?key=secret");
  return response.json();
}

async function load(id: string): Promise<number> {
  await null;
  return price(id);
}

export const handler: Handler = {
  async handle(message: Message) {
    const { id } = message.json() as { id: string };
    if (id === "rate") console.log(await rate());
    console.log(await load(id));
  },
};
"#;
    let price = r#"// A comment, and types that are gone in JavaScript.
interface Prices {
  [id: string]: number;
}

const prices: Prices = { a: 1 };

export function price(id: string): number {
  const found = prices[id];
  if (found === undefined) throw new RangeError(`no price for ${id}`);
  return found;
}
"#;
    let (data, component) = project("ts", &[("handler.ts", handler), ("price.ts", price)]);
    for (body, texts) in [
        (
            r#"{"id": "x"}"#,
            [
                "uncaught RangeError: no price for x",
                "price (price.ts:10:",
                " ← load (handler.ts:11:",
            ],
        ),
        (
            r#"{"id": "rate"}"#,
            [
                "uncaught TypeError: fetch failed: the configuration does not allow",
                "send requests to http://127.0.0.1:1/rates; --allow-http",
                "rate (handler.ts:5:",
            ],
        ),
    ] {
        let records = records(&data, &component, body);
        let [record] = &records[..] else {
            panic!("wanted one record: {records:?}");
        };
        for text in texts {
            assert!(record.contains(text), "{text}: {record}");
        }
        assert!(!record.contains("bundle.js"), "{record}");
        assert!(!record.contains("secret"), "{record}");
    }
}

#[test]
fn stack_of_python_has_functions_files_lines_and_causes() {
    if !toolchains::has(&["python3"], "the handler in Python") {
        return;
    }
    let app = "from prices import price\n\n\ndef handle(message):\n    print(price(message.json()[\"id\"]))\n";
    let prices = "PRICES = {\"a\": 1}\n\n\ndef price(name):\n    try:\n        return PRICES[name]\n    \
                  except KeyError as error:\n        raise ValueError(f\"no price for {name}\") from error\n";
    let (data, component) = project("python", &[("app.py", app), ("prices.py", prices)]);
    let records = records(&data, &component, r#"{"id": "x"}"#);
    assert_eq!(records.len(), 1, "{records:?}");
    let text = "uncaught ValueError: no price for x; caused by KeyError: 'x'";
    assert!(records[0].contains(text), "{records:?}");
    let stack = field(&records[0], "fields").to_owned();
    assert!(
        stack.contains("price (prices.py:8) ← handle (app.py:5)"),
        "{stack}"
    );
}
