//! Prepares a bundle of JavaScript so that stacks lead to the source: names the generators that
//! esbuild makes of async functions, and adds the source map.

use super::failed;
use crate::error::Failure;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The bundle's folder in a project, as the sources of its map begin.
const TO_PROJECT: &str = "../../";
/// The call by which esbuild runs an async function as a generator.
const CALL: &str = "return __async(this, ";
/// Names a generator after its function. Stacks show the name of a running generator.
const NAMED: &str = "const __dispatcherNamed = (name) => (self, given, generator) =>
  __async(self, given, Object.defineProperty(generator, \"name\", { value: name }));
";

/// Prepares a bundle, whose map is beside it.
pub(super) fn finish(bundle: &Path) -> Result<(), Failure> {
    let map = bundle.with_extension("js.map");
    let text = fs::read_to_string(bundle).map_err(|error| failed(bundle, &error))?;
    let read = fs::read(&map).map_err(|error| failed(&map, &error))?;
    let read: Value = serde_json::from_slice(&read).map_err(|error| failed(&map, &error))?;
    let text = with_names(&text) + &source_map(read);
    fs::write(bundle, text).map_err(|error| failed(bundle, &error))
}

/// Names the generators of async functions and methods. Keeps every line in its place.
fn with_names(text: &str) -> String {
    let mut named = String::with_capacity(text.len());
    let mut before = "";
    for line in text.lines() {
        match (line.find(CALL), name_of(before)) {
            (Some(at), Some(name)) => {
                let (start, rest) = line.split_at(at);
                let rest = &rest[CALL.len()..];
                let call = format!("{start}return __dispatcherNamed({name:?})(this, {rest}");
                named.push_str(&call);
            }
            _ => named.push_str(line),
        }
        named.push('\n');
        before = line;
    }
    named + NAMED
}

/// Returns the name of the function whose head a line is.
fn name_of(head: &str) -> Option<&str> {
    let head = head.trim_start();
    let head = head
        .strip_suffix(") {")
        .and(head.split_once('('))
        .map(|(name, _)| name)?;
    let name = head.rsplit(' ').next()?.trim_start_matches(['#', '*']);
    let has_other = name.contains(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
    (!name.is_empty() && !has_other && name != "function").then_some(name)
}

/// Returns the statement that sets a source map without the text of the sources.
fn source_map(mut map: Value) -> String {
    if let Some(sources) = map["sources"].as_array_mut() {
        for source in sources {
            if let Some(path) = source.as_str() {
                *source = path.strip_prefix(TO_PROJECT).unwrap_or(path).into();
            }
        }
    }
    let text = Value::from(map.to_string());
    format!("globalThis[Symbol.for(\"dispatcher.sourcemap\")] = {text};\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_are_named_after_their_functions() {
        let text = "function load(id) {\n  return __async(this, null, function* () {\n  });\n}\n\
            var handler = {\n  handle(message) {\n    return __async(this, arguments, function* () {\n";
        let named = with_names(text);
        let lines: Vec<_> = named.lines().collect();
        assert_eq!(
            lines[1],
            "  return __dispatcherNamed(\"load\")(this, null, function* () {"
        );
        assert_eq!(
            lines[6],
            "    return __dispatcherNamed(\"handle\")(this, arguments, function* () {"
        );
        assert_eq!(with_names("a(\n  b);\n"), format!("a(\n  b);\n{NAMED}"));
    }

    #[test]
    fn head_of_a_function_has_its_name() {
        for (head, name) in [
            ("function load(id) {", Some("load")),
            ("  async *#each(a, b) {", Some("each")),
            ("  if (x) {", None),
            ("const f = function(x) {", None),
            ("}", None),
        ] {
            assert_eq!(name_of(head), name, "{head}");
        }
    }
}
