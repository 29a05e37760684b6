//! Runs mistral checkpoints and nothing else: the program links that family alone.

use kinfolk_family_examples::continue_text;
use kinfolk_mistral as _;

fn main() -> anyhow::Result<()> {
    continue_text()
}
