//! Finds grants that the handler needs and the command does not name, before anything is compiled.

use crate::cli::plugin::build::{Project, ProjectWorld};
use crate::cli::plugin::language::Language;
use dispatcher_config::flags::Flags;
use dispatcher_config::problem::Problem;
use dispatcher_wasm::capability::registry::Capability;

/// The capabilities for which a component that imports them is refused without a grant, and an
/// example of a grant.
const NEEDED: [(Capability, &str); 2] = [
    (Capability::Queues, "local:invoices"),
    (Capability::Functions, "my-function"),
];

/// Returns the missing grants for the imports in the project's `wit/world.wit`. Components in other
/// languages import only what they call, which is known after the build.
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
    let ungranted = NEEDED
        .into_iter()
        .filter(|(asked, _)| requested.contains(asked) && !flags.is_set(asked.key()));
    ungranted
        .map(|(asked, example)| {
            Problem::new(
                format!("--{}", asked.key()),
                format!("wit/world.wit imports {asked}, which nothing grants"),
                format!("--{} {example}, or a world without the import", asked.key()),
            )
        })
        .collect()
}
