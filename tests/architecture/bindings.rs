//! The bindings that templates ship are what wit-bindgen makes of the contract. To write them
//! anew: `DISPATCHER_WRITE_BINDINGS=1 cargo test --test architecture bindings`.

use crate::tree::{files, nothing_wrong, root};
use std::collections::BTreeMap;
use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};

/// Where wit-bindgen would have Go fetch what its bindings build on.
const REMOTE: &str = "go.bytecodealliance.org/pkg/wit/";

/// The contract, and what a project can use of WASI.
const PACKAGES: [&str; 3] = [
    "wit",
    "host/wasm/src/capability/store/wit",
    "guest-sdk/wasi",
];

/// Each file by its path in the folder of bindings.
type Bindings = BTreeMap<String, Vec<u8>>;

/// What a generator makes of the contract as a template's project sees it.
fn generated(mut generator: Box<dyn WorldGenerator>, world: &str) -> Bindings {
    let mut resolve = Resolve::default();
    for package in PACKAGES {
        let package = root().join(package);
        resolve.push_path(&package).expect("the package is sound");
    }
    let world = root().join(world);
    let text = std::fs::read_to_string(&world).expect("a readable world");
    let package = resolve.push_str(&world, &text).expect("a sound world");
    let world = resolve
        .select_world(&[package], None)
        .expect("the package has one world");
    let mut files = Files::default();
    generator
        .generate(&mut resolve, world, &mut files)
        .expect("wit-bindgen knows every type of the contract");
    let files = files.iter();
    files
        .map(|(name, bytes)| (name.to_owned(), bytes.to_owned()))
        .collect()
}

/// Compares what a template ships with what is generated, or writes it.
fn compare(folder: &str, wanted: &Bindings) {
    let at = root().join(folder);
    if std::env::var_os("DISPATCHER_WRITE_BINDINGS").is_some() {
        let _ = std::fs::remove_dir_all(&at);
        for (name, bytes) in wanted {
            let file = at.join(name);
            std::fs::create_dir_all(file.parent().expect("below the folder")).expect("made");
            std::fs::write(&file, bytes).expect("written");
        }
        return;
    }
    let shipped = files(folder, |_| true);
    let mut complaints = Vec::new();
    for (name, path) in &shipped {
        let name = name.trim_start_matches(folder).trim_start_matches('/');
        match wanted.get(name) {
            None => complaints.push(format!("{folder}/{name}: wit-bindgen makes no such file")),
            Some(bytes) if *bytes == std::fs::read(path).expect("readable") => {}
            Some(_) => complaints.push(format!("{folder}/{name}: not what wit-bindgen makes")),
        }
    }
    for name in wanted.keys() {
        if !shipped
            .iter()
            .any(|(path, _)| *path == format!("{folder}/{name}"))
        {
            complaints.push(format!("{folder}/{name} is missing"));
        }
    }
    if !complaints.is_empty() {
        complaints.push("write them with DISPATCHER_WRITE_BINDINGS=1".into());
    }
    nothing_wrong(&complaints);
}

/// What the linker or `plugin build` adds to a core module to say of which world it is.
const OBJECT: &str = "plugin_component_type.o";

#[test]
fn c_bindings_match_the_contract() {
    let generator = wit_bindgen_c::Opts::default().build();
    let made = generated(generator, "plugins/templates/c/wit/world.wit");
    compare("plugins/templates/c/bindings", &made);
}

#[test]
fn go_bindings_match_the_contract() {
    const WORLD: &str = "plugins/templates/go/wit/world.wit";
    let generator = wit_bindgen_go::Opts {
        // Without asking a tool of the machine for its taste.
        format: wit_bindgen_go::Format::False,
        pkg_name: Some("handlers/order-check/bindings".into()),
        // The function that they call.
        export_pkg_name: Some("handlers/order-check/plugin".into()),
        ..wit_bindgen_go::Opts::default()
    };
    let mut made = generated(generator.build(), WORLD);
    // What they build on is a part of the project, so that nothing is fetched to build it.
    for bytes in made.values_mut() {
        let text = String::from_utf8(std::mem::take(bytes)).expect("Go is text");
        *bytes = text.replace(REMOTE, "handlers/order-check/support/").into();
    }
    let c = wit_bindgen_c::Opts::default().build();
    let mut c = generated(c, WORLD);
    let object = c.remove(OBJECT).expect("the bindings for C have it");
    made.insert(OBJECT.into(), object);
    compare("plugins/templates/go/bindings", &made);
}
