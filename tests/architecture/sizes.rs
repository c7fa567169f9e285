//! How long things may be, and what every file begins with.

use crate::tree::{nothing_wrong, root, sources};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A habit, not a goal: a type and what it does stay in one file, even a long one.
const LONGEST_FILE: usize = 800;
const LONGEST_FUNCTION: usize = 80;
const LONGEST_EXAMPLE: usize = 60;
const FOLDERS: [&str; 4] = ["host", "guest-sdk", "plugins", "tests"];

#[derive(Default)]
struct Functions(Vec<(String, usize)>);

impl Functions {
    fn note(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let lines = body.span().end().line + 1 - signature.span().start().line;
        self.0.push((signature.ident.to_string(), lines));
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn files_and_functions_are_short() {
    let mut complaints = Vec::new();
    for (name, text) in FOLDERS.iter().flat_map(|folder| sources(folder)) {
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            complaints.push(format!("{name}: {lines} lines; at most {LONGEST_FILE}"));
        }
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut functions = Functions::default();
        functions.visit_file(&file);
        for (function, lines) in functions.0 {
            if lines > LONGEST_FUNCTION {
                complaints.push(format!(
                    "{name}: `{function}` has {lines} lines; at most {LONGEST_FUNCTION}"
                ));
            }
        }
    }
    nothing_wrong(&complaints);
}

/// A module with parts is a folder with `mod.rs`; its tests are in `mod tests`, in the file or in the folder.
#[test]
fn modules_have_one_layout() {
    let mut complaints = Vec::new();
    for (name, text) in FOLDERS.iter().flat_map(|folder| sources(folder)) {
        let folder = name.trim_end_matches(".rs");
        if root().join(folder).is_dir() {
            complaints.push(format!(
                "{name}: stands beside {folder}/; wanted {folder}/mod.rs"
            ));
        }
        if name.ends_with("_tests.rs") || name.ends_with("_test.rs") {
            complaints.push(format!(
                "{name}: wanted tests.rs, or a file in a folder tests"
            ));
        }
        // Programs that share a file name it by its path from another folder.
        let is_own = |line: &str| line.starts_with("#[path") && !line.contains("\"../");
        if !name.contains("/benches/") && text.lines().any(is_own) {
            complaints.push(format!(
                "{name}: wanted the file where `mod` looks for it, not #[path]"
            ));
        }
    }
    nothing_wrong(&complaints);
}

#[test]
fn examples_are_short() {
    let mut complaints = Vec::new();
    for (name, text) in sources("plugins/examples") {
        let lines = text.lines().count();
        if lines > LONGEST_EXAMPLE {
            complaints.push(format!("{name}: {lines} lines; at most {LONGEST_EXAMPLE}"));
        }
    }
    nothing_wrong(&complaints);
}

#[test]
fn every_file_describes_its_contents() {
    let mut complaints = Vec::new();
    for (name, text) in FOLDERS.iter().flat_map(|folder| sources(folder)) {
        if !text.starts_with("//! ") {
            complaints.push(format!("{name}: its first line is not `//! …`"));
        }
    }
    nothing_wrong(&complaints);
}
