//! Files that mean harm: components of thousands of parts, nested without end, cut or made up. Each
//! is loaded or refused, with problems that can be read; none breaks the loader.

use super::super::inspect;
use super::*;

/// How often a part is repeated: nearly as often as the engine allows, which is a thousand times.
const MANY: usize = 900;

/// Loaded and looked at; the reasons why it is no plugin.
fn refused(text: &str) -> Vec<String> {
    refused_bytes(&wat::parse_str(text).unwrap())
}

fn refused_bytes(bytes: &[u8]) -> Vec<String> {
    let seen = inspect::bytes(bytes);
    assert!(!seen.problems.is_empty());
    let runtime = runtime(1);
    let error = runtime.load_bytes("hostile", bytes, options()).unwrap_err();
    let good = super::load(&runtime, "bench-bare", options());
    assert_eq!(one(&good, "done"), Verdict::Done);
    let problems = error.problems.iter().map(ToString::to_string);
    problems
        .inspect(|line| assert!(!line.contains('\n'), "{line}"))
        .collect()
}

fn repeated(count: usize, part: impl Fn(usize) -> String) -> String {
    (0..count).map(part).collect()
}

#[test]
fn thousands_of_imports_are_each_refused() {
    let imports = repeated(MANY, |n| {
        format!(r#"(import "acme:anvil/drop{n}@1.0.0" (instance)) "#)
    });
    let problems = refused(&format!("(component {imports})"));
    assert_eq!(problems.len(), MANY + 1);
    assert!(problems[17].contains("drop17"), "{}", problems[17]);
    let imports = repeated(20_000, |n| format!(r#"(import "a:b/c{n}" (instance)) "#));
    let problems = refused(&format!("(component {imports})"));
    assert_eq!(problems.len(), 1, "more than the engine counts");
}

#[test]
fn thousands_of_exports_give_a_short_message() {
    // Each counts twice.
    let exports = repeated(MANY / 2, |n| {
        format!(r#"(instance $i{n}) (export "e{n}" (instance $i{n})) "#)
    });
    let problems = refused(&format!("(component {exports})"));
    assert_eq!(problems.len(), 1);
    assert!(problems[0].len() < 1_000, "{}", problems[0].len());
    assert!(problems[0].contains("e0, e1"), "{}", problems[0]);
}

#[test]
fn thousands_of_types_and_functions_are_loaded_or_refused() {
    let types = repeated(MANY, |n| format!(r#"(type (record (field "f{n}" u32))) "#));
    assert_eq!(refused(&format!("(component {types})")).len(), 1);
    let functions = repeated(MANY, |n| format!("(func (result i32) i32.const {n}) "));
    let modules = format!("(component (core module {functions}))");
    assert_eq!(refused(&modules).len(), 1);
}

#[test]
fn component_with_too_many_instances_is_refused() {
    let text = format!(
        "(component (core module $m (memory 1)) {})",
        repeated(100, |_| "(core instance (instantiate $m)) ".into())
    );
    let problems = refused(&text);
    assert!(
        problems.iter().any(|line| line.contains("memories")),
        "{problems:?}"
    );
}

/// A section of a component: its id, its length, its bytes.
fn section(id: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![id];
    let mut length = content.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend_from_slice(content);
    out
}

const HEAD: &[u8] = b"\0asm\x0d\0\x01\0";

#[test]
fn endlessly_nested_components_are_refused() {
    for depth in [10, 1_500] {
        let mut nested = HEAD.to_vec();
        for _ in 0..depth {
            let inner = section(4, &nested);
            nested = HEAD.to_vec();
            nested.extend(inner);
        }
        assert!(!refused_bytes(&nested).is_empty());
    }
}

#[test]
fn endlessly_nested_types_are_refused() {
    for depth in [50, 2_000] {
        let mut text = "(type $t0 u8) ".to_owned();
        for n in 1..=depth {
            text += &format!("(type $t{n} (list $t{})) ", n - 1);
        }
        assert!(!refused(&format!("(component {text})")).is_empty());
    }
}

#[test]
fn exponentially_growing_type_is_refused() {
    let mut text = "(type $t0 (tuple u8 u8)) ".to_owned();
    for n in 1..64 {
        text += &format!("(type $t{n} (tuple $t{0} $t{0})) ", n - 1);
    }
    text += r#"(import "f" (func (param "x" $t63)))"#;
    assert!(
        wat::parse_str(format!("(component {text})"))
            .map_or(true, |bytes| !refused_bytes(&bytes).is_empty())
    );
}

#[test]
fn truncated_component_does_not_break_the_loader() {
    let whole = std::fs::read(prebuilt("bench-bare")).unwrap();
    let runtime = runtime(1);
    for end in (0..whole.len()).step_by(23) {
        match runtime.load_bytes("cut", &whole[..end], options()) {
            Err(error) => assert!(!error.problems.is_empty()),
            // What is missing is no more than names for debuggers.
            Ok(_) => assert!(end > whole.len() / 2, "{end}"),
        }
    }
}

#[test]
fn names_in_errors_are_escaped() {
    let mut custom = vec![4];
    custom.extend(b"name\x1b[2J");
    let mut bytes = HEAD.to_vec();
    bytes.extend(section(0, &custom));
    // An import whose name is not one: a length, an escape sequence, and no type.
    bytes.extend(section(10, b"\x01\x00\x05\x1b[2Jx\x01\x00"));
    for line in refused_bytes(&bytes) {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}
