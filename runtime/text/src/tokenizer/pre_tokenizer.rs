//! How byte-level vocabularies cut text into words before merging, by the name a GGUF file gives it.
//!
//! Each rule cuts every piece the rule before it left; what a rule does not match stays a piece of its own. The names and
//! which rule they mean follow llama.cpp (`tokenizer.ggml.pre`); the patterns are those the models' own `tokenizer.json`
//! files carry. Nearly all of them end in `\s+(?!\S)|\s+`, white space up to the last character before a word. That
//! lookahead is done by hand here, which leaves patterns a finite automaton can run: time is linear whatever the text.

use std::ops::Range;

use regex_automata::{Input, meta::Regex};

use crate::{Result, TextError};

/// One step of cutting.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// Matches of the pattern.
    Matches(&'static str),
    /// Matches of the pattern, else white space, of which a following word keeps the last character.
    Words(&'static str),
    /// As `Words`, but white space in runs of 512, 256, … characters.
    WordsAndPowersOfTwo(&'static str),
    /// Runs of digits in threes, counted from their end. With `whole_words` only runs that no letter follows.
    Thousands { whole_words: bool },
}

/// The alphabet in which the words are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// GPT-2's characters for bytes.
    ByteLevel,
    /// The text itself, with word marks for spaces and byte tokens for characters without a token.
    WordMarks,
    /// The text itself.
    Text,
}

/// What a pre-tokenizer name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreTokenizer {
    rules: &'static [Rule],
    pub(crate) alphabet: Alphabet,
    /// Whether a word that is a token is taken whole, without merging.
    pub(crate) ignore_merges: bool,
    /// Whether a text starts with BOS where the file does not say.
    pub(crate) add_bos: bool,
}

pub(crate) const GPT2_PATTERN: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";
const GPT2: Rule = Rule::Words(GPT2_PATTERN);
const LLAMA3_PATTERN: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
);
const LLAMA3: Rule = Rule::Words(LLAMA3_PATTERN);
const QWEN2: Rule = Rule::Words(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
));
const QWEN35: Rule = Rule::Words(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
));
const GPT4O: Rule = Rule::Words(concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
));
const TEKKEN: Rule = Rule::Words(concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
));
const YOUTU: Rule = Rule::Words(concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
));
const KIMI_K2: Rule = Rule::Words(concat!(
    r"\p{Han}+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
));
const DEEPSEEK3: Rule = Rule::Words(concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"##,
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
));
const SPARK: Rule = Rule::Words(concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"##,
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]"
));
const BAILING: Rule = Rule::Words(concat!(
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]"
));
const SEED_CODER: Rule = Rule::Words(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+"
));
const UFAKZEKA: Rule = Rule::Words(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+");
const EXAONE_MOE: Rule = Rule::Words(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
));
const MINICPM5: Rule = Rule::Words(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
));

const DIGIT: Rule = Rule::Matches(r"\p{N}");
const DIGITS_BY_THREE: Rule = Rule::Matches(r"\p{N}{1,3}");
const CJK: Rule = Rule::Matches("[一-龥\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+");
const BLOOM: Rule = Rule::Matches(r" ?[^(\s|.,!?…。，、।۔،)]+");
const LINES: Rule = Rule::Matches(r"[^\n]+|\n+");

/// Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee, Coptic, … letters, as DeepSeek LLM lists them.
const DEEPSEEK_LETTERS: Rule = Rule::Matches(concat!(
    "\\s?[A-Za-zµ\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}",
    "\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}",
    "\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}",
    "\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}",
    "\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}",
    "\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}",
    "\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}",
    "\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}",
    "\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}",
    "\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}",
    "\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}",
    "\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}",
    "\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]+"
));

const BYTE_LEVEL: PreTokenizer =
    PreTokenizer { rules: &[], alphabet: Alphabet::ByteLevel, ignore_merges: false, add_bos: false };

const fn words(rules: &'static [Rule]) -> PreTokenizer {
    PreTokenizer { rules, ..BYTE_LEVEL }
}

const fn whole_words(rules: &'static [Rule]) -> PreTokenizer {
    PreTokenizer { rules, ignore_merges: true, ..BYTE_LEVEL }
}

const fn spelled_in(alphabet: Alphabet, rules: &'static [Rule]) -> PreTokenizer {
    PreTokenizer { rules, alphabet, ..BYTE_LEVEL }
}

const fn bos(pre_tokenizer: PreTokenizer) -> PreTokenizer {
    PreTokenizer { add_bos: true, ..pre_tokenizer }
}

/// For files that name no rule: what llama.cpp falls back to. No model was trained with it.
pub(crate) const GENERIC: PreTokenizer =
    words(&[Rule::Matches(r"[\p{P}\$\+<=>\^~\|]+"), GPT2, Rule::Matches(r"\p{N}+"), Rule::Matches(r"[0-9][0-9][0-9]")]);

/// Every name there is.
const TABLE: &[(&[&str], PreTokenizer)] = &[
    (
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        bos(whole_words(&[LLAMA3])),
    ),
    (&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], words(&[LLAMA3])),
    (&["jais-2"], words(&[Rule::WordsAndPowersOfTwo(LLAMA3_PATTERN)])),
    (&["minicpm5"], whole_words(&[DIGITS_BY_THREE, MINICPM5])),
    (
        &["deepseek-llm"],
        words(&[
            Rule::Matches(r"[\r\n]"),
            DEEPSEEK_LETTERS,
            Rule::Matches(r"\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+"),
            Rule::Matches(r"\s+$"),
            Rule::Matches(r"[一-龥\u{800}-一가-\u{d7ff}]+"),
            Rule::Matches(r"\p{N}+"),
        ]),
    ),
    (
        &["deepseek-coder"],
        words(&[
            Rule::Matches(r"[\r\n]"),
            Rule::Matches(r"\s?\p{L}+"),
            Rule::Matches(r"\s?\p{P}+"),
            Rule::Matches(r"[一-龥\u{800}-一가-\u{d7ff}]+"),
            DIGIT,
        ]),
    ),
    (&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], words(&[DIGITS_BY_THREE, CJK, DEEPSEEK3])),
    (&["spark2_5"], words(&[DIGITS_BY_THREE, CJK, SPARK, DIGIT])),
    (
        &["youtu"],
        whole_words(&[
            Rule::Matches(
                "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
            ),
            YOUTU,
        ]),
    ),
    (&["falcon"], words(&[Rule::Matches(r"[\p{P}\$\+<=>\^~\|`]+"), GPT2, Rule::Matches(r"[0-9][0-9][0-9]")])),
    (
        &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        words(&[DIGIT, GPT2]),
    ),
    (
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        words(&[GPT2]),
    ),
    (
        &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open", "megrez", "grok-2"],
        words(&[QWEN2]),
    ),
    (&["qwen35"], words(&[QWEN35])),
    (&["poro-chat", "bloom", "gpt3-finnish"], words(&[BLOOM])),
    (&["viking"], words(&[BLOOM, DIGIT])),
    (&["tekken"], bos(whole_words(&[TEKKEN]))),
    (
        &["chameleon"],
        bos(words(&[
            Rule::Matches(r"<sentinel:[0-9]+>"),
            Rule::Matches(r"IMGIMG[A-I]{1,4}Z"),
            Rule::Matches(r"[\t\n]|    |  "),
            DIGIT,
            Rule::Matches(r"[\p{P}!-/:-@\[-`{-~]"),
            GPT2,
        ])),
    ),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], words(&[GPT4O])),
    (&["granite-embed-multi-97m"], whole_words(&[GPT4O])),
    (&["tiny_aya", "cohere2moe"], words(&[Rule::Thousands { whole_words: true }, GPT4O])),
    (&["kimi-k2"], words(&[KIMI_K2])),
    (&["superbpe"], words(&[Rule::Matches(r"\p{N}+"), Rule::Thousands { whole_words: false }])),
    (&["bailingmoe", "bailingmoe2", "llada-moe"], words(&[BAILING])),
    (&["seed-coder"], words(&[SEED_CODER])),
    (&["ufakzeka"], words(&[UFAKZEKA])),
    (
        &["afmoe"],
        words(&[
            Rule::Thousands { whole_words: false },
            Rule::Matches(concat!(
                "[一-\u{9fff}\u{3400}-\u{4dbf}\u{f900}-\u{faff}\u{3040}-\u{309f}\u{30a0}-\u{30ff}\u{ff65}-\u{ff9f}\u{2f00}-\u{2fdf}",
                "\u{e00}-\u{e7f}\u{e80}-\u{eff}\u{1780}-\u{17ff}\u{1000}-\u{109f}\u{aa60}-\u{aa7f}\u{a9e0}-\u{a9ff}\u{ac00}-\u{d7af}\u{1100}-\u{11ff}]+"
            )),
            DEEPSEEK3,
        ]),
    ),
    (&["laguna"], words(&[LINES, QWEN2])),
    (&["exaone-moe"], words(&[EXAONE_MOE])),
    (&["gemma4", "granite-embed-multi-311m"], bos(spelled_in(Alphabet::WordMarks, &[LINES]))),
    (&["sarvam-moe"], spelled_in(Alphabet::WordMarks, &[LINES])),
    (&["whitespace"], spelled_in(Alphabet::Text, &[Rule::Matches(r"\S+")])),
];

impl PreTokenizer {
    /// Looks a name up.
    ///
    /// # Errors
    /// `UnknownPreTokenizer`, with every name there is.
    pub(crate) fn named(name: &str) -> Result<PreTokenizer> {
        TABLE.iter().find(|(names, _)| names.contains(&name)).map(|&(_, found)| found).ok_or_else(|| {
            let mut known: Vec<&str> = TABLE.iter().flat_map(|(names, _)| names.iter().copied()).collect();
            known.sort_unstable();
            let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            TextError::UnknownPreTokenizer { found: name.to_owned(), known }
        })
    }
}

/// The compiled rules of one [`PreTokenizer`].
#[derive(Debug)]
pub(crate) struct Splitter {
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Regex { regex: Regex, spaces: Spaces },
    Thousands { digits: Regex, whole_words: bool },
}

/// What becomes of a run of white space that a word follows.
#[derive(Clone, Copy, Debug)]
enum Spaces {
    /// The last character goes to the word.
    LeaveOne,
    /// Likewise, and the rest is cut into powers of two.
    PowersOfTwo,
}

/// The second pattern of a `Words` regex: the white space.
const SPACE_RUN: usize = 1;

impl Splitter {
    /// Compiles the rules.
    ///
    /// # Errors
    /// Never for a rule of the table; a unit test compiles them all.
    pub(crate) fn new(pre_tokenizer: &PreTokenizer) -> Result<Splitter> {
        Ok(Splitter { steps: pre_tokenizer.rules.iter().map(Step::new).collect::<Result<_>>()? })
    }

    /// Cuts by a pattern of a file: matches, and what is between them.
    ///
    /// # Errors
    /// `Vocabulary` if it is no pattern for an automaton.
    pub(crate) fn matches(pattern: &str) -> Result<Splitter> {
        Ok(Splitter { steps: vec![Step::regex(&[pattern], Spaces::LeaveOne)?] })
    }

    /// Likewise, and white space, of which a following word keeps the last character.
    ///
    /// # Errors
    /// As [`matches`](Self::matches).
    pub(crate) fn words(pattern: &str) -> Result<Splitter> {
        Ok(Splitter { steps: vec![Step::regex(&[pattern, r"\s+"], Spaces::LeaveOne)?] })
    }

    /// The words of a text, in order; together they are the text.
    pub(crate) fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut pieces = Vec::new();
        if !text.is_empty() {
            pieces.push(0..text.len());
        }
        for step in &self.steps {
            let mut cut = Vec::with_capacity(pieces.len());
            for piece in pieces {
                let mut done = piece.start;
                step.matches(&text[piece.clone()], |found| {
                    let (start, end) = (piece.start + found.start, piece.start + found.end);
                    if done < start {
                        cut.push(done..start);
                    }
                    cut.push(start..end);
                    done = end;
                });
                if done < piece.end {
                    cut.push(done..piece.end);
                }
            }
            pieces = cut;
        }
        pieces
    }
}

impl Step {
    fn new(rule: &Rule) -> Result<Step> {
        match *rule {
            Rule::Matches(pattern) => Step::regex(&[pattern], Spaces::LeaveOne),
            Rule::Words(pattern) => Step::regex(&[pattern, r"\s+"], Spaces::LeaveOne),
            Rule::WordsAndPowersOfTwo(pattern) => Step::regex(&[pattern, r"\s+"], Spaces::PowersOfTwo),
            Rule::Thousands { whole_words } => Ok(Step::Thousands { digits: compiled(&[r"\p{Nd}+"])?, whole_words }),
        }
    }

    fn regex(patterns: &[&str], spaces: Spaces) -> Result<Step> {
        Ok(Step::Regex { regex: compiled(patterns)?, spaces })
    }

    fn matches(&self, piece: &str, mut emit: impl FnMut(Range<usize>)) {
        match self {
            Step::Regex { regex, spaces } => {
                let mut at = 0;
                while let Some(found) = regex.search(&Input::new(piece).range(at..)) {
                    let mut range = found.range();
                    if found.pattern().as_usize() == SPACE_RUN {
                        range = spaces.cut(piece, range, &mut emit);
                    }
                    if range.is_empty() {
                        // Patterns of files may match nothing: look on behind the next character.
                        let Some(c) = piece[range.end..].chars().next() else { break };
                        at = range.end + c.len_utf8();
                        continue;
                    }
                    at = range.end;
                    emit(range);
                }
            }
            Step::Thousands { digits, whole_words } => {
                for run in digits.find_iter(piece) {
                    let word_goes_on =
                        piece[run.end()..].chars().next().is_some_and(|c| c.is_alphanumeric() || c == '_');
                    if *whole_words && word_goes_on {
                        continue;
                    }
                    from_the_end_by_three(&piece[run.range()])
                        .for_each(|range| emit(run.start() + range.start..run.start() + range.end));
                }
            }
        }
    }
}

fn compiled(patterns: &[&str]) -> Result<Regex> {
    Regex::new_many(patterns).map_err(|error| TextError::vocabulary("tokenizer.ggml.pre", error.to_string()))
}

impl Spaces {
    /// Cuts a run of white space; emits all but the last piece, which it returns.
    fn cut(self, piece: &str, run: Range<usize>, emit: impl FnMut(Range<usize>)) -> Range<usize> {
        let word_follows = run.end < piece.len();
        match self {
            Spaces::LeaveOne => {
                let last = piece[run.clone()].char_indices().next_back().map_or(0, |(at, _)| at);
                if word_follows && last > 0 { run.start..run.start + last } else { run }
            }
            Spaces::PowersOfTwo => cut_into_powers_of_two(piece, run, usize::from(word_follows), emit),
        }
    }
}

/// Cuts a run into the largest powers of two that leave `keep` characters, 512 at most.
fn cut_into_powers_of_two(
    piece: &str,
    run: Range<usize>,
    keep: usize,
    mut emit: impl FnMut(Range<usize>),
) -> Range<usize> {
    let starts: Vec<usize> = piece[run.clone()].char_indices().map(|(at, _)| run.start + at).collect();
    let boundary = |n: usize| starts.get(n).copied().unwrap_or(run.end);
    let mut done = 0;
    loop {
        let left = starts.len() - done;
        let take = (0..=9).rev().map(|power| 1 << power).find(|&n| n + keep <= left).unwrap_or(1);
        let range = boundary(done)..boundary(done + take);
        done += take;
        if starts.len() <= done + keep {
            return range;
        }
        emit(range);
    }
}

/// Cuts a run of digits so that every part but the first has three.
fn from_the_end_by_three(digits: &str) -> impl Iterator<Item = Range<usize>> {
    let n_digits = digits.chars().count();
    let mut starts: Vec<usize> = digits
        .char_indices()
        .enumerate()
        .filter(|(nth, _)| *nth == 0 || (n_digits - nth).is_multiple_of(3))
        .map(|(_, (at, _))| at)
        .collect();
    starts.push(digits.len());
    (1..starts.len()).map(move |next| starts[next - 1]..starts[next])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, text: &str, expected: &[&str]) {
        let splitter = Splitter::new(&PreTokenizer::named(name).unwrap()).unwrap();
        let words: Vec<&str> = splitter.split(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(words, expected, "{name}: {text:?}");
    }

    #[test]
    fn every_rule_of_the_table_compiles_and_loses_no_text() {
        let text = "I'll pay  1234567 €\r\n\t\t(x)  한국어 日本\u{3000}語 \u{301} don't   ";
        for (names, pre_tokenizer) in TABLE.iter().chain([&(&["default"] as &[&str], GENERIC)]) {
            let splitter = Splitter::new(pre_tokenizer).unwrap();
            let words: String = splitter.split(text).into_iter().map(|range| &text[range]).collect();
            assert_eq!(words, text, "{names:?}");
        }
    }

    #[test]
    fn no_name_is_in_the_table_twice() {
        let mut names: Vec<&str> = TABLE.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        let n_names = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n_names);
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        let message = PreTokenizer::named("klingon").unwrap_err().to_string();
        assert!(message.contains("`klingon`") && message.contains("`qwen2`"), "{message}");
    }

    #[test]
    fn white_space_before_a_word_leaves_it_one_character() {
        check("gpt-2", "a   b", &["a", "  ", " b"]);
        check("gpt-2", "a \tb", &["a", " ", "\t", "b"]);
        check("gpt-2", "a\tb  ", &["a", "\t", "b", "  "]);
        check("gpt-2", "a\n\nb", &["a", "\n", "\n", "b"]);
        check("llama-bpe", "a\n\n  b", &["a", "\n\n", " ", " b"]);
        check("llama-bpe", "  \n x", &["  \n", " x"]);
    }

    #[test]
    fn digits_are_cut_as_the_name_says() {
        check("llama-bpe", "1234567", &["123", "456", "7"]);
        check("qwen2", "1234", &["1", "2", "3", "4"]);
        check("superbpe", "a 1234567", &["a ", "1", "234", "567"]);
        check("tiny_aya", "1234 5678x", &["1", "234", " ", "567", "8", "x"]);
        check("gpt-2", "x 1234", &["x", " 1234"]);
    }

    #[test]
    fn jais_cuts_white_space_into_powers_of_two() {
        check("jais-2", "a       b", &["a", "    ", "  ", " b"]);
        check("jais-2", "a       ", &["a", "    ", "  ", " "]);
        check("jais-2", "a  b", &["a", " ", " b"]);
    }

    #[test]
    fn contractions_differ_by_case_only_where_the_model_says_so() {
        check("gpt-2", "I'LL I'll", &["I", "'", "LL", " I", "'ll"]);
        check("llama-bpe", "I'LL I'll", &["I", "'LL", " I", "'ll"]);
    }
}
