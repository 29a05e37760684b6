//! A product by itself, for benchmarks.

use kinfolk_decoder::LoadError;
use kinfolk_weights::Dtype;

use crate::{activations::Activations, arena::Arena, linear::Linear, rows::StoredRows, team::Team};

/// A projection without a model around it.
#[derive(Debug)]
pub struct Product {
    linear: Linear,
    team: Team,
}

impl Product {
    /// Rows of `dtype`, as a file has them. `None` if there is no kernel for it.
    ///
    /// # Errors
    /// `OutOfMemory`.
    ///
    /// # Panics
    /// If `bytes` are not `n_rows` rows of `n_cols`.
    pub fn new(
        dtype: Dtype,
        n_rows: usize,
        n_cols: usize,
        bytes: &[u8],
        n_threads: usize,
    ) -> Result<Option<Product>, LoadError> {
        assert_eq!(dtype.bytes_for(n_rows * n_cols), Some(bytes.len()), "all rows");
        let (team, arena) = (Team::new(n_threads), Arena::new(bytes.len()));
        let in_tiles = |rows: &StoredRows<'_>| Linear::in_tiles(&team, &arena, rows);
        let linear = StoredRows::of_bytes(dtype, n_rows, n_cols, bytes, in_tiles)?;
        Ok(linear.map(|linear| Product { linear, team }))
    }

    /// Bytes of the weights in memory.
    pub fn n_bytes(&self) -> u64 {
        self.linear.n_bytes()
    }

    /// `[tokens, n_cols]` to `[tokens, n_rows]`.
    pub fn of(&self, x: &[f32]) -> Vec<f32> {
        self.linear.forward(&self.team, &Activations::new(x)).to_vec()
    }
}
