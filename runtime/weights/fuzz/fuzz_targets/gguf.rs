//! Bytes behind the GGUF magic are opened and asked everything that can be asked.

#![no_main]

use kinfolk_weights::{Config, Source};
use libfuzzer_sys::fuzz_target;

/// Tensors up to this size are decoded; more would only be slow.
const MAX_DECODED_BYTES: usize = 1 << 16;

fuzz_target!(|tail: &[u8]| {
    let Ok(source) = Source::from_bytes("fuzz", [b"GGUF", tail].concat()) else { return };
    for info in source.tensors() {
        let tensor = source.tensor(&info.name).expect("a listed tensor can be had");
        assert_eq!(tensor.bytes.len(), info.n_bytes());
        if tensor.bytes.len() <= MAX_DECODED_BYTES {
            let _ = tensor.to_f32();
        }
    }
    let metadata = source.gguf().expect("a GGUF source has metadata");
    for key in metadata.keys() {
        let _ = (metadata.str(key), metadata.bool(key), metadata.u64(key), metadata.f64(key));
        let _ = (metadata.strs(key), metadata.f32s(key), metadata.i64s(key), metadata.bools(key));
    }
    read(source.config());
    if let Ok(Some(rope)) = source.config().section("rope_scaling") {
        read(&rope);
    }
});

fn read(config: &Config) {
    let _ = config.architectures();
    for key in ["num_hidden_layers", "head_dim", "vocab_size", "num_key_value_heads", "rope_theta", "factor", "type"] {
        let _ = (config.usize(key), config.layer_usize(key, 0, 2), config.f32(key), config.opt_str(key));
        let _ = (config.opt_usizes(key), config.opt_f32s(key), config.opt_strs(key), config.opt_bools(key));
    }
}
