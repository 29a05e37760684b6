//! Constraints from JSON schemas, regular expressions and Lark grammars, through `llguidance`.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use kinfolk_text::{Ends, Tokenizer};
use llguidance::{
    Matcher, ParserFactory,
    api::{ParserLimits, TopLevelGrammar},
    toktrie::{ApproximateTokEnv, INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie},
};
use serde_json::Value;

use super::{Constraint, ConstraintError, TokenMask};

/// The longest grammar, in bytes of text or of JSON.
pub const MAX_GRAMMAR_BYTES: usize = 256 << 10;
/// The deepest nesting of brackets or of JSON. Parsers of both descend with it, and a thread's stack is finite.
pub const MAX_GRAMMAR_DEPTH: usize = 100;
/// Stack to compile on: 8 KiB for each of the at most 30 000 rules that fit into a grammar and may each name the next.
const STACK_BYTES: usize = 256 << 20;
/// States of the automaton of one reply, each a kilobyte or two.
const MAX_LEXER_STATES: usize = 32_000;
/// Work of building the automaton: about 50 000 a millisecond.
const INITIAL_LEXER_FUEL: u64 = 1_000_000;
/// Work of the automaton in one step: about 14 000 a millisecond.
const STEP_LEXER_FUEL: u64 = 200_000;
/// Items of the parser in one step: about 20 000 a millisecond.
const STEP_MAX_ITEMS: usize = 50_000;
/// The longest token that a grammar can produce; `toktrie` counts a token's bytes in ten bits.
const MAX_TOKEN_BYTES: usize = 1000;
/// `toktrie` marks control tokens with this byte, which no text has.
const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
/// The longest reason passed on, in bytes.
const MAX_REASON_BYTES: usize = 2000;

/// White space between the parts of JSON: a space, or a line break and an indent. Without a bound a model that likes spaces goes on with
/// them until its reply is cut off.
const JSON_SPACE: &str = r"\x20|\x0D?\x0A[\x20\x09]{0,32}";

/// What a reply has to look like. Cheap: a [`GrammarCompiler`] does the work.
#[derive(Clone, Debug, PartialEq)]
pub struct Grammar(Form);

#[derive(Clone, Debug, PartialEq)]
enum Form {
    JsonSchema(Value),
    Regex(String),
    Lark(String),
}

impl Grammar {
    /// JSON that satisfies a schema, compact or indented. Keywords `llguidance` does not know make it fail to compile rather than go unheeded.
    pub fn json_schema(schema: &Value) -> Grammar {
        Grammar(Form::JsonSchema(schema.clone()))
    }

    /// Text that a regular expression matches as a whole, in the syntax of the crate `regex` without look-around.
    pub fn regex(pattern: &str) -> Grammar {
        Grammar(Form::Regex(pattern.to_owned()))
    }

    /// Text of a context-free grammar in `llguidance`'s dialect of Lark, of which `start` is the first rule.
    pub fn lark(grammar: &str) -> Grammar {
        Grammar(Form::Lark(grammar.to_owned()))
    }

    fn check_size(&self) -> Result<(), GrammarError> {
        let (bytes, depth) = match &self.0 {
            Form::JsonSchema(schema) => (json_bytes(schema, MAX_GRAMMAR_DEPTH), json_depth(schema, MAX_GRAMMAR_DEPTH)),
            Form::Regex(text) | Form::Lark(text) => (text.len(), bracket_depth(text)),
        };
        if depth > MAX_GRAMMAR_DEPTH {
            return Err(GrammarError::TooDeep { max: MAX_GRAMMAR_DEPTH });
        }
        if bytes > MAX_GRAMMAR_BYTES {
            return Err(GrammarError::TooLarge { bytes, max: MAX_GRAMMAR_BYTES });
        }
        Ok(())
    }
}

/// A schema that says which white space there may be, unless it does so already.
fn with_bounded_space(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(members) = &mut schema {
        let settings = members.entry("x-guidance").or_insert_with(|| serde_json::json!({}));
        if let Value::Object(settings) = settings {
            settings.entry("whitespace_pattern").or_insert_with(|| JSON_SPACE.into());
        }
    }
    schema
}

/// Bytes of a JSON value written out, roughly, down to `depth`.
fn json_bytes(value: &Value, depth: usize) -> usize {
    let Some(below) = depth.checked_sub(1) else { return 0 };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_bytes(item, below) + 1).sum::<usize>() + 2,
        Value::Object(map) => map.iter().map(|(k, v)| k.len() + 4 + json_bytes(v, below)).sum::<usize>() + 2,
    }
}

/// How deep a JSON value nests; one more than `most` if it is more than that.
fn json_depth(value: &Value, most: usize) -> usize {
    let Some(below) = most.checked_sub(1) else { return 1 };
    match value {
        Value::Array(items) => 1 + items.iter().map(|item| json_depth(item, below)).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(|item| json_depth(item, below)).max().unwrap_or(0),
        _ => 1,
    }
}

/// How deep brackets nest at most, whatever they stand for: those in strings and comments count too.
fn bracket_depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = depth.max(deepest);
    }
    deepest
}

/// Why a grammar cannot constrain a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// It is no grammar, is one that nothing satisfies, or needs more work than is allowed.
    #[error("the grammar cannot be used: {reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// It is longer than allowed.
    #[error("grammar: expected at most {max} bytes, found {bytes}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The longest allowed.
        max: usize,
    },
    /// It nests deeper than allowed.
    #[error("grammar: expected brackets nested at most {max} deep, found more")]
    TooDeep {
        /// The deepest allowed.
        max: usize,
    },
    /// The vocabulary of the model cannot be used.
    #[error("the vocabulary cannot be used for grammars: {reason}")]
    Vocabulary {
        /// Why.
        reason: String,
    },
}

/// Compiles grammars for one model. Made once per model: it holds a tree of all tokens.
///
/// A constraint allows the tokens that can go on with what the grammar describes, whichever way the text is cut into tokens. It
/// never allows a control token, nor an id that the tokenizer does not have, even if a Lark grammar asks for one by number;
/// tokens that end a reply are allowed exactly where the grammar can end.
///
/// # Units
/// Limits: a grammar of [`MAX_GRAMMAR_BYTES`] that nests [`MAX_GRAMMAR_DEPTH`] deep; 1 000 000 units of work to compile it, 200 000
/// and 50 000 parser items per token (tens of milliseconds each); an automaton of 32 000 states (tens of megabytes). A reply that
/// hits one fails with [`ConstraintError`].
pub struct GrammarCompiler {
    factory: ParserFactory,
    vocabulary: Arc<ConstrainedVocabulary>,
}

/// What every constraint of a model needs to know.
#[derive(Debug)]
struct ConstrainedVocabulary {
    /// Tokens that are text.
    text: TokenMask,
    ends: Vec<u32>,
}

impl GrammarCompiler {
    /// Prepares a vocabulary. `ends` are the tokens that end a reply, `vocab_size` is the width of the model's logits.
    ///
    /// # Errors
    /// `Vocabulary` if it is too large for the tree.
    /// # Cost
    /// A fraction of a second for a large vocabulary, and some 10 MB.
    pub fn new(tokenizer: &Tokenizer, ends: &Ends, vocab_size: usize) -> Result<GrammarCompiler, GrammarError> {
        // The model may be wider than the tokenizer, by padding, and narrower, by an added token that was never trained.
        let n = tokenizer.vocab_size().min(vocab_size);
        let ends: Vec<u32> = ends.iter().filter(|id| (*id as usize) < n).collect();
        let mut text = TokenMask::new(n);
        let mut words = Vec::with_capacity(n);
        for id in 0..n as u32 {
            let is_text = !tokenizer.is_special(id) && !ends.contains(&id);
            let bytes = tokenizer.token_bytes(id).filter(|_| is_text);
            let bytes = bytes.filter(|bytes| bytes.len() <= MAX_TOKEN_BYTES && !bytes.contains(&MARKER));
            let bytes = bytes.map(|bytes| bytes.into_owned()).unwrap_or_default();
            if !bytes.is_empty() {
                text.insert(id);
            }
            words.push(bytes);
        }
        let factory = caught(|| factory(&words, &ends)).map_err(|reason| GrammarError::Vocabulary { reason })?;
        Ok(GrammarCompiler { factory, vocabulary: Arc::new(ConstrainedVocabulary { text, ends }) })
    }

    /// Compiles a grammar for one reply.
    ///
    /// # Errors
    /// `TooLarge`, `TooDeep`, and `Invalid` with what `llguidance` says.
    pub fn compile(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, GrammarError> {
        grammar.check_size()?;
        let compile = || {
            caught(|| {
                let grammar = match &grammar.0 {
                    Form::JsonSchema(schema) => TopLevelGrammar::from_json_schema(with_bounded_space(schema)),
                    Form::Regex(pattern) => TopLevelGrammar::from_regex(pattern),
                    Form::Lark(grammar) => TopLevelGrammar::from_lark(grammar.clone()),
                };
                Ok(Matcher::new(Ok(self.factory.create_parser(grammar)?)))
            })
        };
        let matcher = on_deep_stack(compile).map_err(|reason| GrammarError::Invalid { reason })?;
        Ok(Box::new(GrammarConstraint { matcher, vocabulary: Arc::clone(&self.vocabulary) }))
    }
}

impl fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarCompiler")
            .field("vocab_size", &self.vocabulary.text.vocab_size())
            .finish_non_exhaustive()
    }
}

fn factory(words: &[Vec<u8>], ends: &[u32]) -> anyhow::Result<ParserFactory> {
    let info = TokRxInfo::new(u32::try_from(words.len())?, ends.first().copied().unwrap_or(INVALID_TOKEN));
    let mut trie = TokTrie::from(&info, words);
    if !ends.is_empty() {
        trie = trie.with_eos_tokens(ends);
    }
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let slices = llguidance::earley::SlicedBiasComputer::general_slices();
    let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)?;
    factory.quiet();
    *factory.limits_mut() = ParserLimits {
        initial_lexer_fuel: INITIAL_LEXER_FUEL,
        step_lexer_fuel: STEP_LEXER_FUEL,
        step_max_items: STEP_MAX_ITEMS,
        max_lexer_states: MAX_LEXER_STATES,
        verbose_errors: false,
        ..ParserLimits::default()
    };
    Ok(factory)
}

/// Runs what may fail or panic; what went wrong, in words. `llguidance` asserts what it believes of grammars.
fn caught<T>(run: impl FnOnce() -> anyhow::Result<T>) -> Result<T, String> {
    // What a panic leaves half done is dropped with the closure, or refuses work from then on: a matcher is its own error then.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(reason(&format!("{error:#}"))),
        Err(_) => Err("the grammar engine panicked".to_owned()),
    }
}

/// Runs it on a thread of its own with a stack that the longest grammar cannot exhaust.
///
/// `llguidance` follows rules and references by recursion, and a stack that overflows ends the process. Address space is all
/// that a stack costs until it is used.
fn on_deep_stack<T: Send>(run: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| format!("no thread to compile on: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("the grammar engine panicked".to_owned()))
    })
}

/// A reason to show: without the backtrace of a panic, and of bounded length.
fn reason(text: &str) -> String {
    let text = text.split("\n<backtrace>").next().unwrap_or_default().trim();
    text.char_indices().take_while(|(at, _)| *at < MAX_REASON_BYTES).map(|(_, c)| c).collect()
}

/// A grammar on its way through one reply.
struct GrammarConstraint {
    matcher: Matcher,
    vocabulary: Arc<ConstrainedVocabulary>,
}

impl fmt::Debug for GrammarConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarConstraint").field("is_complete", &self.is_complete()).finish_non_exhaustive()
    }
}

impl Constraint for GrammarConstraint {
    fn allow(&mut self, allowed: &mut TokenMask) -> Result<(), ConstraintError> {
        let (mask, can_end) = caught(|| Ok((self.matcher.compute_mask_or_eos()?, self.can_end()?)))
            .map_err(|reason| ConstraintError { reason })?;
        // A Lark grammar can name tokens by number.
        allowed.insert_words(mask.as_slice());
        allowed.intersect(&self.vocabulary.text);
        if can_end {
            self.vocabulary.ends.iter().for_each(|end| allowed.insert(*end));
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        let is_end = self.vocabulary.ends.contains(&token);
        caught(|| {
            match is_end {
                // Ends are not the grammar's: it has none left to say, or is left where it is.
                true if self.can_end()? => Ok(()),
                true => anyhow::bail!("the reply cannot end here"),
                false if !self.vocabulary.text.contains(token) => anyhow::bail!("token {token} is no text"),
                false => self.matcher.consume_token(token),
            }
        })
        .map_err(|reason| ConstraintError { reason })
    }

    fn is_complete(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }
}

impl GrammarConstraint {
    fn can_end(&mut self) -> anyhow::Result<bool> {
        Ok(self.is_complete() || self.matcher.is_accepting()?)
    }
}
