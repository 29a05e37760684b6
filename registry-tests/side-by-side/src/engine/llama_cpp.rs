//! llama.cpp, set up as its own `llama-bench` sets it up: a pool of threads that stays, halves as keys and values, flash attention where
//! it finds that better, weights repacked for the processor, logits after the last token of a prompt alone.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    path::Path,
    ptr, slice,
};

use anyhow::{Context as _, Result, ensure};
use llama_cpp_sys_2::{
    ggml_log_level, ggml_threadpool, ggml_threadpool_free, ggml_threadpool_new, ggml_threadpool_params_default,
    llama_attach_threadpool, llama_backend_init, llama_batch, llama_context, llama_context_default_params,
    llama_decode, llama_free, llama_get_logits_ith, llama_get_memory, llama_init_from_model, llama_log_set,
    llama_memory_clear, llama_model, llama_model_default_params, llama_model_free, llama_model_get_vocab,
    llama_model_load_from_file, llama_print_system_info, llama_state_seq_get_data, llama_state_seq_get_size,
    llama_state_seq_set_data, llama_version, llama_vocab_n_tokens,
};

use super::{Engine, Found};
use crate::protocol::Settings;

/// Tokens of a batch: `n_batch` of the default parameters.
const BATCH_TOKENS: usize = 2048;

pub struct LlamaCpp {
    settings: Settings,
    /// For one sequence.
    single: Context,
    /// For several, while [`Engine::start`] asked for more than one.
    several: Option<Context>,
    /// What sequences start from: how many tokens, and their state as llama.cpp writes it.
    n_base_tokens: usize,
    base: Vec<u8>,
    /// Tokens in every sequence, and how many sequences there are.
    n_tokens: usize,
    n_sequences: usize,
    pool: Pool,
    // Last, since fields are dropped in order and contexts use it.
    model: Model,
}

struct Model(*mut llama_model);

struct Context {
    raw: *mut llama_context,
    /// Logits of a position.
    n_logits: usize,
}

struct Pool(*mut ggml_threadpool);

/// A token of a batch.
#[derive(Clone, Copy)]
struct Entry {
    token: u32,
    sequence: usize,
    position: usize,
    wants_logits: bool,
}

impl LlamaCpp {
    pub fn load(path: &Path, settings: Settings) -> Result<LlamaCpp> {
        let c_path = CString::new(path.as_os_str().as_encoded_bytes())?;
        // SAFETY: `c_path` outlives the call, and the callback takes no state.
        let model = unsafe {
            llama_log_set(Some(ignore_log), ptr::null_mut());
            llama_backend_init();
            llama_model_load_from_file(c_path.as_ptr(), llama_model_default_params())
        };
        ensure!(!model.is_null(), "llama.cpp did not load `{}`", path.display());
        let model = Model(model);
        // SAFETY: the parameters live through the call. A null pool is refused below.
        let pool =
            unsafe { ggml_threadpool_new(&mut ggml_threadpool_params_default(i32::try_from(settings.threads)?)) };
        ensure!(!pool.is_null(), "llama.cpp made no threads");
        let pool = Pool(pool);
        let single = Context::new(&model, &pool, settings, 1, 1)?;
        Ok(LlamaCpp {
            settings,
            single,
            several: None,
            n_base_tokens: 0,
            base: Vec::new(),
            n_tokens: 0,
            n_sequences: 0,
            pool,
            model,
        })
    }
}

impl Context {
    /// For so many sequences, with room for the logits of `n_outputs` positions of a pass.
    fn new(model: &Model, pool: &Pool, settings: Settings, n_sequences: usize, n_outputs: usize) -> Result<Context> {
        let n_threads = i32::try_from(settings.threads)?;
        // SAFETY: makes a plain struct.
        let mut params = unsafe { llama_context_default_params() };
        params.n_ctx = u32::try_from(settings.context_length * n_sequences)?;
        params.n_seq_max = u32::try_from(n_sequences)?;
        params.n_outputs_max = u32::try_from(n_outputs)?;
        (params.n_threads, params.n_threads_batch) = (n_threads, n_threads);
        // As its programs do: no keys and values are kept that a sliding window has passed.
        params.swa_full = false;
        // SAFETY: model and pool are alive, and outlive the context as fields after it.
        let raw = unsafe { llama_init_from_model(model.0, params) };
        ensure!(!raw.is_null(), "llama.cpp made no context");
        // SAFETY: as above.
        let n_logits = unsafe {
            llama_attach_threadpool(raw, pool.0, pool.0);
            llama_vocab_n_tokens(llama_model_get_vocab(model.0))
        };
        Ok(Context { raw, n_logits: usize::try_from(n_logits)? })
    }

    fn clear(&mut self) {
        // SAFETY: the context is alive.
        unsafe { llama_memory_clear(llama_get_memory(self.raw), false) };
    }

    /// Appends `tokens` to sequence 0, which is empty, in the batches that llama.cpp takes by default.
    fn extend(&mut self, tokens: &[u32]) -> Result<()> {
        let entry = |(position, &token): (usize, &u32)| {
            let wants_logits = position + 1 == tokens.len();
            Entry { token, sequence: 0, position, wants_logits }
        };
        let entries: Vec<Entry> = tokens.iter().enumerate().map(entry).collect();
        entries.chunks(BATCH_TOKENS).try_for_each(|batch| self.decode(batch, &mut |_| Ok(())))
    }

    /// Runs a batch, waits for its logits and gives them to `found`.
    fn decode(&mut self, entries: &[Entry], found: &mut Found<'_>) -> Result<()> {
        let mut tokens: Vec<i32> = entries.iter().map(|e| e.token as i32).collect();
        let mut positions: Vec<i32> = entries.iter().map(|e| e.position as i32).collect();
        let mut n_sequences = vec![1; entries.len()];
        let mut sequences: Vec<i32> = entries.iter().map(|e| e.sequence as i32).collect();
        let mut pointers: Vec<*mut i32> = sequences.iter_mut().map(ptr::from_mut).collect();
        let mut logits: Vec<i8> = entries.iter().map(|e| i8::from(e.wants_logits)).collect();
        let batch = llama_batch {
            n_tokens: i32::try_from(entries.len())?,
            token: tokens.as_mut_ptr(),
            embd: ptr::null_mut(),
            pos: positions.as_mut_ptr(),
            n_seq_id: n_sequences.as_mut_ptr(),
            seq_id: pointers.as_mut_ptr(),
            logits: logits.as_mut_ptr(),
        };
        // SAFETY: every array of the batch has `n_tokens` elements and outlives the call, which copies what it keeps.
        let status = unsafe { llama_decode(self.raw, batch) };
        ensure!(status == 0, "llama_decode answered {status}");
        for i in (0..entries.len()).filter(|i| entries[*i].wants_logits) {
            // SAFETY: the context is alive. This waits until the logits are there.
            let logits = unsafe { llama_get_logits_ith(self.raw, i as i32) };
            ensure!(!logits.is_null(), "llama.cpp gave no logits");
            // SAFETY: a row of as many logits as the vocabulary has tokens, which stays until the next batch.
            found(unsafe { slice::from_raw_parts(logits, self.n_logits) })?;
        }
        Ok(())
    }

    fn state(&mut self, sequence: i32) -> Vec<u8> {
        // SAFETY: the context is alive, and the buffer has the size that it asks for.
        unsafe {
            let mut state = vec![0; llama_state_seq_get_size(self.raw, sequence)];
            let n = llama_state_seq_get_data(self.raw, state.as_mut_ptr(), state.len(), sequence);
            state.truncate(n);
            state
        }
    }

    fn set_state(&mut self, sequence: i32, state: &[u8]) -> Result<()> {
        // SAFETY: the context is alive, and `state` is what `state` above has read, of a context of the same model.
        let n = unsafe { llama_state_seq_set_data(self.raw, state.as_ptr(), state.len(), sequence) };
        ensure!(n > 0, "llama.cpp did not take a sequence back");
        Ok(())
    }
}

impl Engine for LlamaCpp {
    fn about(&self) -> String {
        // SAFETY: both give C strings that stay.
        let text = |chars: *const c_char| unsafe { CStr::from_ptr(chars) }.to_string_lossy();
        // SAFETY: takes nothing.
        let (version, info) = unsafe { (text(llama_version()), text(llama_print_system_info())) };
        format!("llama.cpp {version}, {} threads, {}", self.settings.threads, info.trim_end_matches([' ', '|']))
    }

    fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        self.single.clear();
        self.single.extend(tokens)
    }

    fn start(&mut self, tokens: &[u32], n_sequences: usize) -> Result<()> {
        self.several = None;
        if n_sequences > 1 {
            self.several = Some(Context::new(&self.model, &self.pool, self.settings, n_sequences, n_sequences)?);
        }
        // A context takes back the state of its like alone, so the one for several sequences runs the prompt itself.
        let context = self.several.as_mut().unwrap_or(&mut self.single);
        context.clear();
        context.extend(tokens)?;
        self.base = if tokens.is_empty() { Vec::new() } else { context.state(0) };
        (self.n_base_tokens, self.n_sequences) = (tokens.len(), n_sequences);
        self.rewind()
    }

    fn rewind(&mut self) -> Result<()> {
        let context = self.several.as_mut().unwrap_or(&mut self.single);
        context.clear();
        if !self.base.is_empty() {
            (0..self.n_sequences).try_for_each(|sequence| context.set_state(sequence as i32, &self.base))?;
        }
        self.n_tokens = self.n_base_tokens;
        Ok(())
    }

    fn step(&mut self, tokens: &[u32]) -> Result<()> {
        let position = self.n_tokens;
        let entry = |(sequence, &token)| Entry { token, sequence, position, wants_logits: true };
        let entries: Vec<Entry> = tokens.iter().enumerate().map(entry).collect();
        let context = self.several.as_mut().unwrap_or(&mut self.single);
        context.decode(&entries, &mut |_| Ok(())).context("one step of decoding")?;
        self.n_tokens += 1;
        Ok(())
    }

    fn logits(&mut self, tokens: &[u32], pass_tokens: usize, found: &mut Found<'_>) -> Result<()> {
        let pass_tokens = pass_tokens.min(BATCH_TOKENS);
        let mut context = Context::new(&self.model, &self.pool, self.settings, 1, pass_tokens)?;
        let entry = |(position, &token)| Entry { token, sequence: 0, position, wants_logits: true };
        let entries: Vec<Entry> = tokens.iter().enumerate().map(entry).collect();
        entries.chunks(pass_tokens).try_for_each(|pass| context.decode(pass, found))
    }
}

unsafe extern "C" fn ignore_log(_: ggml_log_level, _: *const c_char, _: *mut c_void) {}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: made by llama.cpp, and every context of it is gone.
        unsafe { llama_model_free(self.0) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by llama.cpp, and not used after.
        unsafe { llama_free(self.raw) };
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: made by llama.cpp, and every context that uses it is gone.
        unsafe { ggml_threadpool_free(self.0) };
    }
}
