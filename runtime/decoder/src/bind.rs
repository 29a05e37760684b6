//! Binding a description to a checkpoint: every slot found, every shape checked, before a weight is read.

use std::collections::HashMap;

use kinfolk_weights::{ConfigKind, Dtype, Source, Tensor, TensorInfo, WeightFormat, quant};

use crate::{
    Attention, BindProblem, Decoder, DecoderError, LoadRole, Mixer, QkRows, Result, Slot, SlotShape, slots::HEAD,
};

/// The weights of one description in one checkpoint, in the canonical layout.
#[derive(Debug)]
pub struct Weights<'a> {
    source: &'a Source,
    bound: HashMap<Slot, Bound>,
}

/// Where a slot's weights are and how to read them canonically.
#[derive(Clone, Debug)]
struct Bound {
    tensor: String,
    /// Which part of a tensor that stacks `of` equal ones.
    slice: Option<Slice>,
    /// Rows of a head, if they stand in pairs.
    paired_rows_of: Option<usize>,
    add_one: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slice {
    index: usize,
    of: usize,
}

/// How a checkpoint stores the weights of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Which.
    pub slot: Slot,
    /// Type of its elements.
    pub dtype: Dtype,
    /// How many.
    pub n_elements: usize,
    /// Elements of a row, or of the vector.
    pub n_cols: usize,
    /// Whether it is a vector (a norm's weight, a bias) rather than a projection.
    pub is_vector: bool,
}

impl Stored {
    /// Bytes it takes in the checkpoint.
    pub fn n_bytes(&self) -> u64 {
        self.dtype.bytes_for(self.n_elements).unwrap_or(0) as u64
    }
}

/// A projection as the checkpoint stores it: rows of `n_cols` elements, one per output.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// How elements are stored.
    pub dtype: Dtype,
    /// Outputs.
    pub n_rows: usize,
    /// Inputs.
    pub n_cols: usize,
    bytes: &'a [u8],
    paired_rows_of: Option<usize>,
}

impl<'a> Matrix<'a> {
    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.bytes.len() / self.n_rows.max(1)
    }

    /// The stored bytes of canonical row `r`.
    ///
    /// # Panics
    /// If `r` is not below `n_rows`.
    pub fn row(&self, r: usize) -> &'a [u8] {
        let stored = self.paired_rows_of.map_or(r, |head_dim| paired_position(r, head_dim));
        let len = self.row_bytes();
        &self.bytes[stored * len..(stored + 1) * len]
    }
}

/// Where canonical row `r` (halves order) of a head of `head_dim` rows stands in pairs order.
fn paired_position(r: usize, head_dim: usize) -> usize {
    let (head, i) = (r / head_dim, r % head_dim);
    let half = head_dim / 2;
    head * head_dim + (i % half) * 2 + i / half
}

impl Decoder {
    /// Finds every slot in `source` and checks its shape and type. Reads no weight.
    ///
    /// # Errors
    /// `Tensors` with everything that is missing or does not fit.
    pub fn bind<'a>(&self, source: &'a Source) -> Result<Weights<'a>> {
        self.bind_for(source, LoadRole::Text)
    }

    /// [`bind`](Self::bind) of the slots that a load for `role` takes; the others need not be there, or fit.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_for<'a>(&self, source: &'a Source, role: LoadRole) -> Result<Weights<'a>> {
        plain_layout(source)?;
        let mut weights = Weights { source, bound: HashMap::new() };
        let mut problems = Vec::new();
        for slot in self.slots().into_iter().filter(|wanted| takes(role, wanted.slot)) {
            match self.bind_slot(&slot, source) {
                Ok(Some(bound)) => drop(weights.bound.insert(slot.slot, bound)),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        let has_head = weights.bound.contains_key(&Slot::model(HEAD));
        if role == LoadRole::Text && !has_head && source.config().opt_bool("tie_word_embeddings")? == Some(false) {
            tracing::warn!(
                path = %source.path().display(),
                "the config says that the head is not tied to the embedding, but there is none: the embedding is taken"
            );
        }
        if problems.is_empty() {
            Ok(weights)
        } else {
            Err(DecoderError::Tensors { path: source.path().to_owned(), problems })
        }
    }

    /// The tensors of `source` that a load for `role` takes: all of them, or all but the head's.
    pub fn tensors<'a>(&self, source: &'a Source, role: LoadRole) -> impl Iterator<Item = &'a TensorInfo> + use<'a> {
        let head = Slot::model(HEAD);
        let left_out = if takes(role, head) { None } else { self.info(head, source) };
        source.tensors().filter(move |tensor| left_out.is_none_or(|head| tensor.name != head.name))
    }

    fn bind_slot(&self, wanted: &SlotShape, source: &Source) -> std::result::Result<Option<Bound>, BindProblem> {
        let slot = wanted.slot;
        let is_vector = wanted.shape.len() == 1;
        let Some(info) = self.info(slot, source) else {
            if wanted.optional {
                return Ok(None);
            }
            let candidates = self.names.candidates(slot, source);
            let names = candidates.iter().map(|name| format!("{name}{}", suffixes(slot)[0])).collect();
            return Err(BindProblem::Missing { slot: slot.to_string(), names });
        };

        let gguf = source.config().kind() == ConfigKind::Gguf;
        let n_experts = match &self.layers.get(slot.layer).map(|l| &l.ffn) {
            Some(crate::Ffn::Moe(moe)) if gguf && slot.pattern.contains("{e}") => Some(moe.n_experts),
            _ => None,
        };
        let expected = match n_experts {
            Some(n) => [&[n], wanted.shape.as_slice()].concat(),
            None => wanted.shape.clone(),
        };
        // A single output row may be stored as a plain vector.
        let found = &info.shape;
        let fits = *found == expected || (expected.len() == 2 && expected[0] == 1 && *found == expected[1..]);
        if !fits {
            return Err(BindProblem::Shape { tensor: info.name.clone(), expected, found: found.clone() });
        }
        // A projection of integers has its scales elsewhere, where no slot looks for them.
        let is_integer = matches!(info.dtype, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64)
            || matches!(info.dtype, Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 | Dtype::Bool);
        if is_integer || !quant::is_decodable(info.dtype) {
            return Err(BindProblem::NotDecodable { tensor: info.name.clone(), dtype: info.dtype });
        }
        Ok(Some(Bound {
            tensor: info.name.clone(),
            slice: n_experts.map(|of| Slice { index: slot.expert, of }),
            paired_rows_of: self.paired_rows(slot, gguf),
            add_one: is_vector && self.names.norms_add_one && !gguf && slot.pattern.contains("norm"),
        }))
    }

    /// The tensor at `slot`, under the first of its names that is there.
    pub(crate) fn info<'a>(&self, slot: Slot, source: &'a Source) -> Option<&'a TensorInfo> {
        let candidates = self.names.candidates(slot, source);
        let mut names =
            candidates.iter().flat_map(|name| suffixes(slot).iter().map(move |suffix| format!("{name}{suffix}")));
        names.find_map(|name| source.info(&name))
    }

    /// Rows per head where the file stores the query's or key's rows in pairs.
    fn paired_rows(&self, slot: Slot, gguf: bool) -> Option<usize> {
        let is_qk = matches!(slot.pattern, "layers.{i}.attn.q" | "layers.{i}.attn.k");
        if !(is_qk && gguf && self.names.gguf_qk_rows == QkRows::Pairs) {
            return None;
        }
        let Mixer::Attention(Attention { head_dim, .. }) = &self.layers.get(slot.layer)?.mixer;
        Some(*head_dim)
    }
}

/// Whether a load for `role` has a use for `slot`.
fn takes(role: LoadRole, slot: Slot) -> bool {
    role == LoadRole::Text || slot.pattern != HEAD
}

/// What can follow a slot's name in a checkpoint.
pub(crate) fn suffixes(slot: Slot) -> &'static [&'static str] {
    if slot.bias { &[".bias"] } else { &[".weight", ""] }
}

/// Refuses checkpoints whose config says that their tensors are packed in a layout of its own (GPTQ, AWQ, MLX, …): their names and
/// shapes would only look wrong one by one.
fn plain_layout(source: &Source) -> Result<()> {
    // The config beside GGUF files is that of the checkpoint they were converted from.
    if source.format() == WeightFormat::Gguf {
        return Ok(());
    }
    let config = source.config();
    let packed = |layout: String| Err(DecoderError::PackedLayout { path: config.path().to_owned(), layout });
    // MLX writes its section under both names, without a method under the other's.
    if let Some(section) = config.section("quantization")? {
        return packed(section.opt_str("mode")?.map_or("mlx".into(), |mode| format!("mlx {mode}")));
    }
    match config.section("quantization_config")? {
        Some(section) => packed(section.opt_str("quant_method")?.unwrap_or("an unnamed method").to_owned()),
        None => Ok(()),
    }
}

impl<'a> Weights<'a> {
    /// Every slot that is bound, in no order, with how the checkpoint stores it.
    pub fn stored(&self) -> impl Iterator<Item = Stored> + '_ {
        self.bound.iter().filter_map(|(&slot, bound)| {
            let info = self.source.info(&bound.tensor)?;
            let (n_slices, rank) = bound.slice.map_or((1, info.shape.len()), |slice| (slice.of, info.shape.len() - 1));
            let n_elements = info.n_elements() / n_slices.max(1);
            let n_cols = info.shape.last().copied().unwrap_or(1);
            Some(Stored { slot, dtype: info.dtype, n_elements, n_cols, is_vector: rank == 1 })
        })
    }

    /// The projection at `slot`; `None` if the slot is optional and the checkpoint lacks it.
    pub fn matrix(&self, slot: Slot) -> Option<Matrix<'a>> {
        let bound = self.bound.get(&slot)?;
        let tensor = self.source.tensor(&bound.tensor)?;
        let (bytes, shape) = part(&tensor, bound.slice);
        let n_cols = *shape.last()?;
        let n_rows = shape.iter().rev().nth(1).copied().unwrap_or(1);
        Some(Matrix { dtype: tensor.info.dtype, n_rows, n_cols, bytes, paired_rows_of: bound.paired_rows_of })
    }

    /// Lets go of the file's pages behind `slot`, for an executor that has made its own copy. They are read again if asked for again.
    pub fn release(&self, slot: Slot) {
        if let Some(bound) = self.bound.get(&slot) {
            self.source.release(&bound.tensor);
        }
    }

    /// The vector at `slot` (a norm's weight, a bias) in f32; `None` if the slot is optional and the checkpoint lacks it.
    ///
    /// # Errors
    /// `Weights` if its bytes cannot be decoded.
    pub fn vector(&self, slot: Slot) -> Result<Option<Vec<f32>>> {
        let Some(bound) = self.bound.get(&slot) else {
            return Ok(None);
        };
        let Some(tensor) = self.source.tensor(&bound.tensor) else {
            return Ok(None);
        };
        let (bytes, shape) = part(&tensor, bound.slice);
        let mut values = vec![0.0; shape.iter().product()];
        quant::dequantize(tensor.info.dtype, bytes, &mut values)?;
        if bound.add_one {
            values.iter_mut().for_each(|w| *w += 1.0);
        }
        if let Some(head_dim) = bound.paired_rows_of {
            values = (0..values.len()).map(|r| values[paired_position(r, head_dim)]).collect();
        }
        Ok(Some(values))
    }
}

/// The bytes and shape of one slice of a stacked tensor, or of the whole.
fn part<'a, 'b>(tensor: &'b Tensor<'a>, slice: Option<Slice>) -> (&'a [u8], &'b [usize])
where
    'a: 'b,
{
    match slice {
        None => (tensor.bytes, &tensor.info.shape),
        Some(Slice { index, of }) => {
            let len = tensor.bytes.len() / of;
            (&tensor.bytes[index * len..(index + 1) * len], &tensor.info.shape[1..])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paired_rows_are_a_permutation_of_each_head() {
        let order: Vec<usize> = (0..8).map(|r| paired_position(r, 4)).collect();
        assert_eq!(order, [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
