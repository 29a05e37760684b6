//! Which family runs a checkpoint.
//!
//! The checkpoint's own names decide. A probe can withdraw a family's claim, or make one where no name matches. The path
//! only breaks a tie: people name folders after anything.

use std::path::Path;

use kinfolk_weights::{Config, Source};

use super::{
    ClaimError, Registry,
    error::{Claimant, Conflict},
    names::{class_stem, normalise},
    origin,
    trail::{Answer, Says, Trail},
};
use crate::{
    family::{AliasList, Family},
    hints,
};

/// The family chosen, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// The family.
    pub family: Family,
    /// Who was asked, what each said, why this one won.
    pub trail: Trail,
}

/// What is known of a checkpoint when families are asked.
pub(super) struct Evidence<'a> {
    /// Names of the architecture, most specific first.
    pub(super) names: Vec<String>,
    /// The file they were read from.
    pub(super) read_from: Option<&'a Path>,
    /// Where the checkpoint lies.
    pub(super) path: Option<&'a Path>,
    /// The checkpoint, for the probes.
    pub(super) source: Option<&'a Source>,
}

impl<'a> Evidence<'a> {
    pub(super) fn of(source: &'a Source) -> Evidence<'a> {
        Evidence {
            names: source.config().architectures(),
            read_from: Some(source.config().path()),
            path: Some(source.path()),
            source: Some(source),
        }
    }

    pub(super) fn of_config(config: &'a Config, path: &'a Path) -> Evidence<'a> {
        Evidence { names: config.architectures(), read_from: Some(config.path()), path: Some(path), source: None }
    }

    fn trail(&self, answers: Vec<Answer>, verdict: String) -> Trail {
        let read_from = self.read_from.map(Path::to_owned);
        Trail { architectures: self.names.clone(), read_from, answers, verdict }
    }
}

/// How well a family's claim is founded; less is better.
type Rank = (usize, Spelling);

/// Whether a name matched as it is or by its class stem. Ordered: the exact one is the better claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Spelling {
    Exact,
    Stem,
}

struct Candidate<'r> {
    family: &'r Family,
    rank: Rank,
    probe: Option<bool>,
}

impl Registry {
    pub(super) fn decide(&self, evidence: &Evidence) -> Result<Decision, ClaimError> {
        if self.is_empty() && self.incompatible.is_empty() {
            return Err(ClaimError::EmptyRegistry {
                hint: hints::crate_for(&evidence.names),
                architectures: evidence.names.clone(),
                read_from: evidence.read_from.map(Path::to_owned),
            });
        }
        let (answers, candidates) = self.ask(evidence);
        let trail = |verdict: String| evidence.trail(answers, verdict);
        match strongest(candidates).as_slice() {
            [] => Err(self.unclaimed(evidence, trail)),
            [only] => {
                let verdict = format!("`{}` is chosen: no other claim is as strong", only.name);
                Ok(Decision { family: **only, trail: trail(verdict) })
            }
            tied => match named_by_path(tied, evidence.path) {
                Some(family) => {
                    let verdict =
                        format!("`{}` is chosen: claims are equally strong, and the path names it", family.name);
                    Ok(Decision { family: *family, trail: trail(verdict) })
                }
                None => Err(ClaimError::Conflict {
                    conflict: conflict(evidence.names.first().map_or("", String::as_str), tied),
                    trail: Box::new(trail("claims are equally strong".to_owned())),
                }),
            },
        }
    }

    pub(super) fn decide_pinned(&self, pin: &str, evidence: &Evidence) -> Result<Decision, ClaimError> {
        let (answers, candidates) = self.ask(evidence);
        let trail = |verdict: String| evidence.trail(answers, verdict);
        match self.named(pin).as_slice() {
            [only] => {
                if !candidates.iter().any(|candidate| origin(candidate.family) == origin(only)) {
                    tracing::warn!(family = only.name, architectures = ?evidence.names, "pinned family does not claim it");
                }
                let verdict = format!("`{}` is chosen: the host pinned it", only.name);
                Ok(Decision { family: **only, trail: trail(verdict) })
            }
            [] => Err(ClaimError::UnknownFamily {
                family: pin.to_owned(),
                enrolled: self.names(),
                hint: hints::crate_of_family(pin),
            }),
            several => Err(ClaimError::Conflict {
                conflict: conflict(pin, several),
                trail: Box::new(trail("several families have the pinned name".to_owned())),
            }),
        }
    }

    /// Asks every family by name, and by its probe where that is its turn.
    fn ask(&self, evidence: &Evidence) -> (Vec<Answer>, Vec<Candidate<'_>>) {
        let mut candidates = Vec::new();
        let mut says: Vec<Says> = Vec::with_capacity(self.families.len());
        for (family_idx, family) in self.families.iter().enumerate() {
            says.push(match self.best_alias(family_idx, &evidence.names) {
                Some((rank, list, alias)) => {
                    let probe = family.probe.zip(evidence.source).map(|(probe, source)| probe(source));
                    if probe != Some(false) {
                        candidates.push(Candidate { family, rank, probe });
                    }
                    Says::Claims { architecture: evidence.names[rank.0].clone(), alias, list, probe }
                }
                None => Says::Unknown,
            });
        }
        if let (true, Some(source)) = (candidates.is_empty(), evidence.source) {
            for (family, says) in self.families.iter().zip(&mut says) {
                if let (Says::Unknown, Some(probe)) = (&says, family.probe) {
                    let claims = probe(source);
                    *says = Says::Probed { claims };
                    if claims {
                        let rank = (evidence.names.len(), Spelling::Exact);
                        candidates.push(Candidate { family, rank, probe: Some(true) });
                    }
                }
            }
        }
        let answers = self.families.iter().zip(says).map(|(family, says)| Answer {
            family: family.name,
            crate_name: family.crate_name,
            crate_version: family.crate_version,
            says,
        });
        (answers.collect(), candidates)
    }

    /// The family's best match among the checkpoint's names.
    fn best_alias(&self, family_idx: usize, names: &[String]) -> Option<(Rank, AliasList, &'static str)> {
        let of_family = |normalised: &str| {
            let entries = self.aliases.get(normalised).into_iter().flatten();
            entries.filter(move |entry| entry.family_idx == family_idx)
        };
        names.iter().enumerate().find_map(|(name_idx, name)| {
            let name = normalise(name);
            let exact = of_family(&name).map(|entry| ((name_idx, Spelling::Exact), entry.list, entry.alias)).next();
            let stem = || {
                of_family(class_stem(&name)?)
                    .filter(|entry| entry.list == AliasList::ModelTypes)
                    .map(|entry| ((name_idx, Spelling::Stem), entry.list, entry.alias))
                    .next()
            };
            exact.or_else(stem)
        })
    }

    fn unclaimed(&self, evidence: &Evidence, trail: impl FnOnce(String) -> Trail) -> ClaimError {
        let normalised: Vec<String> = evidence.names.iter().map(|name| normalise(name)).collect();
        let runs_it =
            |(family, _): &&(Family, _)| family.aliases().any(|(_, alias)| normalised.contains(&normalise(alias)));
        if let Some((_, incompatible)) = self.incompatible.iter().find(runs_it) {
            return incompatible.clone().into();
        }
        let trail = Box::new(trail("no family claims it".to_owned()));
        match evidence.names.is_empty() {
            true => ClaimError::NoArchitecture { trail },
            false => ClaimError::Unclaimed { enrolled: self.names(), hint: hints::crate_for(&evidence.names), trail },
        }
    }
}

/// The candidates no other outranks: by the most specific name, then those whose probe vouches for them.
fn strongest(mut candidates: Vec<Candidate<'_>>) -> Vec<&Family> {
    if let Some(best) = candidates.iter().map(|candidate| candidate.rank).min() {
        candidates.retain(|candidate| candidate.rank == best);
    }
    if candidates.iter().any(|candidate| candidate.probe == Some(true)) {
        candidates.retain(|candidate| candidate.probe == Some(true));
    }
    candidates.into_iter().map(|candidate| candidate.family).collect()
}

/// The one family of `tied` that the file name mentions, or else the folder's.
fn named_by_path<'r>(tied: &[&'r Family], path: Option<&Path>) -> Option<&'r Family> {
    let nearest = path?.ancestors().take(2).filter_map(|part| Some(normalise(part.file_name()?.to_str()?)));
    nearest.into_iter().find_map(|part| {
        let mut mentioned = tied.iter().filter(|family| part.contains(&normalise(family.name)));
        match (mentioned.next(), mentioned.next()) {
            (Some(&family), None) => Some(family),
            _ => None,
        }
    })
}

pub(super) fn conflict(name: &str, families: &[&Family]) -> Conflict {
    let mut claimants: Vec<Claimant> = families
        .iter()
        .map(|&&Family { name: family, crate_name, crate_version, .. }| Claimant { family, crate_name, crate_version })
        .collect();
    claimants.sort();
    Conflict { name: normalise(name), claimants }
}
