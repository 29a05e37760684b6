//! `register_lm_runner!`: a runner written by hand becomes a family.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Result;

use crate::record::{Grammar, Record};

const GRAMMAR: Grammar =
    Grammar { name: "family", aliases: &["arches"], others: &["load", "tool_calls", "turn_ends", "probe", "crate"] };

pub(crate) fn expand(keys: TokenStream) -> Result<TokenStream> {
    let record = Record::parse(&GRAMMAR, keys)?;
    let load = record.path("load");
    Ok(record.enrol(TokenStream::new(), quote!(#load), quote!(::core::option::Option::None)))
}
