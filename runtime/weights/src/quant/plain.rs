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
