//! The attribute that exports a function as a plugin. It reads the function's parameters and calls
//! the macros of `dispatcher-guest`. That crate documents it.

use proc_macro::TokenStream;
use quote::quote;
use syn::{Error, FnArg, ItemFn, Type, parse_macro_input};

/// Exports a function as a plugin; see `dispatcher_guest::plugin`.
#[proc_macro_attribute]
pub fn plugin(options: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as ItemFn);
    let export = if options.is_empty() {
        export(&item)
    } else {
        Err(Error::new_spanned(&item.sig, "`plugin` takes no options"))
    };
    let export = export.unwrap_or_else(|error| error.to_compile_error());
    quote!(#item #export).into()
}

/// Returns the code that converts a message, calls the function with it, and exports the call.
fn export(item: &ItemFn) -> Result<proc_macro2::TokenStream, Error> {
    let signature = &item.sig;
    let (input, takes_message) = taken(item)?;
    let name = &signature.ident;
    let (asyncness, wait, export) = if signature.asyncness.is_some() {
        (quote!(async), quote!(.await), quote!(async_handler))
    } else {
        (quote!(), quote!(), quote!(handler))
    };
    let (kept, given) = if takes_message {
        (quote!(message.clone()), quote!(input, &message))
    } else {
        (quote!(message), quote!(input))
    };
    Ok(quote! {
        const _: () = {
            // The plugin's own functions do not use this name.
            #asyncness fn dispatcher_plugin_entry(
                message: ::dispatcher_guest::Message,
            ) -> ::core::result::Result<(), ::dispatcher_guest::Failure> {
                #[allow(unused_imports, reason = "one of them is used")]
                use ::dispatcher_guest::typed::{FromBody as _, FromWhole as _};
                let input = (&&::dispatcher_guest::typed::Input::<#input>::new()).take(#kept)?;
                ::dispatcher_guest::Answer::into_result(#name(#given) #wait)
            }

            ::dispatcher_guest::#export!(dispatcher_plugin_entry);
        };
    })
}

/// Returns the type of the first parameter, and whether there is a second one. Returns an error if
/// the second one is not a reference, or if the function is not valid otherwise.
fn taken(item: &ItemFn) -> Result<(Type, bool), Error> {
    const WANTED: &str =
        "a plugin is a function of what the body is, or of that and a reference to the message";
    let signature = &item.sig;
    let wrong = || Error::new_spanned(signature, WANTED);
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "a plugin has no generic parameters: the type of the body is needed here",
        ));
    }
    let mut inputs = signature.inputs.iter();
    let (Some(FnArg::Typed(body)), second, None) = (inputs.next(), inputs.next(), inputs.next())
    else {
        return Err(wrong());
    };
    let is_reference =
        |arg: &FnArg| matches!(arg, FnArg::Typed(arg) if matches!(*arg.ty, Type::Reference(_)));
    match second {
        Some(arg) if !is_reference(arg) => Err(wrong()),
        second => Ok(((*body.ty).clone(), second.is_some())),
    }
}
