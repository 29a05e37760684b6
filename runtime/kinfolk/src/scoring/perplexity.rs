//! Perplexity of a long text, in windows.

use std::ops::Range;

use anyhow::Result;
use kinfolk_text::{EncodeOptions, Text};

use super::{ScoreError, ScoreOptions, ScorePair, score_all};
use crate::LmRunner;

/// The window where none is asked for, in tokens: that of llama.cpp's tool, small enough for every model.
const DEFAULT_WINDOW: usize = 512;

/// In which windows a text is looked at.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PerplexityOptions {
    /// Tokens of a window, `prefix` included. `None`: 512, or the context length if that is less.
    pub window: Option<usize>,
    /// Tokens from the start of a window to that of the next. `None`: half a window.
    pub stride: Option<usize>,
    /// Put before every window and not scored: what the model expects in front of a text. With it the first token of the text is
    /// scored too. `None`: what the tokenizer puts before a text (BOS, as a rule), and nothing before tokens.
    pub prefix: Option<Vec<u32>>,
    /// How to run a window.
    pub score: ScoreOptions,
}

/// How well a model predicts a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// e to the mean negative log-likelihood of a token.
    pub perplexity: f64,
    /// Its standard error if tokens were drawn independently; `None` for a single token, or one the model rules out.
    pub std_error: Option<f64>,
    /// Mean negative log-likelihood of a token, in nats.
    pub mean_nll: f64,
    /// Tokens scored.
    pub n_tokens: usize,
    /// Windows run.
    pub n_windows: usize,
}

/// Computes the perplexity of tokens as in transformers' guide to models of fixed length: every token is scored once, in the first
/// window it is in; the first window scores all of its tokens and the others their last `stride`, after at least `window - stride`
/// tokens of context. (llama.cpp scores only the second half of windows side by side, and so leaves out half the text.)
///
/// `progress` is told how many tokens are scored, and of how many.
///
/// # Errors
/// [`ScoreError`] about the window, the stride and a text too short; as [`score_all`].
pub fn perplexity(
    runner: &mut dyn LmRunner,
    tokens: &[u32],
    options: &PerplexityOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Perplexity> {
    let windows = Windows::new(tokens.len(), runner.context_length(), options)?;
    let n_all = tokens.len() - windows.n_unscored();
    let (mut n_tokens, mut n_windows, mut sum, mut sum_of_squares) = (0, 0, 0.0, 0.0);
    for Window { context, scored } in windows {
        let of = |range: Range<usize>| tokens.get(range).unwrap_or_default();
        let prefix = options.prefix.as_deref().unwrap_or_default();
        let pair = ScorePair { context: [prefix, of(context)].concat(), continuation: of(scored).to_vec() };
        for score in score_all(runner, &[pair], &options.score)? {
            n_tokens += score.log_probs.len();
            sum -= score.total;
            sum_of_squares += score.log_probs.iter().map(|p| f64::from(*p).powi(2)).sum::<f64>();
        }
        n_windows += 1;
        progress(n_tokens, n_all);
    }
    let mean_nll = sum / n_tokens as f64;
    let perplexity = mean_nll.exp();
    let variance = (sum_of_squares / n_tokens as f64 - mean_nll * mean_nll).max(0.0);
    let std_error = (n_tokens > 1).then(|| perplexity * (variance / (n_tokens - 1) as f64).sqrt());
    let std_error = std_error.filter(|error| error.is_finite());
    Ok(Perplexity { perplexity, std_error, mean_nll, n_tokens, n_windows })
}

/// [`perplexity`] of a text. Control tokens written in the
/// text are ordinary characters.
///
/// # Errors
/// As [`perplexity`], and as the tokenizer says.
pub fn text_perplexity(
    runner: &mut dyn LmRunner,
    text: &Text,
    content: &str,
    options: &PerplexityOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Perplexity> {
    let tokens = text.tokenizer.encode(content, EncodeOptions::default())?;
    let prefix = options.prefix.clone().unwrap_or_else(|| text.tokenizer.prefix().to_vec());
    let options = PerplexityOptions { prefix: Some(prefix), ..options.clone() };
    perplexity(runner, &tokens, &options, progress)
}

/// Part of a text: tokens that are only read, then tokens that are scored.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    context: Range<usize>,
    scored: Range<usize>,
}

/// The windows of a text of `n_tokens`.
struct Windows {
    n_tokens: usize,
    /// Tokens of the text in a window.
    len: usize,
    stride: usize,
    /// Whether something stands before every window.
    prefixed: bool,
    start: usize,
    /// Tokens in earlier windows.
    done: usize,
}

impl Windows {
    fn new(n_tokens: usize, context_length: usize, options: &PerplexityOptions) -> Result<Windows, ScoreError> {
        let n_prefix = options.prefix.as_ref().map_or(0, Vec::len);
        let window = options.window.unwrap_or(DEFAULT_WINDOW.min(context_length));
        // At the least a token to predict from and one to predict.
        let n_before = n_prefix.max(1);
        let (min, max) = (n_before + 1, context_length);
        if !(min..=max).contains(&window) {
            return Err(ScoreError::Window { min, max, asked: window });
        }
        let max_stride = window - n_before;
        let stride = options.stride.unwrap_or((window / 2).clamp(1, max_stride));
        if !(1..=max_stride).contains(&stride) {
            return Err(ScoreError::Stride { max: max_stride, asked: stride });
        }
        let windows = Windows { n_tokens, len: window - n_prefix, stride, prefixed: n_prefix > 0, start: 0, done: 0 };
        let expected = windows.n_unscored() + 1;
        if n_tokens < expected { Err(ScoreError::TooShort { expected, found: n_tokens }) } else { Ok(windows) }
    }

    /// Tokens at the start of the text with nothing to predict them from.
    fn n_unscored(&self) -> usize {
        usize::from(!self.prefixed)
    }
}

impl Iterator for Windows {
    type Item = Window;

    fn next(&mut self) -> Option<Window> {
        if self.done == self.n_tokens {
            return None;
        }
        let end = self.n_tokens.min(self.start + self.len);
        let from = self.done.max(self.n_unscored());
        let window = Window { context: self.start..from, scored: from..end };
        self.start += self.stride;
        self.done = end;
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(n_tokens: usize, window: usize, stride: usize, n_prefix: usize) -> Vec<(Range<usize>, Range<usize>)> {
        let options = PerplexityOptions {
            window: Some(window),
            stride: Some(stride),
            prefix: Some(vec![0; n_prefix]),
            score: ScoreOptions::default(),
        };
        Windows::new(n_tokens, 1000, &options).unwrap().map(|w| (w.context, w.scored)).collect()
    }

    #[test]
    fn windows_are_those_of_the_guide() {
        assert_eq!(windows(5, 8, 4, 0), [(0..1, 1..5)]);
        assert_eq!(windows(8, 8, 4, 0), [(0..1, 1..8)]);
        assert_eq!(windows(9, 8, 4, 0), [(0..1, 1..8), (4..8, 8..9)]);
        assert_eq!(windows(17, 8, 4, 0), [(0..1, 1..8), (4..8, 8..12), (8..12, 12..16), (12..16, 16..17)]);
        assert_eq!(windows(17, 9, 8, 1), [(0..0, 0..8), (8..8, 8..16), (16..16, 16..17)]);
        assert_eq!(windows(1, 2, 1, 1), [(0..0, 0..1)]);
    }

    #[test]
    fn every_token_is_scored_once_after_some_context_in_a_window_that_fits() {
        for n_tokens in 2..40 {
            for n_prefix in 0..3 {
                for window in n_prefix.max(1) + 1..12 {
                    for stride in 1..=window - n_prefix.max(1) {
                        let windows = windows(n_tokens, window, stride, n_prefix);
                        let scored = windows.iter().flat_map(|(_, scored)| scored.clone());
                        assert!(scored.eq(usize::from(n_prefix == 0)..n_tokens), "{n_tokens} {window} {stride}");
                        for (context, scored) in windows {
                            assert_eq!(context.end, scored.start);
                            assert!(n_prefix + context.len() >= 1 && !scored.is_empty());
                            assert!(n_prefix + context.len() + scored.len() <= window);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn windows_that_cannot_be_are_refused_with_the_bounds() {
        let of = |window, stride, n_prefix: usize, n_tokens| {
            let options =
                PerplexityOptions { window, stride, prefix: Some(vec![0; n_prefix]), score: ScoreOptions::default() };
            Windows::new(n_tokens, 64, &options).err()
        };
        assert_eq!(of(None, None, 0, 10), None, "the model's context is less than the default window");
        assert_eq!(of(Some(65), None, 0, 10), Some(ScoreError::Window { min: 2, max: 64, asked: 65 }));
        assert_eq!(of(Some(1), None, 0, 10), Some(ScoreError::Window { min: 2, max: 64, asked: 1 }));
        assert_eq!(of(Some(3), None, 3, 10), Some(ScoreError::Window { min: 4, max: 64, asked: 3 }));
        assert_eq!(of(Some(8), Some(0), 0, 10), Some(ScoreError::Stride { max: 7, asked: 0 }));
        assert_eq!(of(Some(8), Some(8), 1, 10), Some(ScoreError::Stride { max: 7, asked: 8 }));
        assert_eq!(of(Some(2), None, 1, 10), None);
        assert_eq!(of(None, None, 0, 1), Some(ScoreError::TooShort { expected: 2, found: 1 }));
        assert_eq!(of(None, None, 1, 1), None);
        assert_eq!(of(None, None, 1, 0), Some(ScoreError::TooShort { expected: 1, found: 0 }));
    }
}
