//! What families say of how their checkpoints talk means something to the text layer.

use kinfolk::{Registry, text::ToolFormats};
use kinfolk_registry_tests as _;

#[test]
fn every_family_names_a_format_of_tool_calls_that_is_known() {
    let formats = ToolFormats::linked();
    for family in Registry::linked().families() {
        if let Some(name) = family.conventions.tool_calls {
            let known: Vec<&str> = formats.names().collect();
            assert!(formats.get(name).is_some(), "family `{}` says `{name}`: expected one of {known:?}", family.name);
        }
    }
}
