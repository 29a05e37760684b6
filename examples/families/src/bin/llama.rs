//! Runs llama checkpoints and nothing else: the program links that family alone.

use kinfolk_llama as _;
use kinfolk_family_examples::continue_text;

fn main() -> anyhow::Result<()> {
    continue_text()
}
