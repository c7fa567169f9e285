//! Reads the public items of a crate from its sources. Knows nothing of versions.
//!
//! Each is one line. What cannot grow without breaking somebody is in one line as a whole: an enum
//! with its variants, a struct with its fields, a trait with what it asks for.

use crate::tree::read;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

/// All that the crate of this `lib.rs` offers.
pub(super) fn items(library: &Path) -> BTreeSet<String> {
    let folder = library.parent().expect("a file is in a folder");
    let mut found = BTreeSet::new();
    Module {
        folder: folder.to_owned(),
        prefix: String::new(),
    }
    .read(&parsed(library), &mut found);
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
    fn read(&self, items: &[Item], found: &mut BTreeSet<String>) {
        for item in items {
            self.note(item, found);
        }
    }

    fn note(&self, item: &Item, found: &mut BTreeSet<String>) {
        let at = &self.prefix;
        match item {
            Item::Mod(item) if is_shown(&item.attrs) => self.enter(item, found),
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
                let (name, fields) = (&item.ident, fields(&item.fields));
                let generics = text(&item.generics);
                let derived = derived(&item.attrs);
                found.insert(format!("struct {at}{name}{generics}{fields}{derived}"));
            }
            Item::Enum(item) if is_offered(&item.vis, &item.attrs) => {
                let variants = item.variants.iter();
                let variants = variants.map(|it| format!("{}{}", it.ident, all_fields(&it.fields)));
                let variants = variants.collect::<Vec<_>>().join(", ");
                let (name, derived) = (&item.ident, derived(&item.attrs));
                let generics = text(&item.generics);
                found.insert(format!("enum {at}{name}{generics} {{{variants}}}{derived}"));
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

    fn enter(&self, module: &syn::ItemMod, found: &mut BTreeSet<String>) {
        let name = module.ident.to_string();
        let public = matches!(module.vis, Visibility::Public(_));
        let prefix = match public {
            true => format!("{}{name}::", self.prefix),
            false => self.prefix.clone(),
        };
        if public {
            found.insert(format!("mod {}{name}", self.prefix));
        }
        let inner = Self {
            folder: self.folder.join(&name),
            prefix,
        };
        match &module.content {
            Some((_, items)) => inner.read(items, found),
            None => inner.read(&parsed(&self.folder.join(format!("{name}.rs"))), found),
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
            let home = match home.is_empty() {
                true => String::new(),
                false => format!(" in {home}"),
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

/// Of a struct: the public ones, and `..` where there are others.
fn fields(fields: &Fields) -> String {
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
    braced(fields, &shown)
}

fn all_fields(fields: &Fields) -> String {
    let shown: Vec<_> = fields.iter().map(|field| field_text(field, "")).collect();
    braced(fields, &shown)
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
