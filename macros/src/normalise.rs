//! When two spellings name one architecture: `kinfolk::registry::normalise`, which a crate below kinfolk cannot call. A test in
//! registry-tests holds the two together.

pub(crate) fn normalise(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace() && !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}
