//! Brings a bound description's weights into memory, piece by piece.

use kinfolk_decoder::{LoadContext, LoadError, LoadProgress, Norm, Slot, Weights};

use crate::{arena::Arena, linear::Linear, norm::NormWeights, supports::refusal, team::Team};

/// Hands out weights, counts them, and looks up from time to time to see whether the host still wants them.
pub(crate) struct Loader<'a> {
    weights: Weights<'a>,
    team: &'a Team,
    arena: Arena,
    context: &'a LoadContext<'a>,
    progress: LoadProgress,
    weight_bytes: u64,
}

impl<'a> Loader<'a> {
    pub fn new(weights: Weights<'a>, total_bytes: u64, team: &'a Team, context: &'a LoadContext<'a>) -> Loader<'a> {
        let arena = Arena::new(usize::try_from(total_bytes).unwrap_or(usize::MAX));
        Loader { weights, team, arena, context, progress: LoadProgress { done_bytes: 0, total_bytes }, weight_bytes: 0 }
    }

    /// The projection at `slot` with its bias, if it has one.
    pub fn linear(&mut self, slot: Slot) -> Result<Linear, LoadError> {
        self.opt_linear(slot)?.ok_or_else(|| unbound(slot))
    }

    /// The projection at an optional `slot`.
    pub fn opt_linear(&mut self, slot: Slot) -> Result<Option<Linear>, LoadError> {
        if self.context.cancel.is_cancelled() {
            return Err(LoadError::Cancelled);
        }
        let Some(matrix) = self.weights.matrix(slot) else {
            return Ok(None);
        };
        let packed = self.context.packed_weights.unwrap_or(true) || matrix.dtype.block_len() == 1;
        let linear = Linear::new(self.team, &self.arena, &matrix, self.weights.vector(slot.bias())?, packed)?;
        self.weights.release(slot);
        self.weight_bytes += linear.n_bytes();
        self.advance((matrix.n_rows * matrix.row_bytes()) as u64);
        Ok(Some(linear))
    }

    /// Everything is in place, also what was too small to count and what the model has no use for.
    pub fn finish(&mut self) {
        self.advance(u64::MAX);
    }

    fn advance(&mut self, bytes: u64) {
        let LoadProgress { done_bytes, total_bytes } = self.progress;
        self.progress.done_bytes = done_bytes.saturating_add(bytes).min(total_bytes);
        if let Some(report) = self.context.progress {
            report(self.progress);
        }
    }

    /// The norm at `slot`, if it is described.
    pub fn norm(&mut self, norm: Option<&Norm>, slot: Slot) -> Result<Option<NormWeights>, LoadError> {
        let Some(norm) = norm else { return Ok(None) };
        let weight = self.weights.vector(slot)?.ok_or_else(|| unbound(slot))?;
        Ok(Some(NormWeights::new(norm, weight)))
    }

    /// The vector at an optional `slot`.
    pub fn vector(&self, slot: Slot) -> Result<Option<Vec<f32>>, LoadError> {
        Ok(self.weights.vector(slot)?)
    }

    /// Memory the projections handed out take.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }
}

/// A slot that the description's own list lacks: the two would have come apart.
fn unbound(slot: Slot) -> LoadError {
    refusal(format!("slot `{slot}` is not in the description")).into()
}
