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
                "attn_v" => "self_attn.v_proj",
                "attn_output" => "self_attn.o_proj",
                // Query and key rows of the llama architecture are permuted.
                _ => return None,
            };
            format!("model.layers.{layer}.{part}.weight")
        }
    };
    Some(name)
}

/// File type and the worst weight error that making it left, relative to the largest weight of its tensor (from the fixtures' index).
const WORST_ERROR: &[(&str, &str, f32)] = &[
    ("quant-llama", "F16", 0.0005),
    ("quant-llama", "BF16", 0.002),
    ("quant-llama", "Q8_0", 0.005),
    ("quant-llama", "Q4_0", 0.087),
    ("quant-llama", "Q4_1", 0.079),
    ("quant-llama", "Q5_0", 0.043),
    ("quant-llama", "Q5_1", 0.038),
    ("quant-llama", "Q2_K", 0.300),
    ("quant-llama", "Q3_K_M", 0.153),
    ("quant-llama", "Q4_K_M", 0.072),
    ("quant-llama", "Q5_K_M", 0.036),
    ("quant-llama", "Q6_K", 0.018),
    ("quant-llama", "IQ4_NL", 0.076),
    ("quant-llama", "IQ4_XS", 0.077),
    ("quant-llama", "IQ3_XXS", 0.250),
    ("quant-llama", "IQ3_S", 0.167),
    ("quant-llama", "IQ2_XXS", 0.344),
    ("quant-llama", "IQ2_XS", 0.300),
    ("quant-llama", "IQ1_S", 0.489),
    ("quant-llama", "IQ1_M", 0.453),
    ("quant-llama", "TQ1_0", 0.812),
    ("quant-llama", "TQ2_0", 0.812),
    ("quant-llama", "MXFP4", 0.118),
    ("quant-llama", "NVFP4", 0.096),
    ("quant-llama", "Q1_0", 0.604),
    ("quant-llama", "Q2_0", 0.719),
    ("quant-qwen3", "Q8_0", 0.005),
    ("quant-qwen3", "Q4_K_M", 0.072),
    ("quant-qwen3", "Q6_K", 0.018),
];

#[test]
fn quantised_checkpoints_decode_to_their_weights_within_the_error_of_their_type() {
    let Some(shared) = shared() else { return };
    let mut report = String::new();
    for (folder, file_type, bound) in WORST_ERROR {
        let original = Source::open_tensors(shared.join(folder).join("model.safetensors")).unwrap();
        let quantised = Source::open(shared.join(folder).join(format!("model-{file_type}.gguf"))).unwrap();
        let mut worst = 0f32;
        for info in quantised.tensors() {
            let Some(name) = original_name(&info.name) else { continue };
            let Some(expected) = original.tensor(&name) else { panic!("{name} is not in the original") };
            assert_eq!(expected.info.shape, info.shape);
            let expected = expected.to_f32().unwrap();
            let found = quantised.tensor(&info.name).unwrap().to_f32().unwrap();
            let largest = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
            let error = expected.iter().zip(&found).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
            worst = worst.max(error / largest);
        }
        report += &format!("{folder} {file_type}: expected {bound}, found {worst}\n");
    }
    panic!("{report}");
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
