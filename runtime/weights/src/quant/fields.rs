//! Little-endian fields of a block. Offsets are those of the block's drawing, inside an array of its size.

use half::f16;

#[inline]
pub(super) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

#[inline]
pub(super) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

#[inline]
pub(super) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_bits(u16_at(block, at)).to_f32()
}

#[inline]
pub(super) fn f32_at(block: &[u8], at: usize) -> f32 {
    f32::from_bits(u32_at(block, at))
}

/// Minus one where bit `k` is set.
#[inline]
pub(super) fn sign(bits: u8, k: usize) -> f32 {
    if bits >> k & 1 == 0 { 1.0 } else { -1.0 }
}
