//! The tensor table that a checkpoint of a description has, before there is a checkpoint.

use kinfolk_weights::{Dtype, Source, TensorInfo};

use crate::{Decoder, SlotShape, bind::suffixes, slots::HEAD};

impl Decoder {
    /// The tensors of a checkpoint that stores its projections as `stored`.
    ///
    /// If `named` knows tensors by name (its shapes are not looked at), those of them that have a slot; else every required slot under
    /// its first name, and the head if it is `untied`. Projections whose rows are no whole blocks of `stored` are kept wider,
    /// as converters keep them; what has one dimension is f32 beside quantised projections, else of the same type.
    pub fn outline(&self, named: &Source, stored: Dtype, untied: bool) -> Vec<TensorInfo> {
        let knows_names = named.tensors().next().is_some();
        let table = self.slots().into_iter().filter_map(|SlotShape { slot, shape, optional }| {
            let name = if knows_names {
                self.info(slot, named)?.name.clone()
            } else {
                let is_there = !optional || (untied && slot.pattern == HEAD && !slot.bias);
                let candidates = if is_there { self.names.candidates(slot, named) } else { Vec::new() };
                format!("{}{}", candidates.first()?, suffixes(slot).first()?)
            };
            Some(TensorInfo { name, dtype: stored_as(stored, &shape), shape })
        });
        let mut table: Vec<TensorInfo> = table.collect();
        // Two slots may share a tensor.
        table.sort_by(|a, b| a.name.cmp(&b.name));
        table.dedup_by(|a, b| a.name == b.name);
        table
    }
}

/// What a tensor of this shape is stored as where `dtype` is what the checkpoint stores projections as.
pub fn stored_as(dtype: Dtype, shape: &[usize]) -> Dtype {
    let fits = |dtype: &Dtype| shape.last().is_some_and(|row| row.is_multiple_of(dtype.block_len()));
    match shape {
        [_] if dtype.block_len() > 1 => Dtype::F32,
        _ => [dtype, Dtype::Q8_0].into_iter().find(fits).unwrap_or(Dtype::F16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_no_whole_blocks_are_stored_wider() {
        for (dtype, shape, expected) in [
            (Dtype::Q4_K, vec![8, 512], Dtype::Q4_K),
            (Dtype::Q4_K, vec![8, 96], Dtype::Q8_0),
            (Dtype::Q4_K, vec![8, 48], Dtype::F16),
            (Dtype::Q4_K, vec![512], Dtype::F32),
            (Dtype::BF16, vec![8, 3], Dtype::BF16),
            (Dtype::BF16, vec![512], Dtype::BF16),
        ] {
            assert_eq!(stored_as(dtype, &shape), expected, "{dtype} {shape:?}");
        }
    }
}
