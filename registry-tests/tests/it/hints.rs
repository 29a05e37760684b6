//! The table by which the runtime says which crate to add equals what the families say of themselves.

use std::{collections::BTreeSet, env, fs, path::Path};

use kinfolk::{Registry, registry::normalise};

const BEGIN: &str = "    // Generated from here\n";
const END: &str = "    // to here.\n";

#[test]
fn the_hint_table_is_what_the_linked_families_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/kinfolk/src/hints.rs");
    let text = fs::read_to_string(&path).expect("hints.rs is part of the checkout");
    let (before, rest) = text.split_once(BEGIN).expect("hints.rs marks where the table begins");
    let (table, after) = rest.split_once(END).expect("hints.rs marks where the table ends");
    let generated = generate();
    if env::var_os("KINFOLK_UPDATE_HINTS").is_some() {
        fs::write(&path, [before, BEGIN, &generated, END, after].concat()).expect("the checkout can be written");
    } else {
        assert_eq!(
            table, generated,
            "hints.rs is stale; rewrite it by `KINFOLK_UPDATE_HINTS=1 cargo test -p kinfolk-registry-tests hints`"
        );
    }
}

fn generate() -> String {
    let mut table = String::new();
    for family in Registry::linked().families() {
        let names: BTreeSet<String> = family.aliases().map(|(_, alias)| normalise(alias)).collect();
        table += &format!("    ({:?}, &{:?}),\n", family.crate_name, Vec::from_iter(names));
    }
    table
}
