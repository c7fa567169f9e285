//! Reads the public items of a crate from its sources. Knows nothing of versions.
//!
//! Each is one line. What cannot grow without breaking somebody is in one line as a whole: an enum
//! with its variants, a struct with its fields, unless they are `non_exhaustive`; a trait with what it
//! asks for.

use crate::tree::read;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

/// All that the crate of this `lib.rs` offers.
pub(super) fn items(library: &Path) -> BTreeSet<String> {
    let folder = library.parent().expect("a file is in a folder");
    let mut found = BTreeSet::new();
    let mut private = Vec::new();
    Module {
        folder: folder.to_owned(),
        prefix: String::new(),
    }
    .read(&parsed(library), &mut found, &mut private);
    // What types do that nobody can name is nobody's business.
    found.retain(|line| {
        let on = line.split(" for ").nth(1).unwrap_or_default();
        let on = on.split(['<', ' ']).next().unwrap_or_default();
        !line.starts_with("impl")
            || !(on.starts_with("wire::") || private.iter().any(|it| it == on))
    });
    found
}

fn parsed(path: &Path) -> Vec<Item> {
    let text = read(path);
    let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.items
}

/// Where a module's own modules are, and how its items are called.
struct Module {
    folder: PathBuf,
    /// `http::`; a private module adds nothing, as users name its items by where they are used.
    prefix: String,
}

impl Module {
    fn read(&self, items: &[Item], found: &mut BTreeSet<String>, private: &mut Vec<String>) {
        for item in items {
            match item {
                Item::Struct(item) if !is_offered(&item.vis, &item.attrs) => {
                    private.push(item.ident.to_string());
                }
                Item::Enum(item) if !is_offered(&item.vis, &item.attrs) => {
                    private.push(item.ident.to_string());
                }
                Item::Mod(item) if is_shown(&item.attrs) => self.enter(item, found, private),
                _ => self.note(item, found),
            }
        }
    }

    fn note(&self, item: &Item, found: &mut BTreeSet<String>) {
        let at = &self.prefix;
        match item {
            Item::Fn(item) if is_offered(&item.vis, &item.attrs) => {
                let signature = text(&item.sig);
                found.insert(signature.replacen("fn ", &format!("fn {at}"), 1));
            }
            Item::Const(item) if is_offered(&item.vis, &item.attrs) => {
                found.insert(format!("const {at}{}: {}", item.ident, text(&item.ty)));
            }
            Item::Type(item) if is_offered(&item.vis, &item.attrs) => {
                found.insert(format!("type {at}{} = {}", item.ident, text(&item.ty)));
            }
            Item::Struct(item) if is_offered(&item.vis, &item.attrs) => {
                let name = format!("struct {at}{}{}", item.ident, text(&item.generics));
                let shown = fields(&item.fields);
                let whole = braced(&item.fields, &shown);
                whole_or_parts(&name, &whole, &shown, &item.attrs, found);
            }
            Item::Enum(item) if is_offered(&item.vis, &item.attrs) => {
                let variants = item.variants.iter();
                let variants = variants.map(|it| {
                    let fields: Vec<_> = it.fields.iter().map(|it| field_text(it, "")).collect();
                    format!("{}{}", it.ident, braced(&it.fields, &fields))
                });
                let variants: Vec<_> = variants.collect();
                let name = format!("enum {at}{}{}", item.ident, text(&item.generics));
                let whole = format!(" {{{}}}", variants.join(", "));
                whole_or_parts(&name, &whole, &variants, &item.attrs, found);
            }
            Item::Trait(item) if is_offered(&item.vis, &item.attrs) => self.of_trait(item, found),
            Item::Impl(item) if is_shown(&item.attrs) => self.of_impl(item, found),
            Item::Use(item) if is_offered(&item.vis, &item.attrs) => {
                leaves(&item.tree, &format!("use {at}"), found);
            }
            Item::Macro(item) => {
                let exported = item
                    .attrs
                    .iter()
                    .any(|it| it.path().is_ident("macro_export"));
                if let Some(name) = item
                    .ident
                    .as_ref()
                    .filter(|_| exported && is_shown(&item.attrs))
                {
                    found.insert(format!("macro {name}!"));
                }
            }
            _ => {}
        }
    }

    fn enter(
        &self,
        module: &syn::ItemMod,
        found: &mut BTreeSet<String>,
        private: &mut Vec<String>,
    ) {
        let name = module.ident.to_string();
        let public = matches!(module.vis, Visibility::Public(_));
        let prefix = if public {
            format!("{}{name}::", self.prefix)
        } else {
            self.prefix.clone()
        };
        if public {
            found.insert(format!("mod {}{name}", self.prefix));
        }
        let inner = Self {
            folder: self.folder.join(&name),
            prefix,
        };
        match &module.content {
            Some((_, items)) => inner.read(items, found, private),
            None => {
                let file = self.folder.join(format!("{name}.rs"));
                let with_parts = inner.folder.join("mod.rs");
                let items = parsed(if file.exists() { &file } else { &with_parts });
                inner.read(&items, found, private);
            }
        }
    }

    fn of_trait(&self, item: &syn::ItemTrait, found: &mut BTreeSet<String>) {
        let name = format!("{}{}{}", self.prefix, item.ident, text(&item.generics));
        let mut asked = Vec::new();
        for part in &item.items {
            match part {
                TraitItem::Fn(method) if method.default.is_some() => {
                    found.insert(format!("trait {name}: {}", text(&method.sig)));
                }
                TraitItem::Fn(method) => asked.push(text(&method.sig)),
                other => asked.push(text(other)),
            }
        }
        found.insert(format!("trait {name} {{{}}}", asked.join("; ")));
    }

    fn of_impl(&self, item: &syn::ItemImpl, found: &mut BTreeSet<String>) {
        let on = text(&item.self_ty);
        let generics = text(&item.generics);
        if let Some((of, _)) = &item.trait_ {
            let home = self.prefix.trim_end_matches("::");
            let home = if home.is_empty() {
                String::new()
            } else {
                format!(" in {home}")
            };
            found.insert(format!("impl{generics} {} for {on}{home}", text(of)));
            return;
        }
        for part in &item.items {
            if let ImplItem::Fn(method) = part
                && is_offered(&method.vis, &method.attrs)
            {
                let signature = text(&method.sig);
                found.insert(format!("impl{generics} {}{on}: {signature}", self.prefix));
            }
        }
    }
}

/// The source of a piece, whatever its line breaks.
fn text(piece: &impl Spanned) -> String {
    let source = piece.span().source_text().unwrap_or_default();
    let words = source.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = words
        .replace("( ", "(")
        .replace(", )", ")")
        .replace(" )", ")");
    words
        .replace("< ", "<")
        .replace(", >", ">")
        .replace(" .", ".")
}

fn is_offered(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    matches!(visibility, Visibility::Public(_)) && is_shown(attributes)
}

/// Neither hidden nor for tests.
fn is_shown(attributes: &[Attribute]) -> bool {
    let mut attributes = attributes.iter().map(text);
    !attributes.any(|it| it == "#[doc(hidden)]" || it == "#[cfg(test)]")
}

fn derived(attributes: &[Attribute]) -> String {
    let derives = attributes.iter().filter(|it| it.path().is_ident("derive"));
    derives
        .map(|it| format!(" {}", text(&it.meta)))
        .collect::<String>()
}

/// One line for what cannot grow; one for each part of what can, as its users were told.
fn whole_or_parts(
    name: &str,
    whole: &str,
    parts: &[String],
    attributes: &[Attribute],
    found: &mut BTreeSet<String>,
) {
    let derived = derived(attributes);
    if !attributes
        .iter()
        .any(|it| it.path().is_ident("non_exhaustive"))
    {
        found.insert(format!("{name}{whole}{derived}"));
        return;
    }
    found.insert(format!("{name} non_exhaustive{derived}"));
    found.extend(parts.iter().map(|part| format!("{name}: {part}")));
}

/// Of a struct: the public ones, and `..` where there are others.
fn fields(fields: &Fields) -> Vec<String> {
    let (mut shown, mut others) = (Vec::new(), false);
    for field in fields {
        match &field.vis {
            Visibility::Public(_) => shown.push(field_text(field, "pub ")),
            _ => others = true,
        }
    }
    if others {
        shown.push("..".into());
    }
    shown
}

fn field_text(field: &syn::Field, visibility: &str) -> String {
    match &field.ident {
        Some(name) => format!("{visibility}{name}: {}", text(&field.ty)),
        None => format!("{visibility}{}", text(&field.ty)),
    }
}

fn braced(fields: &Fields, shown: &[String]) -> String {
    let shown = shown.join(", ");
    match fields {
        Fields::Named(_) => format!(" {{{shown}}}"),
        Fields::Unnamed(_) => format!("({shown})"),
        Fields::Unit => String::new(),
    }
}

/// One line for each name of a `pub use`.
fn leaves(tree: &UseTree, before: &str, found: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => leaves(&path.tree, &format!("{before}{}::", path.ident), found),
        UseTree::Group(group) => {
            for tree in &group.items {
                leaves(tree, before, found);
            }
        }
        leaf => {
            found.insert(format!("{before}{}", text(leaf)));
        }
    }
}
