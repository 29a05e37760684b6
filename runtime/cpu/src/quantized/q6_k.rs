//! Q6_K.
//!
//! ```text
//! d 2 x 16 | scales 1 x 16, signed, for each 16 of 256 columns       x = d * scale * (q - 32)
//! ```

use std::array;

use super::{
    activations::GROUP,
    header::copy_f16,
    scheme::{Form, Header, Lanes, ROWS, Read, Scaling, Scheme, bytes},
};

pub(super) struct Q6K;

/// Scales of halves of groups, behind the factor that all share.
pub(super) struct OfHalves;

/// Where the scales are in the header, and in a stored block.
const SCALES: usize = 2 * ROWS;
const STORED_SCALES: usize = 192;

impl Scheme for Q6K {
    const BITS: usize = 6;
    const BLOCK_LEN: usize = 256;
    const BLOCK_BYTES: usize = 210;
    const FORM: Form = Form::OffsetOfHalves(32);
    type Header = OfHalves;

    fn codes(block: &[u8], group: usize) -> [u8; GROUP] {
        let (half, k) = (group / 4, group % 4);
        let low = bytes::<GROUP>(block, 64 * half + 32 * (k % 2));
        let high = bytes::<GROUP>(block, 128 + 32 * half);
        array::from_fn(|i| low[i] >> (k / 2 * 4) & 15 | (high[i] >> (2 * k) & 3) << 4)
    }
}

impl Header for OfHalves {
    const BYTES: usize = SCALES + 16 * ROWS;
    type Fields = Lanes;

    fn pack(block: &[u8], row: usize, header: &mut [u8]) {
        copy_f16(block, 208, row, header, 0);
        for i in 0..16 {
            header[SCALES + i * ROWS + row] = block[STORED_SCALES + i];
        }
    }

    #[inline(always)]
    fn fields(header: &[u8], read: impl Read) -> Lanes {
        read.halves(bytes(header, 0))
    }

    #[inline(always)]
    fn unpack(header: &[u8], d: &Lanes, group: usize, scaling: &mut Scaling, read: impl Read) {
        for half in 0..2 {
            let scales = read.signed_bytes(bytes(header, SCALES + (2 * group + half) * ROWS));
            for row in 0..ROWS {
                scaling.scales[half][row] = d[row] * scales[row];
            }
        }
    }
}
