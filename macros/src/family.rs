//! `#[family]`: a describing function becomes a family.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, Item, ItemFn, Result, ReturnType, Type};

use crate::record::{Grammar, Record, error_at, optional};

const GRAMMAR: Grammar = Grammar {
    name: "name",
    aliases: &["model_types", "gguf", "classes"],
    others: &["tool_calls", "turn_ends", "probe", "crate"],
};

pub(crate) fn expand(keys: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function = describing_function(syn::parse2(item)?)?;
    let record = Record::parse(&GRAMMAR, keys)?;
    let kinfolk = record.kinfolk();
    let load = quote! {
        fn load(
            request: #kinfolk::LoadRequest,
        ) -> #kinfolk::__private::anyhow::Result<::std::boxed::Box<dyn #kinfolk::LmRunner>> {
            #kinfolk::__private::load_described(&FAMILY, request)
        }
    };
    let describe = optional(Some(&function.sig.ident));
    let enrolment = record.enrol(load, quote!(load), describe);
    Ok(quote! { #function #enrolment })
}

/// Checks what can be checked without types; the coercion to a function pointer checks the rest.
fn describing_function(item: Item) -> Result<ItemFn> {
    const EXPECTED: &str = "expected `fn describe(config: &Config) -> Result<Decoder>`";
    let Item::Fn(function) = item else {
        return Err(error_at(&item, format!("{EXPECTED}, found another kind of item")));
    };
    let signature = &function.sig;
    if let Some(keyword) = &signature.asyncness {
        return Err(error_at(keyword, format!("{EXPECTED}, found an async function")));
    }
    if let Some(keyword) = &signature.unsafety {
        return Err(error_at(keyword, format!("{EXPECTED}, found an unsafe function")));
    }
    if let Some(parameter) = signature.generics.params.first() {
        return Err(error_at(parameter, format!("{EXPECTED}, found a generic function")));
    }
    let mut parameters = signature.inputs.iter();
    match (parameters.next(), parameters.next()) {
        (None, _) => return Err(error_at(&signature.ident, format!("{EXPECTED}, found no parameter"))),
        (_, Some(second)) => return Err(error_at(second, format!("{EXPECTED}, found a second parameter"))),
        (Some(FnArg::Typed(config)), None) if is_shared_reference(&config.ty) => {}
        (Some(other), None) => {
            return Err(error_at(other, format!("{EXPECTED}, found a parameter that is no `&Config`")));
        }
    }
    match &signature.output {
        ReturnType::Type(..) => Ok(function),
        ReturnType::Default => Err(error_at(&signature.ident, format!("{EXPECTED}, found no return type"))),
    }
}

fn is_shared_reference(ty: &Type) -> bool {
    matches!(ty, Type::Reference(reference) if reference.mutability.is_none())
}
