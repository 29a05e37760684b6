use std::{fs, ops::ControlFlow, path::PathBuf};

use kinfolk::{GenerateOptions, LoadOptions, Registry, auto_runner, auto_runner_name, conformance};

const VOCAB_SIZE: usize = 256;

/// A checkpoint that has learnt which byte follows which in `text`. Removed when dropped.
struct Checkpoint(PathBuf);

impl Checkpoint {
    fn of(name: &str, text: &str, architecture: &str) -> Checkpoint {
        let folder = std::env::temp_dir().join(format!("bigram-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let config =
            format!(r#"{{"model_type": "{architecture}", "vocab_size": {VOCAB_SIZE}, "max_position_embeddings": 64}}"#);
        fs::write(folder.join("config.json"), config).unwrap();
        fs::write(folder.join("model.safetensors"), safetensors(&counts(text))).unwrap();
        Checkpoint(folder)
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // Nothing depends on it: a folder left behind is only untidy.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn counts(text: &str) -> Vec<f32> {
    let mut counts = vec![0.0; VOCAB_SIZE * VOCAB_SIZE];
    for pair in text.as_bytes().windows(2) {
        counts[usize::from(pair[0]) * VOCAB_SIZE + usize::from(pair[1])] += 1.0;
    }
    counts
}

/// One f32 tensor as a safetensors file: header length, header, data.
fn safetensors(weight: &[f32]) -> Vec<u8> {
    let header = format!(
        r#"{{"bigram.weight":{{"dtype":"F32","shape":[{VOCAB_SIZE},{VOCAB_SIZE}],"data_offsets":[0,{}]}}}}"#,
        weight.len() * 4
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(weight.iter().flat_map(|x| x.to_le_bytes()));
    bytes
}

#[test]
fn the_checkpoint_finds_its_family_and_speaks() {
    let checkpoint = Checkpoint::of("speaks", "abcabcabc abd", "bigram");
    assert_eq!(auto_runner_name("Bigram", None), Some("bigram"));
    let mut runner = auto_runner(&checkpoint.0, LoadOptions::default()).unwrap();
    let mut options = GenerateOptions::default();
    options.max_new_tokens = 5;
    options.sample.temperature = 0.0;
    let prompt: Vec<u32> = "a".bytes().map(u32::from).collect();
    let mut text = String::new();
    runner
        .generate(&prompt, &options, &mut |token| {
            text.extend(char::from_u32(token));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(text, "bcabc");
}

#[test]
fn the_runner_conforms() {
    let checkpoint = Checkpoint::of("conforms", "any text will do", "bigram");
    let registry = Registry::of([crate::FAMILY]);
    conformance::check(|| registry.runner(&checkpoint.0, LoadOptions::default()).unwrap());
}

#[test]
fn a_checkpoint_of_another_architecture_is_not_claimed() {
    let checkpoint = Checkpoint::of("other", "abc", "trigram");
    let error = auto_runner(&checkpoint.0, LoadOptions::default()).err().unwrap().to_string();
    assert!(
        error.starts_with("expected an architecture of a linked family (`bigram`), found `trigram` in `"),
        "{error}"
    );
}
