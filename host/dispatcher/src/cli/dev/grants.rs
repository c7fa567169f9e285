//! Names the grants that the handler needs and the command does not give.

use crate::cli::output;
use crate::cli::plugin::build::{Project, ProjectWorld};
use crate::cli::plugin::language::Language;
use dispatcher_config::flags::Flags;
use dispatcher_config::problem::Problem;
use dispatcher_core::tasks;
use dispatcher_wasm::capability::registry::{Capability, Grants};
use dispatcher_wasm::inspect;
use std::path::Path;

/// Returns the missing grants for the imports in the project's `wit/world.wit`, before anything is
/// compiled. Components in other languages import only what they call, which is known after the
/// build.
pub(super) fn missing(project: &Project, lang: Language, flags: &Flags) -> Vec<Problem> {
    let imports_all = [Language::JavaScript, Language::TypeScript, Language::Python];
    if !imports_all.contains(&lang) {
        return Vec::new();
    }
    // The build reports a world that cannot be read.
    let Ok(world) = ProjectWorld::of(project) else {
        return Vec::new();
    };
    let requested = Capability::of(&world.imports);
    Grants::default()
        .missing()
        .into_iter()
        .filter(|(asked, _)| requested.contains(asked) && !flags.is_set(asked.key()))
        .map(|(asked, _)| {
            Problem::new(
                format!("--{}", asked.key()),
                format!("wit/world.wit imports {asked}, which nothing grants"),
                format!("{}, or a world without the import", asked.flag()),
            )
        })
        .collect()
}

/// Prints the flag that grants HTTP, if the component imports it and nothing grants it. Without the
/// other grants that name a destination, a component is refused.
pub(super) async fn note_ungranted(component: &Path, flags: &Flags) {
    let http = Capability::Http;
    if flags.is_set(http.key()) {
        return;
    }
    let file = component.to_owned();
    let inspected = tasks::blocking(move || inspect::file(&file))
        .finished()
        .await;
    if inspected.is_ok_and(|found| Capability::of(&found.imports).contains(&http)) {
        let flag = http.flag();
        output::note(format!(
            "the handler imports {http}, and no host is granted: {flag} grants one"
        ));
    }
}
