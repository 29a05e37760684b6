//! Projections.

use kinfolk_decoder::{DecoderError, LoadError};
use kinfolk_weights::{Dtype, quant};

use crate::{
    activation::Gating, activations::Activations, arena::Arena, buffers::Buffer, dense, quantized, rows::StoredRows,
    simd, team::Team,
};

/// Rows decoded together; each load of an activation serves this many products.
pub(crate) const TILE: usize = 4;

/// A projection `x · Wᵀ + b`.
#[derive(Debug)]
pub(crate) struct Linear {
    n_rows: usize,
    n_cols: usize,
    weights: Weights,
    /// `[n_rows]`
    bias: Option<Vec<f32>>,
}

#[derive(Debug)]
enum Weights {
    /// Multiplied as integers.
    Quantized(quantized::Tiles),
    /// Multiplied as floats.
    Dense(dense::Tiles),
    /// Decoded to f32 in each product.
    Rows(Rows),
}

/// Rows in their stored type.
#[derive(Debug)]
struct Rows {
    dtype: Dtype,
    row_bytes: usize,
    /// `n_rows × row_bytes`, rows in canonical order.
    bytes: Vec<u8>,
}

impl Linear {
    /// Copies a matrix into its own memory, so that the file's pages can be let go: as it is, in the layout of the kernels of its type
    /// if there are any. Quantised ones that are not to stay `packed` are decoded to f32.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(
        team: &Team,
        arena: &Arena,
        rows: &StoredRows<'_>,
        bias: Option<Vec<f32>>,
        packed: bool,
    ) -> Result<Linear, LoadError> {
        let tiles = if packed { Weights::in_tiles(team, arena, rows)? } else { None };
        let weights = match tiles {
            Some(tiles) => tiles,
            None => Weights::Rows(Rows::new(rows, packed)?),
        };
        Ok(Linear { n_rows: rows.n_rows, n_cols: rows.n_cols, weights, bias })
    }

    /// With [bytes](quantized::Tiles::narrow_activations) for many tokens, or not.
    pub fn with_narrow_activations(mut self, narrow: bool) -> Linear {
        if let Weights::Quantized(tiles) = &mut self.weights {
            tiles.narrow_activations = narrow;
        }
        self
    }

    /// As [`new`](Self::new), of rows wherever they are. `None` if there is no kernel for their type.
    ///
    /// # Errors
    /// `OutOfMemory`.
    #[cfg(feature = "testing")]
    pub fn in_tiles(team: &Team, arena: &Arena, rows: &StoredRows<'_>) -> Result<Option<Linear>, LoadError> {
        let weights = Weights::in_tiles(team, arena, rows)?;
        Ok(weights.map(|weights| Linear { n_rows: rows.n_rows, n_cols: rows.n_cols, weights, bias: None }))
    }

    /// Outputs.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Bytes in memory.
    pub fn n_bytes(&self) -> u64 {
        let weights = match &self.weights {
            Weights::Quantized(tiles) => tiles.n_bytes(),
            Weights::Dense(tiles) => tiles.n_bytes(),
            Weights::Rows(rows) => rows.bytes.len(),
        };
        (weights + self.bias.as_ref().map_or(0, |b| b.len() * 4)) as u64
    }

    /// Decodes row `r` into `out`, `[n_cols]`.
    pub fn decode_row(&self, r: usize, out: &mut [f32]) {
        match &self.weights {
            Weights::Quantized(tiles) => tiles.decode_row(r, out),
            Weights::Dense(tiles) => tiles.decode_row(r, out),
            Weights::Rows(rows) => rows.decode(r, out),
        }
    }

    /// `[tokens, n_cols]` to `[tokens, n_rows]`.
    ///
    /// # Cost
    /// Reads every weight once, whatever the number of tokens.
    pub fn forward<'t>(&self, team: &'t Team, x: &Activations<'_, 't>) -> Buffer<'t, f32> {
        let n_tokens = x.x.len() / self.n_cols;
        let mut out = team.floats.take(self.n_rows * n_tokens, 0.0);
        match &self.weights {
            Weights::Quantized(tiles) => tiles.forward(team, x, self.bias.as_deref(), None, &mut out),
            Weights::Dense(tiles) => tiles.forward(team, x, self.bias.as_deref(), &mut out),
            Weights::Rows(rows) => self.forward_rows(rows, team, x.x, &mut out),
        }
        out
    }

    /// As [`forward`](Self::forward), of several projections of the same input, which together are one operation of the team where that is
    /// short.
    pub fn forward_all<'t, const N: usize>(
        linears: [&Linear; N],
        team: &'t Team,
        x: &Activations<'_, 't>,
    ) -> [Buffer<'t, f32>; N] {
        let tiles = linears.map(|linear| match &linear.weights {
            Weights::Quantized(tiles) => Some(tiles),
            Weights::Dense(_) | Weights::Rows(_) => None,
        });
        if tiles.iter().any(Option::is_none) {
            return linears.map(|linear| linear.forward(team, x));
        }
        let mut outs = linears.map(|l| team.floats.take(l.n_rows * (x.x.len() / l.n_cols), 0.0));
        let mut rest = outs.iter_mut().zip(tiles.into_iter().flatten()).zip(linears);
        quantized::forward_all(
            team,
            x,
            [(); N].map(|()| {
                let ((out, tiles), linear) = rest.next().expect("one of each for every projection");
                quantized::Projection { tiles, bias: linear.bias.as_deref(), out }
            }),
        );
        drop(rest);
        outs
    }

    /// Of a gate's rows and as many others [in turns](StoredRows::in_turns): `gating` of their products, `[tokens, n_rows / 2]`, in one operation of
    /// the team. `None` where there is no kernel for that.
    pub fn forward_gated<'t>(
        &self,
        team: &'t Team,
        x: &Activations<'_, 't>,
        gating: Gating,
    ) -> Option<Buffer<'t, f32>> {
        let Weights::Quantized(tiles) = &self.weights else { return None };
        let mut out = team.floats.take(self.n_rows / 2 * (x.x.len() / self.n_cols), 0.0);
        tiles.forward(team, x, self.bias.as_deref(), Some(gating), &mut out);
        Some(out)
    }

    fn forward_rows(&self, rows: &Rows, team: &Team, x: &[f32], by_token: &mut [f32]) {
        let n_tokens = x.len() / self.n_cols;
        if n_tokens == 1 {
            return self.by_row(rows, team, x, by_token);
        }
        // Output-major while computing: each thread then owns whole rows of it.
        let mut by_row = team.floats.take(self.n_rows * n_tokens, 0.0);
        self.by_row(rows, team, x, &mut by_row);
        team.for_each_chunk(by_token, self.n_rows, |token, out| {
            out.iter_mut().enumerate().for_each(|(r, v)| *v = by_row[r * n_tokens + token]);
        });
    }

    /// `[tokens, n_cols]` to `[n_rows, tokens]`.
    fn by_row(&self, rows: &Rows, team: &Team, x: &[f32], out: &mut [f32]) {
        let n_tokens = x.len() / self.n_cols;
        team.for_each_chunk(out, TILE * n_tokens, |tile, out| {
            SCRATCH.with_borrow_mut(|scratch| self.tile(rows, tile * TILE, x, out, scratch));
        });
    }

    /// Rows from `first` on, as many as `out` (`[rows, tokens]`) has.
    fn tile(&self, rows: &Rows, first: usize, x: &[f32], out: &mut [f32], scratch: &mut Vec<f32>) {
        let n_tokens = x.len() / self.n_cols;
        let n_rows = out.len() / n_tokens;
        scratch.resize(TILE * self.n_cols, 0.0);
        for r in 0..n_rows {
            rows.decode(first + r, &mut scratch[r * self.n_cols..(r + 1) * self.n_cols]);
        }
        let row = |r: usize| &scratch[r * self.n_cols..(r + 1) * self.n_cols];
        let bias = |r: usize| self.bias.as_ref().map_or(0.0, |b| b[first + r]);
        for (token, x) in x.chunks_exact(self.n_cols).enumerate() {
            if n_rows == TILE {
                let products = simd::dot4([row(0), row(1), row(2), row(3)], x);
                (0..TILE).for_each(|r| out[r * n_tokens + token] = products[r] + bias(r));
            } else {
                (0..n_rows).for_each(|r| out[r * n_tokens + token] = simd::dot(row(r), x) + bias(r));
            }
        }
    }
}

impl Weights {
    /// `None` for types without a kernel.
    fn in_tiles(team: &Team, arena: &Arena, rows: &StoredRows<'_>) -> Result<Option<Weights>, LoadError> {
        if let Some(tiles) = dense::Tiles::of_rows(team, arena, rows)? {
            return Ok(Some(Weights::Dense(tiles)));
        }
        Ok(quantized::Tiles::of_rows(team, arena, rows)?.map(Weights::Quantized))
    }
}

impl Rows {
    fn new(rows: &StoredRows<'_>, packed: bool) -> Result<Rows, LoadError> {
        let StoredRows { dtype, n_rows, n_cols, row: stored_row } = *rows;
        let stored = if packed { dtype } else { Dtype::F32 };
        let row_bytes = stored.bytes_for(n_cols).unwrap_or(usize::MAX);
        let needed_bytes = n_rows.saturating_mul(row_bytes);
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(needed_bytes)
            .map_err(|_| LoadError::OutOfMemory { needed_bytes: needed_bytes as u64 })?;
        let mut row = vec![0.0; n_cols];
        for r in 0..n_rows {
            if packed {
                bytes.extend_from_slice(stored_row(r));
            } else {
                quant::dequantize(dtype, stored_row(r), &mut row).map_err(DecoderError::from)?;
                bytes.extend(row.iter().flat_map(|w| w.to_le_bytes()));
            }
        }
        Ok(Rows { dtype: stored, row_bytes, bytes })
    }

    fn decode(&self, r: usize, out: &mut [f32]) {
        let bytes = &self.bytes[r * self.row_bytes..(r + 1) * self.row_bytes];
        quant::dequantize(self.dtype, bytes, out).expect("binding refused types without a dequantiser");
    }
}

thread_local! {
    /// Decoded rows. One per thread for the life of the thread, so that no product allocates.
    static SCRATCH: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) };
}
