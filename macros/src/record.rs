//! The `key = value` list that both registration macros take, and the `FAMILY` it becomes.

use std::collections::HashMap;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{
    Error, LitStr, Path, Result, Token, bracketed,
    ext::IdentExt,
    parse::{ParseStream, Parser},
    punctuated::Punctuated,
    spanned::Spanned,
};

use crate::normalise::normalise;

/// What a macro takes, by key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Names,
    Path,
}

const KINDS: &[(&str, Kind)] = &[
    ("name", Kind::Text),
    ("family", Kind::Text),
    ("description", Kind::Text),
    ("model_types", Kind::Names),
    ("gguf", Kind::Names),
    ("classes", Kind::Names),
    ("arches", Kind::Names),
    ("load", Kind::Path),
    ("tool_calls", Kind::Text),
    ("turn_ends", Kind::Names),
    ("probe", Kind::Path),
    ("crate", Kind::Path),
];

/// The keys one macro takes.
pub(crate) struct Grammar {
    /// The key that names the family.
    pub(crate) name: &'static str,
    /// Keys that hold what the family answers to; one at least is required.
    pub(crate) aliases: &'static [&'static str],
    /// Every other key it takes.
    pub(crate) others: &'static [&'static str],
}

impl Grammar {
    fn keys(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(["description"]).chain(self.aliases.iter().chain(self.others).copied())
    }
}

/// The keys as written, each checked.
pub(crate) struct Record {
    grammar: &'static Grammar,
    values: HashMap<&'static str, Value>,
}

enum Value {
    Text(LitStr),
    Names(Vec<LitStr>),
    Path(Path),
}

impl Record {
    pub(crate) fn parse(grammar: &'static Grammar, keys: TokenStream) -> Result<Record> {
        let parse = |input: ParseStream| Record::parse_keys(grammar, input);
        parse.parse2(keys)
    }

    fn parse_keys(grammar: &'static Grammar, input: ParseStream) -> Result<Record> {
        let mut record = Record { grammar, values: HashMap::new() };
        let mut problems = Problems::default();
        while !input.is_empty() {
            let key = input.call(Ident::parse_any)?;
            let known = grammar.keys().find(|known| key == known);
            let Some((known, kind)) = known.and_then(|known| KINDS.iter().copied().find(|(name, _)| *name == known))
            else {
                return Err(problems.and(unknown_key(grammar, &key)));
            };
            let value = parse_value(known, kind, input, &mut problems).map_err(|error| problems.take_with(error))?;
            if record.values.insert(known, value).is_some() {
                problems.push(Error::new(key.span(), format!("expected `{known}` once, found it again")));
            }
            if !input.is_empty() && input.parse::<Token![,]>().is_err() {
                return Err(
                    problems.and(Error::new(input.span(), format!("expected `,` after the value of `{known}`")))
                );
            }
        }
        record.check_required(&mut problems);
        problems.into_result(record)
    }

    fn check_required(&self, problems: &mut Problems) {
        let required = [(self.grammar.name, "\"…\""), ("description", "\"…\""), ("load", "path::to::function")];
        for (key, example) in required {
            if self.grammar.keys().any(|known| known == key) && !self.values.contains_key(key) {
                problems.push(Error::new(Span::call_site(), format!("expected `{key} = {example}`, found no `{key}`")));
            }
        }
        if !self.grammar.aliases.iter().any(|key| self.values.contains_key(key)) {
            let keys = quoted(self.grammar.aliases.iter().copied());
            let expected = match self.grammar.aliases {
                [_] => format!("expected {keys}"),
                _ => format!("expected at least one of {keys}"),
            };
            problems.push(Error::new(
                Span::call_site(),
                format!("{expected}, found none; without a name no checkpoint reaches the family"),
            ));
        }
    }

    /// The path under `key`.
    pub(crate) fn path(&self, key: &str) -> Option<&Path> {
        match self.values.get(key) {
            Some(Value::Path(path)) => Some(path),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> Option<&LitStr> {
        match self.values.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn names(&self, key: &str) -> &[LitStr] {
        match self.values.get(key) {
            Some(Value::Names(names)) => names,
            _ => &[],
        }
    }

    /// The path by which the family crate calls kinfolk.
    pub(crate) fn kinfolk(&self) -> TokenStream {
        self.path("crate").map_or_else(|| quote!(::kinfolk), |path| quote!(#path))
    }

    /// The constant and its submission. `preamble` are items that `load` and `describe` may name.
    pub(crate) fn enrol(&self, preamble: TokenStream, load: TokenStream, describe: TokenStream) -> TokenStream {
        let kinfolk = self.kinfolk();
        let name = self.text(self.grammar.name);
        let description = self.text("description");
        let [model_types, gguf, classes, arches, turn_ends] =
            ["model_types", "gguf", "classes", "arches", "turn_ends"].map(|key| self.names(key));
        let probe = optional(self.path("probe"));
        let tool_calls = optional(self.text("tool_calls"));
        quote! {
            #[doc = concat!("Enrols ", #description, ".")]
            pub const FAMILY: #kinfolk::Family = {
                #preamble
                #kinfolk::Family {
                    name: #name,
                    description: #description,
                    model_types: &[#(#model_types),*],
                    gguf: &[#(#gguf),*],
                    classes: &[#(#classes),*],
                    arches: &[#(#arches),*],
                    probe: #probe,
                    load: #load,
                    describe: #describe,
                    conventions: #kinfolk::Conventions { tool_calls: #tool_calls, turn_ends: &[#(#turn_ends),*] },
                    api_version: #kinfolk::API_VERSION,
                    crate_name: ::core::env!("CARGO_PKG_NAME"),
                    crate_version: ::core::env!("CARGO_PKG_VERSION"),
                }
            };
            #kinfolk::__private::inventory::submit! { FAMILY }
        }
    }
}

fn optional(value: Option<impl quote::ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

fn parse_value(key: &str, kind: Kind, input: ParseStream, problems: &mut Problems) -> Result<Value> {
    let wrong = |span: Span, example: &str| Error::new(span, format!("expected `{key} = {example}`"));
    let example = match kind {
        Kind::Text => "\"…\"",
        Kind::Names => "[\"…\", \"…\"]",
        Kind::Path => "path::to::it",
    };
    input.parse::<Token![=]>().map_err(|error| wrong(error.span(), example))?;
    let value_span = input.span();
    match kind {
        Kind::Text => {
            let text: LitStr = input.parse().map_err(|_| wrong(value_span, example))?;
            check_text(key, &text, problems);
            Ok(Value::Text(text))
        }
        Kind::Names => {
            if !input.peek(syn::token::Bracket) {
                return Err(wrong(value_span, example));
            }
            let content;
            let brackets = bracketed!(content in input);
            let names = content
                .call(Punctuated::<LitStr, Token![,]>::parse_terminated)
                .map_err(|error| wrong(error.span(), example))?;
            if names.is_empty() {
                let message = format!("expected at least one name in `{key}`, found none; leave the key out instead");
                problems.push(Error::new(brackets.span.join(), message));
            }
            let names: Vec<LitStr> = names.into_iter().collect();
            check_names(key, &names, problems);
            Ok(Value::Names(names))
        }
        Kind::Path => {
            let path = input.call(Path::parse_mod_style).map_err(|_| wrong(value_span, example))?;
            Ok(Value::Path(path))
        }
    }
}

fn check_text(key: &str, text: &LitStr, problems: &mut Problems) {
    let value = text.value();
    if value.trim().is_empty() {
        problems.push(Error::new(text.span(), format!("expected a text for `{key}`, found an empty one")));
    } else if matches!(key, "name" | "family") {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
        if !value.chars().all(fits) {
            let message =
                format!("expected a short name of lower-case letters, digits, `-`, `_` and `.`, found `{value}`");
            problems.push(Error::new(text.span(), message));
        }
    }
}

/// Each name must differ from the others also after the registry's normalisation. Turn ends are tokens, compared as they
/// are.
fn check_names(key: &str, names: &[LitStr], problems: &mut Problems) {
    let mut seen: HashMap<String, String> = HashMap::new();
    for name in names {
        let value = name.value();
        let identity = match key {
            "turn_ends" => value.clone(),
            _ => normalise(&value),
        };
        if identity.is_empty() {
            problems.push(Error::new(name.span(), format!("expected a name in `{key}`, found an empty one")));
        } else if let Some(before) = seen.insert(identity, value.clone()) {
            let message = match before == value {
                true => format!("expected each name of `{key}` once, found `{value}` again"),
                false => format!(
                    "expected each name of `{key}` once, found `{value}` after `{before}`: case, spaces, `-` and `_` do not count"
                ),
            };
            problems.push(Error::new(name.span(), message));
        }
    }
}

fn unknown_key(grammar: &Grammar, key: &Ident) -> Error {
    let near = grammar
        .keys()
        .find(|known| normalise(known).trim_end_matches('s') == normalise(&key.to_string()).trim_end_matches('s'));
    let message = match near {
        Some(near) => format!("expected `{near}`, found `{key}`"),
        None => format!("expected one of {}, found `{key}`", quoted(grammar.keys())),
    };
    Error::new(key.span(), message)
}

fn quoted(names: impl Iterator<Item = &'static str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Errors found so far, so that one compilation reports all of them.
#[derive(Default)]
struct Problems(Option<Error>);

impl Problems {
    fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// All of them, and the one that ended the parsing.
    fn and(mut self, last: Error) -> Error {
        self.take_with(last)
    }

    fn take_with(&mut self, last: Error) -> Error {
        match self.0.take() {
            Some(mut first) => {
                first.combine(last);
                first
            }
            None => last,
        }
    }

    fn into_result<T>(self, value: T) -> Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}

/// The whole of `node`, for an error about it.
pub(crate) fn error_at(node: &impl Spanned, message: impl std::fmt::Display) -> Error {
    Error::new(node.span(), message)
}
