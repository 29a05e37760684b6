//! Runs smollm3 checkpoints and nothing else: the program links that family alone.

use kinfolk_smollm3 as _;
use kinfolk_family_examples::continue_text;

fn main() -> anyhow::Result<()> {
    continue_text()
}
