//! `kinfolk families`.

use std::{path::Path, process::ExitCode};

use anyhow::Result;
use kinfolk::{Registry, decoder::Source};
use serde_json::json;

use crate::{args::FamiliesArgs, print};

pub fn run(args: &FamiliesArgs) -> Result<ExitCode> {
    match &args.explain {
        Some(path) => explain(path, args.json),
        None => list(args.json),
    }
}

fn list(as_json: bool) -> Result<ExitCode> {
    let registry = Registry::linked();
    if as_json {
        let family = |f: &kinfolk::Family| {
            json!({
                "family": f.name,
                "description": f.description,
                "model_types": f.model_types,
                "gguf": f.gguf,
                "classes": f.classes,
                "arches": f.arches,
                "tool_calls": f.conventions.tool_calls,
                "crate": f.crate_name,
                "version": f.crate_version,
            })
        };
        print::json(&registry.families().map(family).collect::<Vec<_>>())?;
    } else {
        let heading = ["family", "model types", "GGUF names", "crate"].map(str::to_owned).to_vec();
        let row = |f: &kinfolk::Family| {
            let own = [f.model_types, f.arches].concat();
            vec![f.name.to_owned(), own.join(", "), f.gguf.join(", "), format!("{} {}", f.crate_name, f.crate_version)]
        };
        let rows: Vec<_> = std::iter::once(heading).chain(registry.families().map(row)).collect();
        print::out(&print::table(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn explain(path: &Path, as_json: bool) -> Result<ExitCode> {
    let source = Source::open(path)?;
    let claim = Registry::linked().claim(&source);
    let (trail, failure) = match &claim {
        Ok(decision) => (Some(&decision.trail), None),
        Err(error) => (error.trail(), Some(error.to_string())),
    };
    if as_json {
        let family = claim.as_ref().ok().map(|d| d.family.name);
        print::json(&json!({"family": family, "trail": trail, "error": failure}))?;
    } else if let Some(trail) = trail {
        print::out(&format!("{trail}\n"))?;
    }
    match claim {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
    }
}
