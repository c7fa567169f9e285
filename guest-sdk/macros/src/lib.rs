//! The attribute that makes a function a plugin: it looks at what the function takes, and leaves the
//! rest to the macros of `dispatcher-guest`, which describes it.

use proc_macro::TokenStream;
use quote::quote;
use syn::{Error, FnArg, ItemFn, Path, Type, parse_macro_input, parse_quote};

/// Exports a function as a plugin of version 0.1 of the contract; see `dispatcher_guest::plugin`.
#[proc_macro_attribute]
pub fn plugin(options: TokenStream, item: TokenStream) -> TokenStream {
    exported(&options, item, &parse_quote!(::dispatcher_guest))
}

/// Exports a function as a plugin of version 0.2 of the contract; see `dispatcher_guest::v0_2::plugin`.
#[proc_macro_attribute]
pub fn plugin_v0_2(options: TokenStream, item: TokenStream) -> TokenStream {
    exported(&options, item, &parse_quote!(::dispatcher_guest::v0_2))
}

fn exported(options: &TokenStream, item: TokenStream, version: &Path) -> TokenStream {
    let item = parse_macro_input!(item as ItemFn);
    let export = if options.is_empty() {
        export(&item, version)
    } else {
        Err(Error::new_spanned(&item.sig, "`plugin` takes no options"))
    };
    let export = export.unwrap_or_else(|error| error.to_compile_error());
    quote!(#item #export).into()
}

/// What calls the function with what it takes, and its export.
fn export(item: &ItemFn, version: &Path) -> Result<proc_macro2::TokenStream, Error> {
    let signature = &item.sig;
    let (input, takes_delivery) = taken(item)?;
    let name = &signature.ident;
    let (asyncness, wait, export) = if signature.asyncness.is_some() {
        (quote!(async), quote!(.await), quote!(async_handler))
    } else {
        (quote!(), quote!(), quote!(handler))
    };
    let (kept, given) = if takes_delivery {
        (quote!(delivery.clone()), quote!(input, &delivery))
    } else {
        (quote!(delivery), quote!(input))
    };
    Ok(quote! {
        const _: () = {
            // No function of the plugin's own has this name.
            #asyncness fn dispatcher_plugin_entry(
                delivery: #version::typed::Delivery,
            ) -> ::core::result::Result<(), #version::Failure> {
                #[allow(unused_imports, reason = "one of them is used")]
                use #version::typed::{FromBody as _, FromWhole as _};
                let input = (&&#version::typed::Input::<#input>::new()).take(#kept)?;
                #version::typed::answer(#name(#given) #wait)
            }

            #version::#export!(dispatcher_plugin_entry);
        };
    })
}

/// The type of the first parameter, and whether there is a second, which is a reference.
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
