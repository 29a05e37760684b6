//! How a decision came about: who was asked, what each said, why the winner won.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use kinfolk_weights::quoted;
use serde::Serialize;

use crate::family::AliasList;

/// The record of one claim. `Display` is for people, `Serialize` for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Trail {
    /// Every name the checkpoint gives its architecture, most specific first.
    pub architectures: Vec<String>,
    /// The file those were read from.
    pub read_from: Option<PathBuf>,
    /// What each enrolled family said, by name.
    pub answers: Vec<Answer>,
    /// Why it ended as it did.
    pub verdict: String,
}

/// What one family said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Answer {
    /// The family asked.
    pub family: &'static str,
    /// Its crate.
    pub crate_name: &'static str,
    /// Its crate's version.
    pub crate_version: &'static str,
    /// The answer.
    pub says: Says,
}

/// An answer of a family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Says {
    /// A name of the checkpoint is one of the family's.
    Claims {
        /// The name as the checkpoint spells it.
        architecture: String,
        /// The name as the family spells it.
        alias: &'static str,
        /// Which of the family's lists it is in.
        list: AliasList,
        /// What the family's probe said, if it has one and there was a file to look at. `false` withdraws the claim.
        probe: Option<bool>,
    },
    /// No name matches, and the probe looked at the file.
    Probed {
        /// What it said.
        claims: bool,
    },
    /// No name matches.
    Unknown,
}

impl fmt::Display for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "architecture {}", Found { names: &self.architectures, read_from: self.read_from.as_deref() })?;
        for Answer { family, crate_name, crate_version, says } in &self.answers {
            writeln!(f, "  {family} ({crate_name} {crate_version}) {says}")?;
        }
        write!(f, "{}", self.verdict)
    }
}

impl fmt::Display for Says {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Says::Claims { architecture, alias, list, probe } => {
                write!(f, "claims {} by `{alias}` in `{list}`", quoted(architecture))?;
                f.write_str(match probe {
                    Some(true) => ", and its probe agrees",
                    Some(false) => ", but its probe withdraws",
                    None => "",
                })
            }
            Says::Probed { claims: true } => f.write_str("claims it by its probe"),
            Says::Probed { claims: false } => f.write_str("does not know the name, and its probe refuses"),
            Says::Unknown => f.write_str("does not know the name"),
        }
    }
}

/// The architecture names found and where, as messages show them.
pub(super) struct Found<'a> {
    pub(super) names: &'a [String],
    pub(super) read_from: Option<&'a Path>,
}

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names {
            [] => f.write_str("no name")?,
            names => f.write_str(&names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "))?,
        }
        match self.read_from {
            Some(file) => write!(f, " in `{}`", file.display()),
            None => Ok(()),
        }
    }
}

/// Names in backticks, separated by commas.
pub(super) struct Quoted<'a, T>(pub(super) &'a [T]);

impl<T: fmt::Display> fmt::Display for Quoted<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, name)| {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}`{name}`")
        })
    }
}
