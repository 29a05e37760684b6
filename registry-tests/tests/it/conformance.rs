//! Every kind of decoder that the families describe conforms: windows, experts, soft caps, norms on both sides, growing queries.

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use kinfolk::{LoadOptions, LoadRequest, Registry, conformance, decoder::Source};
use kinfolk_registry_tests::{checkpoint_in, in_repository};

/// Checks a checkpoint and returns the family that runs it.
fn check(path: &Path) -> &'static str {
    let source = Arc::new(Source::open(path).unwrap());
    let family = Registry::linked().claim(&source).unwrap().family;
    conformance::check(|| (family.load)(LoadRequest::new(Arc::clone(&source), LoadOptions::default())).unwrap());
    family.name
}

#[test]
fn every_checkpoint_conforms_and_every_family_has_one() {
    let mut families = BTreeSet::new();
    let mut failures = Vec::new();
    for entry in fs::read_dir(in_repository("fixtures")).unwrap() {
        let Some(path) = checkpoint_in(&entry.unwrap().path()) else { continue };
        match catch_unwind(AssertUnwindSafe(|| check(&path))) {
            Ok(family) => drop(families.insert(family)),
            Err(panic) => failures.push(format!("{}: {:?}", path.display(), panic.downcast_ref::<String>())),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let linked: BTreeSet<&str> = Registry::linked().families().map(|family| family.name).collect();
    assert_eq!(families, linked, "each linked family has a checkpoint that conforms");
}
