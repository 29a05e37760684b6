//! Halves as f32.

/// Without branches, so that sixteen at a time become vector code on every instruction set, and without subnormal f32, which cost a
/// processor a hundred cycles each: scales of small weights are often subnormal halves.
#[inline(always)]
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    let half = u32::from(half);
    let (exponent, fraction) = (half & 0x7c00, half & 0x3ff);
    // The bias of an f32's exponent is 112 more than that of a half.
    let rebias = 112 << 23;
    let special = if exponent == 0x7c00 { rebias } else { 0 };
    let normal = ((half & 0x7fff) << 13) + rebias + special;
    // 2⁻²⁴ is a subnormal half's last bit.
    let subnormal = (fraction as i32 as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
    f32::from_bits(if exponent == 0 { subnormal } else { normal } | (half & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn every_half_has_its_value() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(found == expected || found.is_nan() && expected.is_nan(), "{bits:#x}: {found}, {expected}");
        }
    }
}
