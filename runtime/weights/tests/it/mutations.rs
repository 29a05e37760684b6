//! Random damage to valid files: never a panic, never more memory than a small multiple of the file.

use kinfolk_weights::Source;
use proptest::prelude::*;

use crate::{
    allocation::peak_during,
    gguf_bytes::{GgufBytes, tensor_type, value_type},
    safetensors::tiny,
};

/// A file with every kind of value and several tensors.
fn gguf() -> Vec<u8> {
    GgufBytes::llama()
        .f32("llama.rope.freq_base", 1e4)
        .raw("general.switch", value_type::BOOL, &[1])
        .texts("tokenizer.ggml.tokens", &["<s>", "a", "b"])
        .array("tokenizer.ggml.scores", value_type::F32, 3, &[0; 12])
        .array("tokenizer.ggml.token_type", value_type::I32, 3, &[1; 12])
        .tensor("blk.0.w", &[2, 32], tensor_type::Q4_0, &[7; 36])
        .tensor("blk.1.w", &[3], tensor_type::F32, &[1; 12])
        .build()
}

/// One change to the bytes of a file.
#[derive(Clone, Debug)]
enum Damage {
    /// A byte at a place becomes another.
    Set(usize, u8),
    /// Eight bytes at a place become a number, as a length or an offset would.
    Number(usize, u64),
    /// Everything from a place on is gone.
    Cut(usize),
    /// Bytes at a place are repeated.
    Repeat(usize, usize),
}

fn damage(len: usize) -> impl Strategy<Value = Damage> {
    let number = prop_oneof![0..300u64, Just(u64::MAX), Just(1 << 31), Just(1 << 32), Just(1 << 63), any::<u64>()];
    prop_oneof![
        4 => (0..len, any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        3 => (0..len, number).prop_map(|(at, number)| Damage::Number(at, number)),
        1 => (0..len).prop_map(Damage::Cut),
        1 => (0..len, 1..64usize).prop_map(|(at, n)| Damage::Repeat(at, n)),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    match *damage {
        Damage::Set(at, byte) => {
            if let Some(target) = bytes.get_mut(at) {
                *target = byte;
            }
        }
        Damage::Number(at, number) => {
            for (target, byte) in bytes.iter_mut().skip(at).zip(number.to_le_bytes()) {
                *target = byte;
            }
        }
        Damage::Cut(at) => bytes.truncate(at),
        Damage::Repeat(at, n) => {
            let part: Vec<u8> = bytes.iter().skip(at).take(n).copied().collect();
            let at = at.min(bytes.len());
            bytes.splice(at..at, part);
        }
    }
}

/// Asks an open source everything; only panics count.
fn exhaust(source: &Source) {
    for info in source.tensors() {
        let tensor = source.tensor(&info.name).expect("a listed tensor can be had");
        assert_eq!(tensor.bytes.len(), info.n_bytes());
        // Decoding multiplies: up to eight elements of four bytes from one byte.
        if tensor.bytes.len() < 1 << 16 {
            let _ = tensor.to_f32();
        }
    }
    let config = source.config();
    let _ = (config.architectures(), config.usize("num_hidden_layers"), config.f32("rope_theta"));
    let _ = (config.opt_usizes("vocab_size"), config.section("rope_scaling"), config.opt_str("hidden_act"));
    if let Some(metadata) = source.gguf() {
        let keys: Vec<&str> = metadata.keys().collect();
        for key in keys {
            let _ = (metadata.str(key), metadata.bool(key), metadata.u64(key), metadata.f64(key));
            let _ = (metadata.strs(key), metadata.f32s(key), metadata.i64s(key), metadata.bools(key));
        }
    }
}

/// Memory that opening may take: what the file is, several times, and what the tables and messages of a tiny file are.
fn allowance(len: usize) -> usize {
    16 * len + 64 * 1024
}

fn check(original: &[u8], damages: &[Damage]) -> Result<(), TestCaseError> {
    let mut bytes = original.to_vec();
    damages.iter().for_each(|damage| apply(&mut bytes, damage));
    check_bytes(bytes)
}

/// Any bytes are refused in a line or read, within the allowance.
pub fn check_bytes(bytes: Vec<u8>) -> Result<(), TestCaseError> {
    let len = bytes.len();
    let (opened, peak) = peak_during(|| Source::from_bytes("case", bytes));
    prop_assert!(peak <= allowance(len), "{} bytes for a file of {}", peak, len);
    match opened {
        Ok(source) => exhaust(&source),
        Err(error) => {
            let message = error.to_string();
            prop_assert!(message.contains("case") && !message.contains('\n') && message.len() < 2000, "{}", message);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_gguf_is_refused_or_read_within_bounds(damages in prop::collection::vec(damage(600), 1..5)) {
        check(&gguf(), &damages)?;
    }

    #[test]
    fn damaged_safetensors_are_refused_or_read_within_bounds(damages in prop::collection::vec(damage(180), 1..5)) {
        check(&tiny(&["a", "b"]), &damages)?;
    }

    #[test]
    fn random_bytes_behind_a_magic_are_refused_or_read(tail in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&[b"GGUF\x03\0\0\0".as_slice(), &tail].concat(), &[])?;
        check(&[&[40, 0, 0, 0, 0, 0, 0, 0, b'{'][..], &tail].concat(), &[])?;
    }
}
