//! Inputs that fuzzing kept because each took a path of its own, as a regression suite. A corpus file is a run of inputs, each behind its
//! length as a u32.

use std::path::Path;

use kinfolk_weights::Config;

use crate::mutations::check_bytes;

fn inputs(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus").join(name);
    let bytes = std::fs::read(path).unwrap();
    let (mut inputs, mut rest) = (Vec::new(), bytes.as_slice());
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (input, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
        inputs.push(input.to_vec());
        rest = tail;
    }
    assert!(inputs.len() >= 60, "{name}: {}", inputs.len());
    inputs
}

#[test]
fn files_from_the_corpus_are_refused_or_read_within_bounds() {
    for name in ["gguf", "safetensors"] {
        for (i, input) in inputs(name).into_iter().enumerate() {
            check_bytes(input).unwrap_or_else(|e| panic!("{name} {i}: {e}"));
        }
    }
}

#[test]
fn configs_from_the_corpus_are_refused_or_read() {
    for text in inputs("config") {
        let Ok(config) = Config::from_json("config.json", &String::from_utf8_lossy(&text)) else { continue };
        for key in ["num_hidden_layers", "rope_theta", "layer_types", "a"] {
            let _ = (config.usize(key), config.f32(key), config.opt_strs(key), config.opt_usizes(key));
            let _ = config.section(key).map(|section| section.map(|section| section.f32("factor")));
        }
    }
}
