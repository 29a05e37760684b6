//! Which dependencies of a Cargo.toml are families, and when each is there.

use std::collections::BTreeSet;

use toml::{Table, Value};

/// Crates that carry the prefix of families and are none.
const NOT_FAMILIES: &[&str] = &[
    "kinfolk-candle",
    "kinfolk-cli",
    "kinfolk-cpu",
    "kinfolk-decoder",
    "kinfolk-macros",
    "kinfolk-mlx",
    "kinfolk-server",
    "kinfolk-text",
    "kinfolk-weights",
];

/// One crate to name in code.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Enrolment {
    /// As code spells it.
    pub(crate) crate_name: String,
    /// `cfg` predicates that must all hold, or the crate is not there to be named.
    pub(crate) conditions: Vec<String>,
}

/// Whether some dependency is inherited from the workspace, whose manifest then has to be read.
pub(crate) fn inherits(manifest: &Table) -> bool {
    dependency_tables(manifest).iter().any(|(_, table)| table.values().any(is_inherited))
}

/// The families among the dependencies, sorted.
pub(crate) fn families(manifest: &Table, workspace: Option<&Table>) -> Result<Vec<Enrolment>, String> {
    let listed = listed_families(manifest)?;
    let mut found = BTreeSet::new();
    let mut used = BTreeSet::new();
    for (conditions, table) in dependency_tables(manifest) {
        for (key, dependency) in table {
            let package = package_name(key, dependency, workspace);
            let is_listed = |name: &&str| *name == key || *name == package;
            let by_list = listed.iter().copied().find(is_listed);
            used.extend(by_list);
            let by_prefix = package.starts_with("kinfolk-") && !NOT_FAMILIES.contains(&package);
            if by_list.is_none() && !by_prefix {
                continue;
            }
            let optional = dependency.get("optional").and_then(Value::as_bool) == Some(true);
            let conditions = conditions.iter().cloned().chain(optional.then(|| activation(key, manifest))).collect();
            found.insert(Enrolment { crate_name: key.replace('-', "_"), conditions });
        }
    }
    match listed.iter().find(|name| !used.contains(*name)) {
        Some(stray) => {
            Err(format!("`package.metadata.kinfolk.families`: expected the name of a dependency, found `{stray}`"))
        }
        None => Ok(found.into_iter().collect()),
    }
}

/// `[package.metadata.kinfolk] families`.
fn listed_families(manifest: &Table) -> Result<Vec<&str>, String> {
    let metadata = manifest.get("package").and_then(|package| package.get("metadata")?.get("kinfolk")?.get("families"));
    let Some(list) = metadata else { return Ok(Vec::new()) };
    let names = list.as_array().map(|names| names.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    names
        .flatten()
        .ok_or_else(|| format!("`package.metadata.kinfolk.families`: expected a list of names, found `{list}`"))
}

/// Every table of dependencies that code may name, with the `cfg` predicates under which it holds.
fn dependency_tables(manifest: &Table) -> Vec<(Vec<String>, &Table)> {
    let mut tables = tables_of(&[], manifest);
    for (target, parent) in manifest.get("target").and_then(Value::as_table).into_iter().flatten() {
        // A target triple has no `cfg` that says it, so such a dependency has to be named by hand.
        let predicate = target.strip_prefix("cfg(").and_then(|rest| rest.strip_suffix(')'));
        if let (Some(predicate), Some(parent)) = (predicate, parent.as_table()) {
            tables.extend(tables_of(&[predicate], parent));
        }
    }
    tables
}

/// `dependencies`, and `dev-dependencies`, which only tests can name.
fn tables_of<'a>(conditions: &[&str], parent: &'a Table) -> Vec<(Vec<String>, &'a Table)> {
    let table = |key: &str| parent.get(key).and_then(Value::as_table);
    let with = |more: &[&str]| conditions.iter().chain(more).map(|condition| (*condition).to_owned()).collect();
    let normal = table("dependencies").map(|table| (with(&[]), table));
    let dev = table("dev-dependencies").map(|table| (with(&["test"]), table));
    normal.into_iter().chain(dev).collect()
}

fn is_inherited(dependency: &Value) -> bool {
    dependency.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// The package behind a dependency that may be renamed, here or in the workspace.
fn package_name<'a>(key: &'a str, dependency: &'a Value, workspace: Option<&'a Table>) -> &'a str {
    let inherited = || workspace?.get("workspace")?.get("dependencies")?.get(key);
    let stated = if is_inherited(dependency) { inherited() } else { Some(dependency) };
    stated.and_then(|stated| stated.get("package")).and_then(Value::as_str).unwrap_or(key)
}

/// The `cfg` predicate under which the optional dependency `key` is there.
fn activation(key: &str, manifest: &Table) -> String {
    let explicit = format!("dep:{key}");
    let through = format!("{key}/");
    let features: Vec<(&str, Vec<&str>)> = manifest
        .get("features")
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
        .map(|(feature, enables)| {
            (feature.as_str(), enables.as_array().into_iter().flatten().filter_map(Value::as_str).collect())
        })
        .collect();
    let activating = features
        .iter()
        .filter(|(_, enables)| enables.iter().any(|what| *what == explicit || what.starts_with(&through)));
    let mut names: BTreeSet<&str> = activating.map(|(feature, _)| *feature).collect();
    // Cargo makes a feature of the dependency's name unless some feature spells `dep:`.
    if !features.iter().any(|(_, enables)| enables.contains(&explicit.as_str())) {
        names.insert(key);
    }
    format!("any({})", names.iter().map(|name| format!("feature = {name:?}")).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(manifest: &str, expected: &[(&str, &[&str])]) {
        check_in(manifest, None, expected);
    }

    #[track_caller]
    fn check_in(manifest: &str, workspace: Option<&str>, expected: &[(&str, &[&str])]) {
        let parse = |text: &str| text.parse::<Table>().expect("the case is TOML");
        let workspace = workspace.map(parse);
        let found = families(&parse(manifest), workspace.as_ref()).expect("the case names only dependencies");
        let expected: Vec<Enrolment> = expected
            .iter()
            .map(|(crate_name, conditions)| Enrolment {
                crate_name: (*crate_name).to_owned(),
                conditions: conditions.iter().map(|condition| (*condition).to_owned()).collect(),
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn families_are_the_prefixed_dependencies_that_are_not_runtime() {
        check(
            r#"
            [dependencies]
            kinfolk = "0.1"
            kinfolk-server = "0.1"
            kinfolk-qwen3 = "0.1"
            serde = "1"
            [dependencies.kinfolk-llama]
            version = "0.1"
            [build-dependencies]
            kinfolk-gemma = "0.1"
            "#,
            &[("kinfolk_llama", &[]), ("kinfolk_qwen3", &[])],
        );
    }

    #[test]
    fn a_renamed_family_is_named_by_its_new_name() {
        check(r#"dependencies.q3 = { package = "kinfolk-qwen3", version = "0.1" }"#, &[("q3", &[])]);
        check(r#"dependencies.kinfolk-other = { package = "serde", version = "1" }"#, &[]);
    }

    #[test]
    fn a_rename_inherited_from_the_workspace_is_understood() {
        check_in(
            "dependencies.q3.workspace = true",
            Some(r#"workspace.dependencies.q3 = { package = "kinfolk-qwen3", version = "0.1" }"#),
            &[("q3", &[])],
        );
    }

    #[test]
    fn an_optional_family_is_named_when_its_feature_is_on() {
        check(
            r#"dependencies.kinfolk-qwen3 = { version = "0.1", optional = true }"#,
            &[("kinfolk_qwen3", &[r#"any(feature = "kinfolk-qwen3")"#])],
        );
        check(
            r#"
            dependencies.kinfolk-qwen3 = { version = "0.1", optional = true }
            [features]
            chinese = ["dep:kinfolk-qwen3"]
            all = ["chinese", "kinfolk-qwen3/tiny"]
            weak = ["kinfolk-qwen3?/tiny"]
            "#,
            &[("kinfolk_qwen3", &[r#"any(feature = "all", feature = "chinese")"#])],
        );
    }

    #[test]
    fn platform_and_test_dependencies_are_named_where_they_exist() {
        check(
            r#"
            [target.'cfg(target_os = "linux")'.dependencies]
            kinfolk-qwen3 = "0.1"
            [target.x86_64-pc-windows-gnu.dependencies]
            kinfolk-gemma = "0.1"
            [dev-dependencies]
            kinfolk-llama = "0.1"
            "#,
            &[("kinfolk_llama", &["test"]), ("kinfolk_qwen3", &[r#"target_os = "linux""#])],
        );
    }

    #[test]
    fn a_listed_family_needs_no_prefix_but_must_be_a_dependency() {
        check(
            r#"
            package.metadata.kinfolk.families = ["my-family"]
            dependencies.my-family = "1"
            dependencies.not-a-family = "1"
            "#,
            &[("my_family", &[])],
        );
        let stray = r#"package.metadata.kinfolk.families = ["my-famly"]"#.parse::<Table>().expect("the case is TOML");
        assert_eq!(
            families(&stray, None),
            Err("`package.metadata.kinfolk.families`: expected the name of a dependency, found `my-famly`".to_owned())
        );
        let mistyped = "package.metadata.kinfolk.families = [1]".parse::<Table>().expect("the case is TOML");
        assert!(families(&mistyped, None).is_err_and(|reason| reason.contains("expected a list of names")));
    }
}
