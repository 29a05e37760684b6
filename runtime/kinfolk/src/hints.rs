//! Which crate runs an architecture that no linked family claims, so that an error can say what to `cargo add`.
//!
//! The one place under `runtime/` that names families. The table is generated: `KINFOLK_UPDATE_HINTS=1 cargo test -p
//! kinfolk-registry-tests hints` rewrites it from the records of the families, and the same test fails when it is stale.

use crate::registry::normalise;

/// The crate known to run one of these names.
pub(crate) fn crate_for(architectures: &[String]) -> Option<&'static str> {
    architectures.iter().find_map(|architecture| {
        let architecture = normalise(architecture);
        HINTS.iter().find(|(_, names)| names.contains(&architecture.as_str())).map(|(crate_name, _)| *crate_name)
    })
}

/// The crate known to bring a family of this name: by convention `kinfolk-` and the name, or one that runs it.
pub(crate) fn crate_of_family(family: &str) -> Option<&'static str> {
    let by_name = HINTS.iter().map(|(crate_name, _)| *crate_name).find(|crate_name| {
        crate_name.strip_prefix("kinfolk-").is_some_and(|name| normalise(name) == normalise(family))
    });
    by_name.or_else(|| crate_for(&[family.to_owned()]))
}

/// Crate, and the normalised names it answers to.
#[rustfmt::skip]
const HINTS: &[(&str, &[&str])] = &[
    // Generated from here
    ("kinfolk-gemma", &["gemma", "gemma2", "gemma2forcausallm", "gemma3", "gemma3forcausallm", "gemma3forconditionalgeneration", "gemma3text", "gemmaforcausallm", "vaultgemma", "vaultgemmaforcausallm"]),
    ("kinfolk-llama", &["llama", "llamaforcausallm"]),
    ("kinfolk-mistral", &["ministral", "ministral3", "ministral3forcausallm", "ministralforcausallm", "mistral", "mistral3", "mistral3forconditionalgeneration", "mistralforcausallm", "mixtral", "mixtralforcausallm"]),
    ("kinfolk-qwen2", &["qwen2", "qwen2forcausallm", "qwen2moe", "qwen2moeforcausallm"]),
    ("kinfolk-qwen3", &["qwen3", "qwen3forcausallm", "qwen3model", "qwen3moe", "qwen3moeforcausallm"]),
    ("kinfolk-smollm3", &["smollm3", "smollm3forcausallm"]),
    // to here.
];
