//! A loaded model and its forward pass.

use std::{
    borrow::Cow,
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use kinfolk_decoder::{
    Cache, Cancel, Decoder, ForwardError, Frequencies, LoadContext, LoadError, LoadRole, Mixer, Model, OpTime, Output,
    Rope, Sequence, Slot, Source, Want, Wiring,
};

use crate::{
    activation::softcap,
    activations::Activations,
    attention::AttentionWeights,
    buffers::{Buffer, Detached},
    cache::{CpuCache, LayerCache, Pool},
    ffn::FfnWeights,
    level::Level,
    linear::Linear,
    load::Loader,
    memory::sequence_bytes,
    norm::{self, NormWeights},
    rotary::Rotation,
    supports::refusal,
    team::Team,
    timers::{Op, Timers},
};

/// Weights in memory, and the team that computes with them.
pub(crate) struct CpuModel {
    /// Tells this model's caches from others'.
    id: u64,
    decoder: Arc<Decoder>,
    role: LoadRole,
    context_length: usize,
    team: Arc<Team>,
    timers: Timers,
    /// Where its sequences' keys and values are.
    pool: Arc<Pool>,
    level: Level,
    weight_bytes: u64,
    /// `[vocab, hidden]`
    embedding: Linear,
    /// Every distinct rope of the layers.
    ropes: Vec<LoadedRope>,
    layers: Vec<LayerWeights>,
    final_norm: NormWeights,
    /// `[vocab, hidden]`; `None` where tied to the embedding, or where the role takes none.
    head: Option<Linear>,
}

struct LayerWeights {
    pre_mixer: Option<NormWeights>,
    attention: AttentionWeights,
    post_mixer: Option<NormWeights>,
    pre_ffn: Option<NormWeights>,
    ffn: FfnWeights,
    post_ffn: Option<NormWeights>,
}

/// A rope with its frequencies for sequences up to [`Rope::switches_beyond`] and beyond.
struct LoadedRope {
    rope: Rope,
    within: Frequencies,
    beyond: Frequencies,
}

impl LoadedRope {
    fn new(rope: &Rope, context_length: usize, divisors: Option<&[f32]>) -> LoadedRope {
        let frequencies = |len| {
            let mut f = rope.frequencies(len, context_length);
            if let Some(divisors) = divisors {
                f.inv_freq.iter_mut().zip(divisors).for_each(|(f, d)| *f /= d);
            }
            f
        };
        let beyond = rope.switches_beyond().map_or(0, |n| n + 1);
        LoadedRope { rope: rope.clone(), within: frequencies(0), beyond: frequencies(beyond) }
    }

    fn for_len(&self, len: usize) -> &Frequencies {
        if self.rope.switches_beyond().is_some_and(|n| len > n) { &self.beyond } else { &self.within }
    }
}

/// What the operations of a pass are computed with.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub team: &'a Team,
    pub timers: &'a Timers,
    pub level: Level,
}

/// Tokens that one thread takes at a time where each is a few microseconds of work or less: fewer are not worth waking another for.
pub(crate) const TOKENS: usize = 4;

/// What one forward pass works on: the new tokens of every sequence, one after the other.
pub(crate) struct Step<'a> {
    pub tokens: Vec<Token>,
    /// Which of the tokens are of each cache's sequence.
    pub runs: Vec<Range<usize>>,
    pub caches: Vec<&'a mut CpuCache>,
    /// One per rope of the model.
    pub rotations: Vec<Rotation>,
}

/// One new token.
pub(crate) struct Token {
    pub position: usize,
    id: u32,
}

impl CpuModel {
    pub fn load(
        decoder: Arc<Decoder>,
        source: &Source,
        context: &LoadContext<'_>,
        team: Arc<Team>,
    ) -> Result<CpuModel, LoadError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let max = decoder.context_length;
        let context_length = context.context_length.unwrap_or(max);
        if !(1..=max).contains(&context_length) {
            return Err(LoadError::ContextLength { max, asked: context_length });
        }
        let role = context.role;
        let total_bytes = decoder.tensors(source, role).map(|t| t.n_bytes() as u64).fold(0, u64::saturating_add);
        let mut loader = Loader::new(decoder.bind_for(source, role)?, total_bytes, &team, context);
        let divisors = loader.vector(Slot::model("rope.divisors"))?;
        let embedding = loader.linear(Slot::model("embed"))?;
        let mut ropes: Vec<LoadedRope> = Vec::new();
        let mut layers = Vec::with_capacity(decoder.layers.len());
        for (i, layer) in decoder.layers.iter().enumerate() {
            let at = |pattern| Slot::layer(pattern, i);
            let Mixer::Attention(spec) = &layer.mixer else {
                return Err(refusal(format!("mixer {:?} is not implemented", layer.mixer)).into());
            };
            let Wiring::Sequential { pre_mixer, post_mixer, pre_ffn, post_ffn } = &layer.wiring else {
                return Err(refusal(format!("wiring {:?} is not implemented", layer.wiring)).into());
            };
            let rope = spec.rope.as_ref().map(|rope| {
                ropes.iter().position(|known| known.rope == *rope).unwrap_or_else(|| {
                    ropes.push(LoadedRope::new(rope, context_length, divisors.as_deref()));
                    ropes.len() - 1
                })
            });
            layers.push(LayerWeights {
                pre_mixer: loader.norm(pre_mixer.as_ref(), at("layers.{i}.norm.pre_mixer"))?,
                attention: AttentionWeights::load(spec, rope, i, &mut loader)?,
                post_mixer: loader.norm(post_mixer.as_ref(), at("layers.{i}.norm.post_mixer"))?,
                pre_ffn: loader.norm(pre_ffn.as_ref(), at("layers.{i}.norm.pre_ffn"))?,
                ffn: FfnWeights::load(&layer.ffn, i, &mut loader)?,
                post_ffn: loader.norm(post_ffn.as_ref(), at("layers.{i}.norm.post_ffn"))?,
            });
        }
        let final_norm = loader
            .norm(Some(&decoder.final_norm), Slot::model("norm.final"))?
            .ok_or_else(|| refusal("a decoder without a final norm is not implemented"))?;
        let head = loader.opt_linear(Slot::model("head"))?;
        loader.finish();
        Ok(CpuModel {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            weight_bytes: loader.weight_bytes(),
            decoder,
            role,
            context_length,
            team,
            timers: Timers::new(context.profile),
            pool: Pool::new(),
            level: Level::current(),
            embedding,
            ropes,
            layers,
            final_norm,
            head,
        })
    }

    fn empty_cache(&self) -> CpuCache {
        let layers = self.layers.iter().map(|layer| layer.attention.new_cache()).collect();
        CpuCache::new(self.id, Arc::clone(&self.pool), layers)
    }

    /// Checks what a caller can get wrong, and makes room, so that the pass itself can only be cancelled.
    fn admit<'a>(&self, sequence: &'a mut Sequence<'_>) -> Result<Run<'a>, ForwardError> {
        let new = sequence.tokens;
        let cache = sequence.cache.as_any_mut().downcast_mut::<CpuCache>();
        let cache = cache.filter(|c| c.model == self.id).ok_or(ForwardError::ForeignCache)?;
        if new.is_empty() {
            return Err(ForwardError::NoTokens);
        }
        if self.role == LoadRole::Embedding && matches!(sequence.want, Want::LastLogits | Want::AllLogits) {
            return Err(ForwardError::NoHead);
        }
        let held = cache.tokens.len();
        let asked = held.saturating_add(new.len());
        if asked > self.context_length {
            return Err(ForwardError::ContextFull { context_length: self.context_length, asked });
        }
        let stale = held > 0 && self.is_stale(cache.rotated_for, asked);
        let tokens = if stale { Cow::Owned([&cache.tokens, new].concat()) } else { Cow::Borrowed(new) };
        let vocab_size = self.decoder.embedding.vocab_size;
        if let Some(&token) = tokens.iter().find(|t| **t as usize >= vocab_size) {
            return Err(ForwardError::TokenOutOfRange { token, vocab_size });
        }
        let mut run =
            Run { cache, renewed: stale.then(|| self.empty_cache()), tokens, n_new: new.len(), want: sequence.want };
        let n = run.tokens.len();
        run.target().1.reserve(n)?;
        Ok(run)
    }

    /// Whether keys rotated for a sequence of `rotated_for` tokens are stale in one of `len`.
    fn is_stale(&self, rotated_for: usize, len: usize) -> bool {
        let switched = |rope: &LoadedRope| rope.rope.switches_beyond().is_some_and(|n| (rotated_for > n) != (len > n));
        self.ropes.iter().any(switched)
    }

    fn run(&self, runs: &mut [Run<'_>], cancel: &Cancel) -> Result<Vec<Output>, ForwardError> {
        let wants: Vec<Wanted> =
            runs.iter().map(|r| Wanted { n_rows: r.tokens.len(), n_new: r.n_new, want: r.want }).collect();
        let mut tokens = Vec::new();
        let mut of_sequences = Vec::with_capacity(runs.len());
        let mut caches = Vec::with_capacity(runs.len());
        for run in runs.iter_mut() {
            let (new, cache) = run.target();
            let (start, held) = (tokens.len(), cache.tokens.len());
            tokens.extend(new.iter().enumerate().map(|(i, id)| Token { position: held + i, id: *id }));
            of_sequences.push(start..tokens.len());
            caches.push(cache);
        }
        let of_rope = |rope: &LoadedRope| {
            let of_sequence = |run: &Range<usize>| {
                let frequencies = rope.for_len(tokens[run.end - 1].position + 1);
                tokens[run.clone()].iter().map(move |t| (t.position, frequencies))
            };
            Rotation::new(&rope.rope, of_sequences.iter().flat_map(of_sequence))
        };
        let rotations = self.timers.time(Op::Rope, || self.ropes.iter().map(of_rope).collect());
        let x = self.run_layers(&mut Step { tokens, runs: of_sequences, caches, rotations }, cancel)?;
        Ok(self.outputs(x, &wants))
    }

    /// Runs the layers over a step's tokens. Returns the residual stream, `[tokens, hidden]`.
    fn run_layers(&self, step: &mut Step<'_>, cancel: &Cancel) -> Result<Buffer<'_, f32>, ForwardError> {
        let hidden = self.decoder.embedding.hidden_size;
        let (ctx, timers) = (&self.context(), &self.timers);
        let mut x = timers.time(Op::Embed, || self.embed(&step.tokens));
        let mut normed = self.team.floats.take(x.len(), 0.0);
        // What the block before has said, with its norm: added when the next norm passes over the residual stream anyway.
        let mut said: Option<(Buffer<'_, f32>, Option<&NormWeights>)> = None;
        for (i, layer) in self.layers.iter().enumerate() {
            if cancel.is_cancelled() {
                return Err(ForwardError::Cancelled);
            }
            let pre = layer.pre_mixer.as_ref();
            timers.time(Op::Norm, || join(ctx, hidden, said.take(), &mut x, pre, &mut normed));
            let mixed = (layer.attention.forward(ctx, step, i, &normed), layer.post_mixer.as_ref());
            let pre = layer.pre_ffn.as_ref();
            timers.time(Op::Norm, || join(ctx, hidden, Some(mixed), &mut x, pre, &mut normed));
            said = Some((layer.ffn.forward(ctx, &normed, hidden), layer.post_ffn.as_ref()));
        }
        timers.time(Op::Norm, || join(ctx, hidden, said, &mut x, None, &mut []));
        Ok(x)
    }

    fn context(&self) -> Context<'_> {
        Context { team: &self.team, timers: &self.timers, level: self.level }
    }

    /// Rows of the embedding, `[tokens, hidden]`.
    fn embed(&self, tokens: &[Token]) -> Buffer<'_, f32> {
        let hidden = self.decoder.embedding.hidden_size;
        let mut x = self.team.floats.take(tokens.len() * hidden, 0.0);
        self.team.for_each_chunk(&mut x, TOKENS * hidden, |chunk, rows| {
            for (token, row) in tokens[chunk * TOKENS..].iter().zip(rows.chunks_exact_mut(hidden)) {
                self.embedding.decode_row(token.id as usize, row);
                if let Some(scale) = self.decoder.embedding.scale {
                    row.iter_mut().for_each(|v| *v *= scale);
                }
            }
        });
        x
    }

    /// What each sequence wants of the residual stream `x`.
    fn outputs(&self, mut x: Buffer<'_, f32>, wants: &[Wanted]) -> Vec<Output> {
        let hidden = self.decoder.embedding.hidden_size;
        let mut for_head = Vec::new();
        let mut rest = &mut *x;
        let mut outputs: Vec<Output> = Vec::with_capacity(wants.len());
        for wanted in wants {
            let (own, others) = rest.split_at_mut(wanted.n_rows * hidden);
            rest = others;
            let n = match wanted.want {
                Want::Nothing => 0,
                Want::LastLogits => 1,
                Want::AllLogits | Want::Hidden => wanted.n_new,
            };
            let rows = &mut own[(wanted.n_rows - n) * hidden..];
            self.timers.time(Op::Norm, || self.final_norm.apply(self.level, rows));
            match wanted.want {
                Want::Hidden => outputs.push(Output::of_one(rows.to_vec(), hidden)),
                _ => {
                    for_head.extend_from_slice(rows);
                    outputs.push(Output::default());
                }
            }
        }
        if for_head.is_empty() {
            return outputs;
        }
        let width = self.head().n_rows();
        let logits: Arc<Detached<f32>> = Arc::new(self.timers.time(Op::Head, || self.logits(&for_head)).detach());
        let mut start = 0;
        for (output, wanted) in outputs.iter_mut().zip(wants) {
            let n = match wanted.want {
                Want::LastLogits => 1,
                Want::AllLogits => wanted.n_new,
                Want::Nothing | Want::Hidden => continue,
            };
            let range = start..start + n * width;
            start = range.end;
            *output = Output::new(Arc::clone(&logits) as _, range, width);
        }
        outputs
    }

    fn head(&self) -> &Linear {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// `[tokens, hidden]`, after the last norm, to `[tokens, vocab]`.
    fn logits(&self, x: &[f32]) -> Buffer<'_, f32> {
        /// Logits that a thread caps at a time.
        const SHARE: usize = 4096;
        let mut logits = self.head().forward(&self.team, &Activations::new(x));
        if let Some(cap) = self.decoder.head.softcap {
            self.team.for_each_chunk(&mut logits, SHARE, |_, logits| softcap(self.level, logits, cap));
        }
        logits
    }
}

/// What a sequence wants back, and of how many rows.
struct Wanted {
    /// Rows computed for it.
    n_rows: usize,
    /// The last of them, which are new to the caller.
    n_new: usize,
    want: Want,
}

/// Adds what a block has said, with its norm, to the residual stream `x`, and writes the norm of the sum for the next block to `normed`.
fn join(
    ctx: &Context<'_>,
    hidden: usize,
    said: Option<(Buffer<'_, f32>, Option<&NormWeights>)>,
    x: &mut [f32],
    next: Option<&NormWeights>,
    normed: &mut [f32],
) {
    let (level, len) = (ctx.level, TOKENS * hidden);
    ctx.team.for_each_pair((x, len), (normed, len), |chunk, x, normed| {
        match &said {
            Some((said, Some(norm))) => norm.add(level, &said[chunk * len..][..x.len()], x),
            Some((said, None)) => norm::add(level, &said[chunk * len..][..x.len()], x),
            None => {}
        }
        match next {
            Some(norm) => norm.write(level, x, normed),
            None if normed.is_empty() => {}
            None => normed.copy_from_slice(x),
        }
    });
}

impl fmt::Debug for CpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuModel").field("id", &self.id).field("layers", &self.layers.len()).finish_non_exhaustive()
    }
}

impl Model for CpuModel {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn executor(&self) -> &'static str {
        "cpu"
    }

    fn role(&self) -> LoadRole {
        self.role
    }

    fn threads(&self) -> usize {
        self.team.n_threads()
    }

    fn context_length(&self) -> usize {
        self.context_length
    }

    fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    fn profile(&self) -> Vec<OpTime> {
        self.timers.read()
    }

    fn new_cache(&self) -> Box<dyn Cache> {
        Box::new(self.empty_cache())
    }

    fn cache_bytes(&self, tokens: usize) -> u64 {
        let kv = sequence_bytes(&self.decoder, tokens, 0);
        kv.saturating_add(2 * size_of::<u32>() as u64 * tokens as u64)
    }

    fn forward(&self, batch: &mut [Sequence<'_>], cancel: &Cancel) -> Result<Vec<Output>, ForwardError> {
        let mut runs: Vec<Run<'_>> = batch.iter_mut().map(|sequence| self.admit(sequence)).collect::<Result<_, _>>()?;
        match self.run(&mut runs, cancel) {
            Ok(outputs) => {
                runs.into_iter().for_each(Run::commit);
                Ok(outputs)
            }
            Err(error) => {
                runs.iter_mut().for_each(|run| run.cache.roll_back());
                Err(error)
            }
        }
    }
}

/// One sequence's part of a forward pass.
struct Run<'a> {
    cache: &'a mut CpuCache,
    /// Stands in for `cache` where its keys are stale and the whole sequence is computed anew.
    renewed: Option<CpuCache>,
    /// To compute: the new tokens, or all of them.
    tokens: Cow<'a, [u32]>,
    n_new: usize,
    want: Want,
}

impl Run<'_> {
    /// Tokens to compute, and what they are to be appended to.
    fn target(&mut self) -> (&[u32], &mut CpuCache) {
        (&self.tokens, self.renewed.as_mut().unwrap_or(self.cache))
    }

    /// Puts the computed tokens on record.
    fn commit(self) {
        let cache = self.cache;
        if let Some(renewed) = self.renewed {
            *cache = renewed;
        }
        cache.tokens.extend_from_slice(&self.tokens);
        cache.rotated_for = cache.tokens.len();
        cache.layers.iter_mut().for_each(LayerCache::forget);
    }
}
