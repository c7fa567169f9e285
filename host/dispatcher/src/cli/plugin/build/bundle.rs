//! Prepares a bundle of JavaScript so that stacks lead to the source: names the generators that
//! esbuild makes of async functions, and adds a table of the places in the sources, which is made of
//! the source map.

use super::failed;
use super::imports::{SDK, package_of};
use crate::error::Failure;
use oxc_sourcemap::SourceMap;
use serde_json::json;
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
    let read = fs::read_to_string(&map).map_err(|error| failed(&map, &error))?;
    let read = SourceMap::from_json_string(&read).map_err(|error| failed(&map, &error))?;
    let text = with_names(&text) + &table(&read);
    fs::write(bundle, text).map_err(|error| failed(bundle, &error))
}

/// Returns the place in the project's sources of the first frame that a stack of the bundle has
/// there.
pub(super) fn place_of(stack: &str, bundle: &Path) -> Option<String> {
    let map = fs::read_to_string(bundle.with_extension("js.map")).ok()?;
    place_in(stack, &SourceMap::from_json_string(&map).ok()?)
}

fn place_in(stack: &str, map: &SourceMap<'_>) -> Option<String> {
    let lines = map.generate_lookup_table();
    stack.split("/bundle.js:").skip(1).find_map(|frame| {
        let mut numbers = frame.split(|end: char| !end.is_ascii_digit());
        let line: u32 = numbers.next()?.parse().ok()?;
        let column: u32 = numbers.next()?.parse().ok()?;
        let token = map.lookup_token(&lines, line.checked_sub(1)?, column.checked_sub(1)?)?;
        let file = map.get_source(token.get_source_id()?)?;
        let source = file.strip_prefix(TO_PROJECT)?;
        let line = token.get_src_line() + 1;
        package_of(source)
            .is_none()
            .then(|| format!("{source}:{line}"))
    })
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

/// Returns the statement that sets the table by which `stack.js` of the SDK finds the place in the
/// sources: the sources, and a text with one line for each line of the bundle. Such a line has the
/// parts of the bundle's line, each as `column:source:line:column`. A line of a package has one
/// part, without columns. A line of the adapter or the SDK has none.
fn table(map: &SourceMap<'_>) -> String {
    // The modules of the adapter are beside the bundle.
    let sources: Vec<&str> = map
        .get_sources()
        .map(|source| source.strip_prefix(TO_PROJECT).unwrap_or_default())
        .collect();
    let mut lines: Vec<String> = Vec::new();
    for token in map.get_tokens() {
        let Some(source) = token.get_source_id() else {
            continue;
        };
        let name = sources[source as usize];
        if name.is_empty() || name.starts_with(SDK) {
            continue;
        }
        let at = token.get_dst_line() as usize;
        if lines.len() <= at {
            lines.resize(at + 1, String::new());
        }
        let line = &mut lines[at];
        let source_line = token.get_src_line() + 1;
        if package_of(name).is_none() {
            let separator = if line.is_empty() { "" } else { "," };
            let (column, source_column) = (token.get_dst_col(), token.get_src_col() + 1);
            *line += &format!("{separator}{column}:{source}:{source_line}:{source_column}");
        } else if line.is_empty() {
            *line = format!("0:{source}:{source_line}");
        }
    }
    let table = json!({"sources": sources, "lines": lines.join("\n")});
    format!("globalThis[Symbol.for(\"dispatcher.sources\")] = {table};\n")
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
    fn table_has_the_places_of_each_line() {
        // Line 1 is of the adapter, 2 and 3 of the project, 4 of a package.
        let map = r#"{"version": 3, "names": [],
            "sources": ["entry.js", "../../price.ts", "../../node_modules/zod/core.js"],
            "mappings": "AAAA;ACAA,IAAI;AACJ;ACUA,IAAI"}"#;
        let map = SourceMap::from_json_string(map).expect("a source map");
        let wanted = json!({
            "sources": ["", "price.ts", "node_modules/zod/core.js"],
            "lines": "\n0:1:1:1,4:1:1:5\n0:1:2:1\n0:2:12",
        });
        let wanted = format!("globalThis[Symbol.for(\"dispatcher.sources\")] = {wanted};\n");
        assert_eq!(table(&map), wanted);
        let stack = "at a (/build/adapter/bundle.js:4:1)\n at b (/build/adapter/bundle.js:2:6)\n";
        assert_eq!(place_in(stack, &map).as_deref(), Some("price.ts:1"));
        assert_eq!(place_in("at a (/build/adapter/bundle.js:4:1)", &map), None);
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
