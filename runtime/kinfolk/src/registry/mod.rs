//! Which families there are, and which of them runs a checkpoint.

mod claim;
mod error;
mod names;
mod trail;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, OnceLock},
};

use kinfolk_weights::{Config, Source};

pub use claim::Decision;
pub use error::{ClaimError, Claimant, Conflict, ExpectError, Incompatible};
pub use names::normalise;
pub use trail::{Answer, Says, Trail};

use crate::{
    family::{API_VERSION, AliasList, Family},
    load::{LoadOptions, LoadRequest},
    runner::LmRunner,
};
use claim::Evidence;

/// Names the linked family that runs `architecture`; `path` only breaks a tie. `None`: no family, or no single one.
pub fn auto_runner_name(architecture: &str, path: Option<&Path>) -> Option<&'static str> {
    Registry::linked().claim_name(architecture, path).ok().map(|decision| decision.family.name)
}

/// Opens the checkpoint at `path` with the linked family that runs it.
///
/// # Errors
/// [`WeightsError`](kinfolk_weights::WeightsError) if it cannot be opened, [`ClaimError`] if no family can be chosen, and
/// whatever the family fails with.
pub fn auto_runner(path: impl AsRef<Path>, options: LoadOptions) -> anyhow::Result<Box<dyn LmRunner>> {
    Registry::linked().runner(path, options)
}

/// A set of families. A plain value: [`linked`](Self::linked) is the program's own, [`of`](Self::of) any other.
///
/// It is sorted, so the order in which the linker met the families decides nothing.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// Sorted by name, then origin.
    families: Vec<Family>,
    /// By normalised alias.
    aliases: BTreeMap<String, Vec<Alias>>,
    /// Left out because they speak another version of the contract.
    incompatible: Vec<(Family, Incompatible)>,
}

#[derive(Clone, Debug)]
struct Alias {
    family_idx: usize,
    list: AliasList,
    alias: &'static str,
}

impl Registry {
    /// The families linked into this program, read once.
    ///
    /// A static library has none that its C program does not name, and neither has a target without constructors:
    /// use [`of`](Self::of) there.
    pub fn linked() -> &'static Registry {
        static LINKED: OnceLock<Registry> = OnceLock::new();
        LINKED.get_or_init(|| {
            let registry = Registry::of(inventory::iter::<Family>.into_iter().copied());
            if let Err(problem) = registry.expect([]) {
                tracing::warn!(%problem, "linked families");
            }
            registry
        })
    }

    /// Exactly these families. One given twice counts once.
    pub fn of(families: impl IntoIterator<Item = Family>) -> Registry {
        let mut registry = Registry::default();
        for family in families {
            match family.api_version {
                API_VERSION => registry.families.push(family),
                found => registry.incompatible.push((family, incompatible(&family, found))),
            }
        }
        registry.families.sort_by_key(|family| (normalise(family.name), origin(family)));
        registry.families.dedup_by_key(|family| origin(family));
        for (family_idx, family) in registry.families.iter().enumerate() {
            for (list, alias) in family.aliases() {
                let entry = Alias { family_idx, list, alias };
                registry.aliases.entry(normalise(alias)).or_default().push(entry);
            }
        }
        registry
    }

    /// The families, by name.
    pub fn families(&self) -> impl ExactSizeIterator<Item = &Family> {
        self.families.iter()
    }

    /// Whether there is no family.
    pub fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// The family of this name. `None` also if several crates bring one of that name.
    pub fn get(&self, name: &str) -> Option<&Family> {
        match self.named(name).as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Names that several families claim with no probe to tell them apart, and families of one name.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for same_name in self.families.chunk_by(|a, b| normalise(a.name) == normalise(b.name)) {
            if let [first, _, ..] = same_name {
                conflicts.push(claim::conflict(first.name, &same_name.iter().collect::<Vec<_>>()));
            }
        }
        for (name, entries) in &self.aliases {
            let mut claimants: Vec<usize> = entries.iter().map(|entry| entry.family_idx).collect();
            claimants.dedup();
            let claimants: Vec<&Family> = claimants.into_iter().map(|family_idx| &self.families[family_idx]).collect();
            if claimants.iter().filter(|family| family.probe.is_none()).count() > 1 {
                conflicts.push(claim::conflict(name, &claimants));
            }
        }
        conflicts
    }

    /// The start-up check of a host: these families are linked, none conflicts with another, all speak this waist's
    /// contract.
    ///
    /// # Errors
    /// [`ExpectError::Missing`], [`Conflict`](ExpectError::Conflict), [`Incompatible`](ExpectError::Incompatible).
    pub fn expect<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), ExpectError> {
        if let Some((_, incompatible)) = self.incompatible.first() {
            return Err(incompatible.clone().into());
        }
        if let Some(conflict) = self.conflicts().into_iter().next() {
            return Err(ExpectError::Conflict(conflict));
        }
        let missing: Vec<String> =
            names.into_iter().filter(|name| self.named(name).is_empty()).map(str::to_owned).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(ExpectError::Missing { missing, enrolled: self.names() }),
        }
    }

    /// Chooses the family that runs an open checkpoint.
    ///
    /// # Errors
    /// See [`ClaimError`].
    pub fn claim(&self, source: &Source) -> Result<Decision, ClaimError> {
        self.decide(&Evidence::of(source))
    }

    /// [`claim`](Self::claim) from a name alone, before there is a file to probe.
    ///
    /// # Errors
    /// See [`ClaimError`].
    pub fn claim_name(&self, architecture: &str, path: Option<&Path>) -> Result<Decision, ClaimError> {
        let names = Some(architecture.to_owned()).filter(|name| !normalise(name).is_empty());
        self.decide(&Evidence { names: names.into_iter().collect(), read_from: None, path, source: None })
    }

    /// [`claim`](Self::claim) from a config alone, before there is a file for the probes to look at. `path` only breaks a tie.
    ///
    /// # Errors
    /// See [`ClaimError`].
    pub fn claim_config(&self, config: &Config, path: &Path) -> Result<Decision, ClaimError> {
        self.decide(&Evidence::of_config(config, path))
    }

    /// [`pin`](Self::pin) before there is a file.
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    pub fn pin_config(&self, family: &str, config: &Config, path: &Path) -> Result<Decision, ClaimError> {
        self.decide_pinned(family, &Evidence::of_config(config, path))
    }

    /// Chooses the family or crate a host names, whatever the checkpoint says of itself.
    ///
    /// # Errors
    /// [`ClaimError::UnknownFamily`], [`Conflict`](ClaimError::Conflict) if several crates bring a family of that name:
    /// name the crate then.
    pub fn pin(&self, family: &str, source: &Source) -> Result<Decision, ClaimError> {
        self.decide_pinned(family, &Evidence::of(source))
    }

    /// Opens the checkpoint at `path` with the family that runs it, or with [`LoadOptions::family`].
    ///
    /// # Errors
    /// As [`auto_runner`].
    pub fn runner(&self, path: impl AsRef<Path>, options: LoadOptions) -> anyhow::Result<Box<dyn LmRunner>> {
        let source = Arc::new(Source::open_with(path, &options.open)?);
        let Decision { family, trail } = match &options.family {
            Some(name) => self.pin(name, &source)?,
            None => self.claim(&source)?,
        };
        tracing::debug!(family = family.name, %trail, "family chosen");
        (family.load)(LoadRequest { source, options })
    }

    /// The families of this name, or of the crate of this name.
    fn named(&self, name: &str) -> Vec<&Family> {
        let normalised = normalise(name);
        self.families
            .iter()
            .filter(|family| normalise(family.name) == normalised || family.crate_name == name)
            .collect()
    }

    fn names(&self) -> Vec<&'static str> {
        self.families.iter().map(|family| family.name).collect()
    }
}

/// What makes two records the same one, linked twice.
fn origin(family: &Family) -> (&'static str, &'static str, &'static str) {
    (family.name, family.crate_name, family.crate_version)
}

fn incompatible(family: &Family, found: u32) -> Incompatible {
    let &Family { name, crate_name, crate_version, .. } = family;
    Incompatible { family: name, crate_name, crate_version, expected: API_VERSION, found }
}

#[cfg(test)]
mod tests;
