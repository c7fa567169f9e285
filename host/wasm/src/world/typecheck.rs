//! Compares the types of exports with those of the bindings when a component is loaded.

use crate::guest::Guest;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentNamedList, InstancePre, Lift, Lower};
use wasmtime::error::Context;

/// Returns the type of a function of an exported interface.
pub(crate) fn function(
    component: &Component,
    interface: &str,
    function: &str,
) -> Option<ComponentFunc> {
    let instance = component.get_export_index(None, interface)?;
    match component.get_export(Some(&instance), function)?.0 {
        ComponentItem::ComponentFunc(found) => Some(found),
        _ => None,
    }
}

/// Checks that a function of this interface has the type that the bindings expect. The bindings
/// check only when there is an instance, which is too late to refuse the file.
pub(super) fn check<Params, Answer>(
    pre: &InstancePre<Guest>,
    interface: &str,
    name: &str,
) -> wasmtime::Result<()>
where
    Params: ComponentNamedList + Lower,
    Answer: ComponentNamedList + Lift,
{
    match function(pre.component(), interface, name) {
        Some(found) => found
            .typecheck::<Params, Answer>(&pre.instance_type())
            .with_context(|| format!("its export {interface}, function {name}")),
        None => Err(wasmtime::format_err!(
            "its export {interface} has no function {name}"
        )),
    }
}
