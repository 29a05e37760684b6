//! TQ1_0 and TQ2_0: 256 ternary elements, x = d * (q - 1) with q in 0, 1, 2.
//!
//! ```text
//! TQ1_0   codes 48 | codes 4 | d 2      54 bytes, five (then four) elements to a byte
//! TQ2_0   codes 64 | d 2                66 bytes, four elements to a byte
//! ```
//! TQ1_0: a byte `b` stands for the fraction `b / 256`, whose base-3 digits are the elements: digit `n` is the whole part of
//! `3 * frac(3^n * b / 256)`. Digit `n` of `w` bytes are `w` elements in a row; runs of 32, 16 and 4 bytes follow each other. TQ2_0: 32
//! bytes serve 128 elements, pair `n` of bits of byte `i` is element `32 n + i`.

use super::fields::f16_at;

/// Powers by which a digit is brought to the front.
const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

pub(super) fn tq1_0(block: &[u8; 54], out: &mut [f32; 256]) {
    let d = f16_at(block, 52);
    let (first, rest) = out.split_at_mut(160);
    let (second, third) = rest.split_at_mut(80);
    for (codes, out) in [(&block[..32], first), (&block[32..48], second), (&block[48..52], third)] {
        for (power, out) in POWERS.iter().zip(out.chunks_exact_mut(codes.len())) {
            for (code, out) in codes.iter().zip(out) {
                let digit = (u16::from(code.wrapping_mul(*power)) * 3) >> 8;
                *out = d * (f32::from(digit) - 1.0);
            }
        }
    }
}

pub(super) fn tq2_0(block: &[u8; 66], out: &mut [f32; 256]) {
    let d = f16_at(block, 64);
    for (n, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (code, out) in block[n / 4 * 32..][..32].iter().zip(out) {
            *out = d * (f32::from(code >> (n % 4 * 2) & 3) - 1.0);
        }
    }
}
