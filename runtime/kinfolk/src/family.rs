//! The record by which a family enrols.

use kinfolk_decoder::Decoder;
use kinfolk_weights::{Config, Source};

use crate::{load::LoadRequest, runner::LmRunner};

/// The version of the contract between a family crate and the waist. A family built against another is not enrolled.
pub const API_VERSION: u32 = 1;

/// What a family crate says of itself: which architectures it runs, and how to load one.
///
/// [`#[kinfolk::family]`](crate::family) writes it from a describing function and
/// [`register_lm_runner!`](crate::register_lm_runner) from a hand-written runner; both call it `FAMILY` and enrol it.
/// Aliases are matched after [normalisation](crate::registry::normalise), so spelling variants need not be listed.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Short name, such as `qwen3`. What a host pins a family by.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
    /// `model_type` values of `config.json`.
    pub model_types: &'static [&'static str],
    /// `general.architecture` values of GGUF.
    pub gguf: &'static [&'static str],
    /// Class names of `architectures` in `config.json`.
    pub classes: &'static [&'static str],
    /// Names from anywhere, for a runner written by hand.
    pub arches: &'static [&'static str],
    /// Looks closer than the names can: asked when a name matches, which `false` then withdraws, and when no family
    /// matches, which `true` then answers.
    pub probe: Option<fn(&Source) -> bool>,
    /// Loads a model.
    pub load: fn(LoadRequest) -> anyhow::Result<Box<dyn LmRunner>>,
    /// Describes the architecture, if the family is a description.
    pub describe: Option<fn(&Config) -> kinfolk_decoder::Result<Decoder>>,
    /// How its checkpoints talk.
    pub conventions: Conventions,
    /// [`API_VERSION`] of the waist the crate was built against.
    pub api_version: u32,
    /// The crate, as on crates.io.
    pub crate_name: &'static str,
    /// The crate's version.
    pub crate_version: &'static str,
}

inventory::collect!(Family);

/// How a family's checkpoints talk, where their own files do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conventions {
    /// The format of tool calls, such as `hermes`.
    pub tool_calls: Option<&'static str>,
    /// Tokens that end a turn, beside those the checkpoint's files name.
    pub turn_ends: &'static [&'static str],
}

impl Family {
    /// Every name the family answers to, each with the list it is from.
    pub fn aliases(&self) -> impl Iterator<Item = (AliasList, &'static str)> + use<> {
        [
            (AliasList::ModelTypes, self.model_types),
            (AliasList::Gguf, self.gguf),
            (AliasList::Classes, self.classes),
            (AliasList::Arches, self.arches),
        ]
        .into_iter()
        .flat_map(|(list, names)| names.iter().map(move |&name| (list, name)))
    }
}

/// Which list of a [`Family`] a name is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AliasList {
    /// `model_types`.
    ModelTypes,
    /// `gguf`.
    Gguf,
    /// `classes`.
    Classes,
    /// `arches`.
    Arches,
}

impl std::fmt::Display for AliasList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AliasList::ModelTypes => "model_types",
            AliasList::Gguf => "gguf",
            AliasList::Classes => "classes",
            AliasList::Arches => "arches",
        })
    }
}
