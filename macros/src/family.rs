//! `#[family]`: a describing function becomes a family.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{FnArg, Item, Result, ReturnType, Type};

use crate::record::{Grammar, Record, error_at};

const GRAMMAR: Grammar = Grammar {
    name: "name",
    aliases: &["model_types", "gguf", "classes"],
    others: &["tool_calls", "turn_ends", "probe", "crate"],
};

pub(crate) fn expand(keys: TokenStream, item: TokenStream) -> TokenStream {
    let enrolment = describing_function(&item).and_then(|describe| {
        let record = Record::parse(&GRAMMAR, keys)?;
        Ok(enrol(&record, &describe))
    });
    match enrolment {
        Ok(enrolment) => quote! { #item #enrolment },
        // The function stays, so that the mistake is not followed by a dozen about what it uses.
        Err(mistake) => {
            let mistake = mistake.into_compile_error();
            quote! { #[allow(dead_code)] #item #mistake }
        }
    }
}

fn enrol(record: &Record, describe: &Ident) -> TokenStream {
    let kinfolk = record.kinfolk();
    let preamble = quote! {
        const DESCRIBE: fn(&#kinfolk::__private::Config) -> #kinfolk::__private::Result<#kinfolk::__private::Decoder> =
            #describe;
        fn load(
            request: #kinfolk::LoadRequest,
        ) -> #kinfolk::__private::anyhow::Result<::std::boxed::Box<dyn #kinfolk::LmRunner>> {
            #kinfolk::__private::load_described(&FAMILY, request)
        }
    };
    record.enrol(preamble, quote!(load), quote!(::core::option::Option::Some(DESCRIBE)))
}

/// Checks what can be checked without types; the coercion to a function pointer checks the rest.
fn describing_function(item: &TokenStream) -> Result<Ident> {
    const EXPECTED: &str = "expected `fn describe(config: &Config) -> Result<Decoder>`";
    let item: Item = syn::parse2(item.clone())?;
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
        ReturnType::Type(..) => Ok(signature.ident.clone()),
        ReturnType::Default => Err(error_at(&signature.ident, format!("{EXPECTED}, found no return type"))),
    }
}

fn is_shared_reference(ty: &Type) -> bool {
    matches!(ty, Type::Reference(reference) if reference.mutability.is_none())
}
