//! Dequantisers against vectors made with gguf-py 0.19 (`gguf.quants.dequantize` of random blocks), and against the shared
//! quantised checkpoints and the weights they were made from.

use std::path::Path;

use kinfolk_weights::{Dtype, Source, WeightsError, quant};

use crate::fixtures::shared;

fn vectors() -> Source {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/quant/vectors.safetensors");
    Source::open_tensors(path).unwrap()
}

#[test]
fn random_blocks_decode_to_the_reference_bit_for_bit() {
    let vectors = vectors();
    let mut checked = 0;
    for &dtype in Dtype::ALL {
        let Some(blocks) = vectors.tensor(&format!("{dtype}.blocks")) else { continue };
        let expected = vectors.tensor(&format!("{dtype}.values")).unwrap().to_f32().unwrap();
        let mut found = vec![f32::NAN; expected.len()];
        quant::dequantize(dtype, blocks.bytes, &mut found).unwrap();
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            // Both zeros are right where a sign meets a zero.
            assert!(found == expected, "{dtype}, element {i}: expected {expected:e}, found {found:e}");
        }
        checked += 1;
    }
    assert_eq!(checked, 25);
}

/// The name llama.cpp's converter gives a tensor of the checkpoint the fixtures were made from.
fn original_name(gguf: &str) -> Option<String> {
    let name = match gguf {
        "token_embd.weight" => "model.embed_tokens.weight".into(),
        "output_norm.weight" => "model.norm.weight".into(),
        "output.weight" => "lm_head.weight".into(),
        _ => {
            let (layer, part) = gguf.strip_prefix("blk.")?.split_once('.')?;
            let part = match part.strip_suffix(".weight")? {
                "ffn_gate" => "mlp.gate_proj",
                "ffn_up" => "mlp.up_proj",
                "ffn_down" => "mlp.down_proj",
                "attn_q" => "self_attn.q_proj",
                "attn_k" => "self_attn.k_proj",
                "attn_v" => "self_attn.v_proj",
                "attn_output" => "self_attn.o_proj",
                _ => return None,
            };
            format!("model.layers.{layer}.{part}.weight")
        }
    };
    Some(name)
}

/// What `gguf-quants.json` records of each file type: the relative error (root of summed squares) of the worst tensor.
fn recorded_errors(folder: &Path) -> Vec<(String, f64)> {
    let text = std::fs::read_to_string(folder.join("gguf-quants.json")).unwrap();
    let json: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    json.into_iter().map(|(name, entry)| (name, entry["worst_relative_weight_error"].as_f64().unwrap())).collect()
}

fn relative_error(expected: &[f32], found: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 = expected.iter().zip(found).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = expected.iter().map(|a| square(f64::from(*a))).sum();
    (error / size).sqrt()
}

/// Rows of a head as the llama architecture stores them in GGUF: the halves that rotate together interleaved.
fn interleave_halves(weights: &[f32], head_rows: usize, columns: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(weights.len());
    for head in weights.chunks_exact(head_rows * columns) {
        let (first, second) = head.split_at(head.len() / 2);
        for (a, b) in first.chunks_exact(columns).zip(second.chunks_exact(columns)) {
            out.extend_from_slice(a);
            out.extend_from_slice(b);
        }
    }
    out
}

/// The worst tensor of a quantised file against the weights it was made from.
fn worst_error(original: &Source, quantised: &Source) -> f64 {
    let is_llama = quantised.config().architectures() == ["llama"];
    let head_dim = quantised.config().usize("head_dim").unwrap();
    let mut worst = 0f64;
    for info in quantised.tensors() {
        let Some(name) = original_name(&info.name) else { continue };
        let expected = original.tensor(&name).unwrap_or_else(|| panic!("{name} is not in the original"));
        assert_eq!(expected.info.shape, info.shape);
        let mut expected = expected.to_f32().unwrap();
        if is_llama && (info.name.contains("attn_q.") || info.name.contains("attn_k.")) {
            expected = interleave_halves(&expected, head_dim, info.shape[1]);
        }
        let found = quantised.tensor(&info.name).unwrap().to_f32().unwrap();
        worst = worst.max(relative_error(&expected, &found));
    }
    worst
}

#[test]
fn quantised_checkpoints_decode_to_their_weights_with_the_recorded_error() {
    let Some(shared) = shared() else { return };
    let (mut n_files, mut problems) = (0, Vec::new());
    for folder in ["quant-llama", "quant-qwen3"].map(|name| shared.join(name)) {
        let original = Source::open_tensors(folder.join("model.safetensors")).unwrap();
        for (file_type, recorded) in recorded_errors(&folder) {
            let quantised = Source::open(folder.join(format!("model-{file_type}.gguf"))).unwrap();
            let found = worst_error(&original, &quantised);
            if (found / recorded - 1.0).abs() > 1e-3 {
                problems
                    .push(format!("{} {file_type}: expected an error of {recorded}, found {found}", folder.display()));
            }
            n_files += 1;
        }
    }
    assert_eq!(n_files, 29);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn b11_eight_bit_floats_are_named_not_decoded() {
    for dtype in [Dtype::F8_E4M3, Dtype::F8_E5M2, Dtype::F8_E8M0] {
        assert!(!quant::is_decodable(dtype));
        let error = quant::dequantize(dtype, &[0; 4], &mut [0.0; 4]).unwrap_err();
        assert!(matches!(error, WeightsError::NotDecodable { dtype: d } if d == dtype));
        assert!(error.to_string().contains(dtype.name()));
    }
}

#[test]
fn every_other_type_is_decodable() {
    let not: Vec<&Dtype> = Dtype::ALL.iter().filter(|dtype| !quant::is_decodable(**dtype)).collect();
    assert_eq!(not, [&Dtype::F8_E4M3, &Dtype::F8_E5M2, &Dtype::F8_E8M0]);
}
