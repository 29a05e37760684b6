//! Types that store each element by itself.

use half::{bf16 as Bf16, f16 as F16};

pub(super) fn f32(bytes: &[u8; 4], out: &mut [f32; 1]) {
    *out = [f32::from_le_bytes(*bytes)];
}

pub(super) fn f16(bytes: &[u8; 2], out: &mut [f32; 1]) {
    *out = [F16::from_le_bytes(*bytes).to_f32()];
}

pub(super) fn bf16(bytes: &[u8; 2], out: &mut [f32; 1]) {
    *out = [Bf16::from_le_bytes(*bytes).to_f32()];
}

macro_rules! narrowed {
    ($( $number:ident $n_bytes:literal )*) => {
        $(
            /// The nearest f32.
            pub(super) fn $number(bytes: &[u8; $n_bytes], out: &mut [f32; 1]) {
                *out = [$number::from_le_bytes(*bytes) as f32];
            }
        )*
    };
}

narrowed! { f64 8 i8 1 i16 2 i32 4 i64 8 u8 1 u16 2 u32 4 u64 8 }

#[cfg(test)]
mod tests {
    use crate::{Dtype, quant::dequantize};

    #[track_caller]
    fn check(dtype: Dtype, bytes: &[u8], value: f32) {
        let mut out = [f32::NAN];
        dequantize(dtype, bytes, &mut out).unwrap();
        assert_eq!(out, [value], "{dtype}");
    }

    #[test]
    fn every_plain_type_has_its_value() {
        check(Dtype::F32, &1.5f32.to_le_bytes(), 1.5);
        check(Dtype::F16, &half::f16::from_f32(-0.25).to_le_bytes(), -0.25);
        check(Dtype::BF16, &half::bf16::from_f32(3.0).to_le_bytes(), 3.0);
        check(Dtype::F64, &0.1f64.to_le_bytes(), 0.1);
        check(Dtype::I8, &[0x80], -128.0);
        check(Dtype::U8, &[0x80], 128.0);
        check(Dtype::I16, &(-300i16).to_le_bytes(), -300.0);
        check(Dtype::U16, &60_000u16.to_le_bytes(), 60_000.0);
        check(Dtype::I32, &(-70_000i32).to_le_bytes(), -70_000.0);
        check(Dtype::U32, &u32::MAX.to_le_bytes(), 4_294_967_295.0);
        check(Dtype::I64, &(-1i64).to_le_bytes(), -1.0);
        check(Dtype::U64, &(1u64 << 40).to_le_bytes(), 1_099_511_627_776.0);
        check(Dtype::Bool, &[1], 1.0);
    }
}
