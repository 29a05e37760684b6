//! A named tensor of a [`Source`](crate::Source): shape, type, and its bytes in the file.

use crate::{Dtype, Result, quant};

/// What a file says of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name in the file.
    pub name: String,
    /// How elements are stored.
    pub dtype: Dtype,
    /// Dimensions, outermost first (row-major), whatever order the file writes them in.
    pub shape: Vec<usize>,
}

impl TensorInfo {
    /// Number of elements. Checked against overflow when the source was opened.
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes it takes in the file.
    pub fn n_bytes(&self) -> usize {
        self.dtype.bytes_for(self.n_elements()).unwrap_or(0)
    }
}

/// A tensor's description with its bytes, borrowed from the open source.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// What the file says of it.
    pub info: &'a TensorInfo,
    /// Its bytes: exactly [`TensorInfo::n_bytes`], rows one after the other.
    pub bytes: &'a [u8],
}

impl Tensor<'_> {
    /// Every element as f32, in row-major order.
    ///
    /// # Errors
    /// `NotDecodable` if the scheme has no dequantiser.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut out = vec![0.0; self.info.n_elements()];
        quant::dequantize(self.info.dtype, self.bytes, &mut out)?;
        Ok(out)
    }
}
