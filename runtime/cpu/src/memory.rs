//! What a model takes on this executor: weights as they are packed, f32 keys and values, f32 scratch.

use kinfolk_decoder::{Attention, Decoder, Ffn, GatedMlp, Mask, MemoryNeed, Mixer, Stored, Weights, Workload};

use crate::{
    attention::{self, ROWS},
    cache::{BLOCK, KvShape, LANES},
    dense,
    linear::TILE,
    quantized,
};

/// Bytes of an f32.
const F32: u64 = 4;

/// What `decoder` takes once its `weights` are loaded, with `n_threads` threads.
pub(crate) fn memory(decoder: &Decoder, weights: &Weights<'_>, workload: &Workload, n_threads: usize) -> MemoryNeed {
    MemoryNeed::new(
        weight_bytes(weights, workload.packed_weights),
        cache_bytes(decoder, workload),
        scratch_bytes(decoder, workload, n_threads)
            .saturating_add(panel_bytes(weights, workload).saturating_mul(n_threads as u64)),
    )
}

/// Projections keep their stored type, but for quantised ones that are to be decoded. Vectors are decoded.
fn weight_bytes(weights: &Weights<'_>, packed_weights: Option<bool>) -> u64 {
    let packed = packed_weights.unwrap_or(true);
    sum(weights.stored().map(|stored| {
        let stays = !stored.is_vector && (packed || stored.dtype.block_len() == 1);
        if stays { packed_bytes(stored) } else { product(&[stored.n_elements]).saturating_mul(F32) }
    }))
}

/// In tiles where there is a kernel for the type, else as it is.
fn packed_bytes(stored: Stored) -> u64 {
    let n_rows = stored.n_elements / stored.n_cols.max(1);
    let of_kernel = [quantized::tile_bytes, dense::tile_bytes]
        .into_iter()
        .find_map(|tile_bytes| tile_bytes(stored.dtype, n_rows, stored.n_cols));
    of_kernel.map_or_else(|| stored.n_bytes(), |bytes| bytes as u64)
}

/// What one thread unpacks of the weights for a matrix unit, and the sums that it keeps for one.
fn panel_bytes(weights: &Weights<'_>, workload: &Workload) -> u64 {
    let Workload { context_length, n_sequences, chunk_tokens, packed_weights, .. } = *workload;
    let n_tokens = chunk_tokens.min(context_length.saturating_mul(n_sequences));
    let of_matrix = |s: Stored| {
        let n_rows = s.n_elements / s.n_cols.max(1);
        let of_codes = packed_weights.unwrap_or(true).then(|| quantized::panel_bytes(s.dtype, n_rows, n_tokens));
        dense::panel_bytes(s.dtype, n_rows, s.n_cols).max(of_codes.unwrap_or(0))
    };
    weights.stored().filter(|stored| !stored.is_vector).map(of_matrix).max().unwrap_or(0)
}

/// Keys and values of every sequence.
fn cache_bytes(decoder: &Decoder, workload: &Workload) -> u64 {
    let of_one = sequence_bytes(decoder, workload.context_length, workload.chunk_tokens);
    of_one.saturating_mul(workload.n_sequences as u64)
}

/// Keys and values of a sequence of `len` tokens, of which the last `chunk_tokens` come at once, in whole blocks. Behind a window there may
/// be a part of a block, and another one that is kept to be used again.
pub(crate) fn sequence_bytes(decoder: &Decoder, len: usize, chunk_tokens: usize) -> u64 {
    let of_layer = |a: &Attention| {
        let held = match a.mask {
            Mask::Window(window) => window.saturating_add(chunk_tokens).saturating_add(2 * BLOCK),
            _ => usize::MAX,
        };
        let shape = KvShape { n_heads: a.n_kv_heads, head_dim: a.head_dim };
        product(&[held.min(len).div_ceil(BLOCK), shape.block_len()]).saturating_mul(F32)
    };
    sum(attentions(decoder).map(of_layer))
}

/// The largest set of activations alive at once, each thread's decoded rows and queries, and the logits.
fn scratch_bytes(decoder: &Decoder, workload: &Workload, n_threads: usize) -> u64 {
    let Workload { context_length, n_sequences, chunk_tokens, .. } = *workload;
    let (hidden, vocab) = (decoder.embedding.hidden_size, decoder.embedding.vocab_size);
    let n_tokens = chunk_tokens.min(context_length.saturating_mul(n_sequences));
    let per_token = decoder.layers.iter().map(|layer| {
        let mixer = match &layer.mixer {
            Mixer::Attention(a) => attention_width(a, hidden),
            _ => 0,
        };
        // Buffers of the one wait for its next layer while the other's are used.
        mixer.saturating_add(ffn_width(&layer.ffn, hidden))
    });
    let rotations = attentions(decoder).filter_map(|a| a.rope.as_ref()).map(|rope| rope.dims as u64).max().unwrap_or(0);
    // Results of attention before they are whole stay until the end of the pass.
    let parts = attentions(decoder).map(|a| product(&[a.n_heads, mixture_width(a)])).max().unwrap_or(0);
    let of_token = sum([per_token.max().unwrap_or(0), rotations, parts]);
    let activations = product(&[n_tokens]).saturating_mul(of_token);
    // The head's product by row, by token, and that of the pass before, which its host may still hold.
    let logits = product(&[3, vocab, n_sequences]).saturating_add(product(&[n_tokens, hidden]));
    let widest = decoder.layers.iter().map(|layer| match &layer.ffn {
        Ffn::Gated(mlp) => mlp.intermediate_size,
        Ffn::Moe(moe) => moe.expert.intermediate_size.max(moe.shared.map_or(0, |s| s.expert.intermediate_size)),
        _ => 0,
    });
    let mixing = attentions(decoder).map(workspace_len).max().unwrap_or(0);
    let n_new = chunk_tokens.min(context_length);
    let mixing_many = attentions(decoder).map(|a| attention::many_bytes(a, n_new, context_length));
    let of_matrix_units = sum([dense::SCRATCH_BYTES, mixing_many.max().unwrap_or(0)]);
    let heads = attentions(decoder).map(|a| a.n_heads.saturating_mul(a.head_dim));
    let widest = widest.chain(heads).chain([hidden]).max().unwrap_or(0);
    let per_thread = product(&[TILE, widest]).saturating_add(mixing);
    let elements = activations.max(logits).saturating_add(per_thread.saturating_mul(n_threads as u64));
    elements.saturating_mul(F32).saturating_add(of_matrix_units.saturating_mul(n_threads as u64))
}

/// Elements per token alive in attention: the residual stream and its norm; then queries, keys and values, with the input once more in the
/// order of a kernel or a product by row; or mixtures with the output projection, and either once more.
fn attention_width(a: &Attention, hidden: usize) -> u64 {
    let (q, kv) = (product(&[a.n_heads, a.head_dim]), product(&[a.n_kv_heads, a.head_dim]));
    let again = (hidden as u64).max(q).max(kv);
    let projecting = kv.saturating_mul(2).saturating_add(again);
    let output = again.saturating_add(hidden as u64);
    sum([product(&[2, hidden]), q, projecting.max(output)])
}

fn mixture_width(a: &Attention) -> usize {
    a.head_dim.checked_next_multiple_of(LANES).unwrap_or(usize::MAX).saturating_add(2)
}

/// Elements that one thread works in for attention: queries, weights, and the mixtures of a block, a segment, all, and a part that is not full.
fn workspace_len(a: &Attention) -> u64 {
    let n_rows = ROWS.max(a.n_heads / a.n_kv_heads.max(1));
    let of_row = sum([product(&[a.head_dim.div_ceil(BLOCK), BLOCK]), BLOCK as u64, product(&[4, mixture_width(a)])]);
    product(&[n_rows]).saturating_mul(of_row)
}

/// Elements per token alive in a feed-forward: the residual stream, the mixer's output and its norm, and the projections.
fn ffn_width(ffn: &Ffn, hidden: usize) -> u64 {
    let around = product(&[3, hidden]);
    let within = match ffn {
        Ffn::Gated(mlp) => gated_width(mlp, hidden),
        Ffn::Moe(moe) => {
            // Every token may choose the same expert. The router's product by row and by token, then who chose whom (an index and a
            // weight, 16 bytes); the sum, and the tokens gathered.
            let routing = sum([product(&[2, moe.n_experts]), product(&[4, moe.top_k]), product(&[2, hidden])]);
            let shared = moe.shared.map_or(0, |shared| gated_width(&shared.expert, hidden));
            gated_width(&moe.expert, hidden).max(shared).saturating_add(routing)
        }
        _ => 0,
    };
    around.saturating_add(within)
}

/// Gate and up, and what down takes, once more in the order of its kernel, and gives.
fn gated_width(mlp: &GatedMlp, hidden: usize) -> u64 {
    sum([product(&[3, mlp.intermediate_size]), product(&[1, hidden])])
}

fn attentions(decoder: &Decoder) -> impl Iterator<Item = &Attention> {
    decoder.layers.iter().filter_map(|layer| match &layer.mixer {
        Mixer::Attention(a) => Some(a),
        _ => None,
    })
}

// Saturating throughout: the numbers are a config's and a caller's, and a sum too large to count fits nowhere.

fn product(factors: &[usize]) -> u64 {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor as u64))
}

fn sum(terms: impl IntoIterator<Item = u64>) -> u64 {
    terms.into_iter().fold(0, u64::saturating_add)
}
