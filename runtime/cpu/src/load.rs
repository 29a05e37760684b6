//! Brings a bound description's weights into memory, piece by piece.

use kinfolk_decoder::{LoadContext, LoadError, LoadProgress, Matrix, Norm, Slot, Weights};

use crate::{
    arena::Arena,
    linear::Linear,
    norm::NormWeights,
    rows::{StoredRows, turn},
    supports::refusal,
    team::Team,
};

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
        let bias = self.weights.vector(slot.bias())?;
        let linear = self.new_linear(&stored(&matrix, &|r| matrix.row(r)), bias)?;
        self.weights.release(slot);
        self.advance((matrix.n_rows * matrix.row_bytes()) as u64);
        Ok(Some(linear))
    }

    /// The projections at both slots as one, with their rows [in turns](StoredRows::in_turns); `None` if they are not alike.
    pub fn linear_in_turns(&mut self, slots: [Slot; 2]) -> Result<Option<Linear>, LoadError> {
        if self.context.cancel.is_cancelled() {
            return Err(LoadError::Cancelled);
        }
        let [Some(first), Some(second)] = slots.map(|slot| self.weights.matrix(slot)) else { return Ok(None) };
        let biases = match [self.weights.vector(slots[0].bias())?, self.weights.vector(slots[1].bias())?] {
            [None, None] => None,
            [Some(first), Some(second)] => Some([first, second]),
            _ => return Ok(None),
        };
        let (of_first, of_second) = (|r| first.row(r), |r| second.row(r));
        let pair = [&stored(&first, &of_first), &stored(&second, &of_second)];
        let load = |rows: &StoredRows<'_>| {
            let element = |r| biases.as_ref().map(|biases| biases[turn(r).0][turn(r).1]);
            self.new_linear(rows, (0..rows.n_rows).map(element).collect())
        };
        let Some(linear) = StoredRows::in_turns(pair, load) else { return Ok(None) };
        slots.into_iter().for_each(|slot| self.weights.release(slot));
        self.advance((2 * first.n_rows * first.row_bytes()) as u64);
        linear.map(Some)
    }

    fn new_linear(&mut self, rows: &StoredRows<'_>, bias: Option<Vec<f32>>) -> Result<Linear, LoadError> {
        let packed = self.context.packed_weights.unwrap_or(true) || rows.dtype.block_len() == 1;
        let linear = Linear::new(self.team, &self.arena, rows, bias, packed)?;
        let linear = linear.with_narrow_activations(self.context.narrow_activations);
        self.weight_bytes += linear.n_bytes();
        Ok(linear)
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

fn stored<'a>(matrix: &Matrix<'a>, row: &'a (dyn Fn(usize) -> &'a [u8] + Sync)) -> StoredRows<'a> {
    StoredRows { dtype: matrix.dtype, n_rows: matrix.n_rows, n_cols: matrix.n_cols, row }
}

/// A slot that the description's own list lacks: the two would have come apart.
fn unbound(slot: Slot) -> LoadError {
    refusal(format!("slot `{slot}` is not in the description")).into()
}
