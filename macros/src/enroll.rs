//! `enroll!`: the host's Cargo.toml becomes one `use` per family.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{Error, Result};

use crate::manifest::{self, Enrolment};

pub(crate) fn expand(arguments: TokenStream) -> Result<TokenStream> {
    if !arguments.is_empty() {
        return Err(Error::new_spanned(arguments, "expected `enroll!()` without arguments: it reads Cargo.toml"));
    }
    let manifest = Manifest::of_host()?;
    let workspace = manifest.workspace()?;
    let enrolments = manifest::families(&manifest.table, workspace.as_ref().map(|workspace| &workspace.table))
        .map_err(|reason| error(format!("`{}`: {reason}", manifest.path.display())))?;
    let uses = enrolments.iter().map(use_item).collect::<Result<Vec<_>>>()?;
    // An edit of a file that was read must lead here again.
    let read = [Some(&manifest), workspace.as_ref()].into_iter().flatten().map(|manifest| {
        let path = manifest.path.to_string_lossy();
        quote!(
            const _: &[u8] = ::core::include_bytes!(#path);
        )
    });
    Ok(quote! { #(#read)* #(#uses)* })
}

fn use_item(enrolment: &Enrolment) -> Result<TokenStream> {
    let name = syn::parse_str::<Ident>(&enrolment.crate_name)
        .map_err(|_| error(format!("expected a crate name, found `{}`", enrolment.crate_name)))?;
    let conditions = enrolment.conditions.iter().map(|condition| {
        let condition: TokenStream =
            condition.parse().map_err(|_| error(format!("expected a cfg condition, found `{condition}`")))?;
        Ok(quote!(#[cfg(#condition)]))
    });
    let conditions = conditions.collect::<Result<Vec<_>>>()?;
    Ok(quote! { #(#conditions)* use ::#name as _; })
}

struct Manifest {
    path: PathBuf,
    table: toml::Table,
}

impl Manifest {
    /// Cargo.toml of the crate being compiled. Cargo names its folder in the environment of every compilation; that is
    /// the one thing a macro can know it by.
    fn of_host() -> Result<Manifest> {
        let folder = env::var_os("CARGO_MANIFEST_DIR")
            .ok_or_else(|| error("expected `CARGO_MANIFEST_DIR` in the environment, found none: build with cargo"))?;
        Manifest::read(&Path::new(&folder).join("Cargo.toml"))
    }

    fn read(path: &Path) -> Result<Manifest> {
        let text =
            fs::read_to_string(path).map_err(|cause| error(format!("cannot read `{}`: {cause}", path.display())))?;
        let table = text.parse().map_err(|cause| error(format!("cannot parse `{}`: {cause}", path.display())))?;
        Ok(Manifest { path: path.to_owned(), table })
    }

    /// The root manifest of the workspace, if the host inherits a dependency from it.
    fn workspace(&self) -> Result<Option<Manifest>> {
        if !manifest::inherits(&self.table) {
            return Ok(None);
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let named =
            self.table.get("package").and_then(|package| package.get("workspace")).and_then(toml::Value::as_str);
        if let Some(root) = named {
            return Manifest::read(&folder.join(root).join("Cargo.toml")).map(Some);
        }
        for ancestor in folder.ancestors() {
            let path = ancestor.join("Cargo.toml");
            if path.is_file() {
                let candidate = Manifest::read(&path)?;
                if candidate.table.contains_key("workspace") {
                    return Ok(Some(candidate));
                }
            }
        }
        Ok(None)
    }
}

fn error(message: impl std::fmt::Display) -> Error {
    Error::new(Span::call_site(), message)
}
