//! Q6_K: 256 elements of 6 bits in 16 groups, each with a signed 8-bit scale.
//!
//! ```text
//! low bits 128 | high bits 64 | scales 16 | d 2      210 bytes
//! ```
//! 128 elements take 64 bytes of low and 32 of high bits. Of element `32 k + i` (k from 0 to 3), the low four bits are half `k / 2` of
//! byte `32 (k % 2) + i`, the high two bits pair `k` of byte `i`. x = d * scale * (q - 32).

use super::fields::f16_at;

pub(super) fn decode(block: &[u8; 210], out: &mut [f32; 256]) {
    let d = f16_at(block, 208);
    for (quarter, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (half, k) = (quarter / 4, quarter % 4);
        let low = &block[64 * half + 32 * (k % 2)..][..32];
        let high = &block[128 + 32 * half..][..32];
        let scales = [0, 1].map(|g| d * f32::from(block[192 + 2 * quarter + g] as i8));
        for (i, ((low, high), out)) in low.iter().zip(high).zip(out).enumerate() {
            let q = low >> (k / 2 * 4) & 15 | (high >> (2 * k) & 3) << 4;
            *out = scales[i / 16] * (f32::from(q) - 32.0);
        }
    }
}
