//! Compares the types of exports with those of the bindings when a component is loaded.

use crate::guest::Guest;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{ComponentNamedList, InstancePre, Lift, Lower};
use wasmtime::error::Context;

/// Whether a function of this interface has the type that the bindings want. They look only when
/// there is an instance, and then it is too late to refuse the file.
pub(super) fn check<Params, Answer>(
    pre: &InstancePre<Guest>,
    interface: &str,
    function: &str,
) -> wasmtime::Result<()>
where
    Params: ComponentNamedList + Lower,
    Answer: ComponentNamedList + Lift,
{
    let component = pre.component();
    let instance = component.get_export_index(None, interface);
    match component.get_export(instance.as_ref(), function) {
        Some((ComponentItem::ComponentFunc(found), _)) => found
            .typecheck::<Params, Answer>(&pre.instance_type())
            .with_context(|| format!("its export {interface}, function {function}")),
        _ => Err(wasmtime::format_err!(
            "its export {interface} has no function {function}"
        )),
    }
}
