//! Macros of kinfolk. Use them through the `kinfolk` crate, which re-exports all three.

mod enroll;
mod family;
mod lm_runner;
mod manifest;
mod normalise;
mod record;

use proc_macro::TokenStream;

/// Enrols the family that a function describes.
///
/// ```ignore
/// #[kinfolk::family(
///     name = "qwen3",
///     description = "Qwen3, dense and mixture-of-experts",
///     model_types = ["qwen3", "qwen3_moe"],           // `model_type` in config.json
///     gguf = ["qwen3", "qwen3moe"],                   // `general.architecture` in GGUF
///     classes = ["Qwen3ForCausalLM"],                 // `architectures` in config.json
///     tool_calls = "hermes",                          // optional: format of tool calls
///     turn_ends = ["<|im_end|>"],                     // optional: tokens that end a turn
///     probe = looks_like_qwen3,                       // optional: fn(&Source) -> bool
/// )]
/// fn describe(config: &Config) -> Result<Decoder> { /* … */ }
/// ```
///
/// `name`, `description` and one of the three lists are required. Beside the function stands then a
/// `pub const FAMILY: kinfolk::Family`, submitted to the registry of every program that links the crate. A crate that
/// calls kinfolk by another name adds `crate = its::path`.
#[proc_macro_attribute]
pub fn family(keys: TokenStream, item: TokenStream) -> TokenStream {
    family::expand(keys.into(), item.into()).into()
}

/// Enrols a runner that is written by hand.
///
/// ```ignore
/// kinfolk::register_lm_runner! {
///     family = "bigram",
///     description = "Next byte by counts of the last",
///     arches = ["bigram"],                            // names from config.json or GGUF
///     load = load,                                    // fn(LoadRequest) -> anyhow::Result<Box<dyn LmRunner>>
/// }
/// ```
///
/// These four are required; `tool_calls`, `turn_ends`, `probe` and `crate` are as in [`macro@family`]. The record is
/// `pub const FAMILY: kinfolk::Family`, submitted to the registry of every program that links the crate.
#[proc_macro]
pub fn register_lm_runner(keys: TokenStream) -> TokenStream {
    lm_runner::expand(keys.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Links every family crate that the host's own Cargo.toml names.
///
/// Rust leaves out a dependency that no code names, and with it the family. Written once in a host, this names each
/// `kinfolk-*` dependency, and each dependency listed under `[package.metadata.kinfolk] families`, so that `cargo add` is
/// enough. Renames, optional dependencies (named when their feature is on), dependencies of one platform and
/// dev-dependencies (named in tests) are understood.
#[proc_macro]
pub fn enroll(arguments: TokenStream) -> TokenStream {
    enroll::expand(arguments.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
