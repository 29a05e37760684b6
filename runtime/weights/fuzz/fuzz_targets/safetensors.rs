//! A header of these bytes, up to the first zero byte if there is one, before tensors of the rest.

#![no_main]

use kinfolk_weights::Source;
use libfuzzer_sys::fuzz_target;

/// Tensors up to this size are decoded; more would only be slow.
const MAX_DECODED_BYTES: usize = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    // The length is made right, since random ones are rarely, unless the first byte asks for the bytes as they are.
    let file = match bytes.split_first() {
        Some((0, as_is)) => as_is.to_vec(),
        Some((_, rest)) => {
            let header_len = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
            [&(header_len as u64).to_le_bytes(), rest].concat()
        }
        None => return,
    };
    let Ok(source) = Source::from_bytes("fuzz", file) else { return };
    for info in source.tensors() {
        let tensor = source.tensor(&info.name).expect("a listed tensor can be had");
        assert_eq!(tensor.bytes.len(), info.n_bytes());
        if tensor.bytes.len() <= MAX_DECODED_BYTES {
            let _ = tensor.to_f32();
        }
    }
});
