//! Why no family can be chosen, and what to do about it.

use std::{fmt, path::PathBuf};

use super::trail::{Found, Quoted, Trail};

/// Why no family was chosen. Every message ends with what to do, where that is known.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// No family is enrolled at all.
    #[error(
        "expected a linked family for architecture {found}, found none; a crate in Cargo.toml that no code names is not \
         linked: write `kinfolk::enroll!();` in the host, or `use {example} as _;`{command}",
        found = Found { names: architectures, read_from: read_from.as_deref() },
        example = hint.unwrap_or("the-crate").replace('-', "_"),
        command = Command(", and run", hint)
    )]
    EmptyRegistry {
        /// The names the checkpoint gives its architecture.
        architectures: Vec<String>,
        /// The file they were read from.
        read_from: Option<PathBuf>,
        /// The crate known to run it.
        hint: Option<&'static str>,
    },
    /// The checkpoint does not say what it is, and no probe recognises it.
    #[error("expected the name of an architecture, found {found}", found = Found {
        names: &[],
        read_from: trail.read_from.as_deref(),
    })]
    NoArchitecture {
        /// Who was asked.
        trail: Box<Trail>,
    },
    /// No enrolled family runs the architecture.
    #[error(
        "expected an architecture of a linked family ({enrolled}), found {found}{command}{advice}",
        enrolled = Quoted(enrolled),
        found = Found { names: &trail.architectures, read_from: trail.read_from.as_deref() },
        command = Command("; with `kinfolk::enroll!();` in the host, run", hint),
        advice = if hint.is_none() { NO_KNOWN_CRATE } else { "" }
    )]
    Unclaimed {
        /// The families that were asked.
        enrolled: Vec<&'static str>,
        /// The crate known to run it.
        hint: Option<&'static str>,
        /// Who was asked.
        trail: Box<Trail>,
    },
    /// Several families run the architecture and nothing tells them apart.
    #[error("expected one family for {conflict}; pin one by the load option `family`")]
    Conflict {
        /// The claim and the claimants.
        conflict: Conflict,
        /// Who was asked.
        trail: Box<Trail>,
    },
    /// The family that the host pinned is not enrolled.
    #[error("expected a linked family ({enrolled}), found `{family}`{command}", enrolled = Quoted(enrolled), command = Command("; with `kinfolk::enroll!();` in the host, run", hint))]
    UnknownFamily {
        /// The name the host gave.
        family: String,
        /// The families that are enrolled.
        enrolled: Vec<&'static str>,
        /// The crate known to run it.
        hint: Option<&'static str>,
    },
    /// The family that runs it was built against another waist.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
}

impl ClaimError {
    /// Who was asked and what each said, where it came to asking.
    pub fn trail(&self) -> Option<&Trail> {
        match self {
            ClaimError::NoArchitecture { trail }
            | ClaimError::Unclaimed { trail, .. }
            | ClaimError::Conflict { trail, .. } => Some(trail),
            _ => None,
        }
    }
}

/// A family crate whose contract with the waist is of another version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "family `{family}` of `{crate_name} {crate_version}`: expected kinfolk family API {expected}, found {found}; \
     use versions of `{crate_name}` and `kinfolk` that belong together"
)]
#[non_exhaustive]
pub struct Incompatible {
    /// The family.
    pub family: &'static str,
    /// Its crate.
    pub crate_name: &'static str,
    /// Its crate's version.
    pub crate_version: &'static str,
    /// The version this waist speaks.
    pub expected: u32,
    /// The version the crate speaks.
    pub found: u32,
}

/// One name that several families claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The name, normalised.
    pub name: String,
    /// Who claims it, sorted.
    pub claimants: Vec<Claimant>,
}

/// One side of a [`Conflict`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Claimant {
    /// The family.
    pub family: &'static str,
    /// Its crate.
    pub crate_name: &'static str,
    /// Its crate's version.
    pub crate_version: &'static str,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, found {}", self.name, Quoted(&self.claimants))
    }
}

impl fmt::Display for Claimant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}` of `{} {}", self.family, self.crate_name, self.crate_version)
    }
}

/// What a host's start-up check found.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectError {
    /// Families the host counts on are not linked.
    #[error(
        "expected linked families {missing}, found {found}; a crate in Cargo.toml that no code names is not linked: \
         write `kinfolk::enroll!();` in the host",
        missing = Quoted(missing),
        found = Enrolled(enrolled)
    )]
    Missing {
        /// The names that no enrolled family has.
        missing: Vec<String>,
        /// The families that are enrolled.
        enrolled: Vec<&'static str>,
    },
    /// Several families claim one name and no probe tells them apart.
    #[error("expected one family for {0}; drop one crate, or pin a family at each load")]
    Conflict(Conflict),
    /// A family was built against another waist.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
}

/// The architecture is a stranger's text, so no crate name is guessed from it: whoever names the file could also publish the crate.
const NO_KNOWN_CRATE: &str =
    "; no crate known to this version runs it, and one that does is linked by\ncargo add <its crate>";

/// The families enrolled, or `none`.
struct Enrolled<'a>(&'a [&'static str]);

impl fmt::Display for Enrolled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("none"),
            names => write!(f, "{}", Quoted(names)),
        }
    }
}

/// The last line of a message: the exact command, so that it can be copied. Led in by the first text.
struct Command<'a>(&'static str, &'a Option<&'static str>);

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command(lead_in, Some(crate_name)) => write!(f, "{lead_in}\ncargo add {crate_name}"),
            Command(_, None) => Ok(()),
        }
    }
}
