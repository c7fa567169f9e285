//! JSON held to JSON schemas, by Python's `jsonschema`, a validator that is not ours.

use crate::toolchains::python;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};

const PACKAGES: [&str; 1] = ["jsonschema==4.26.0"];

/// Reads `{"components": …, "pairs": [[name, schema, value], …]}` and prints a line for each problem.
const SCRIPT: &str = "
import json, sys
from jsonschema import Draft202012Validator
given = json.load(sys.stdin)
for name, schema, value in given['pairs']:
    whole = dict(schema, components=given['components'])
    Draft202012Validator.check_schema(whole)
    for error in Draft202012Validator(whole).iter_errors(value):
        print(f'{name}: {error.json_path}: {error.message}')
";

/// What is wrong with values, each with its name and its schema, which may refer to `components`.
pub fn problems(components: &Value, pairs: &[(String, Value, Value)]) -> Vec<String> {
    let python = python(&PACKAGES);
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("python starts");
    let input = serde_json::json!({"components": components, "pairs": pairs});
    let mut pipe = child.stdin.take().expect("it is piped");
    pipe.write_all(input.to_string().as_bytes())
        .expect("it reads");
    drop(pipe);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "the validator failed: {output:?}");
    let text = String::from_utf8(output.stdout).expect("it is text");
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_that_breaks_its_schema_is_named() {
        let components = json!({"schemas": {"A": {"type": "object", "required": ["x"]}}});
        let schema = json!({"$ref": "#/components/schemas/A"});
        let pair = |name: &str, value: Value| (name.to_owned(), schema.clone(), value);
        let pairs = [pair("good", json!({"x": 1})), pair("bad", json!({}))];
        let found = problems(&components, &pairs);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("bad: "), "{found:?}");
    }
}
