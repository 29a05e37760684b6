//! Random vocabularies of every kind make tokens of a text and text of tokens, the same way whole and in a stream.

#![no_main]

use kinfolk_text::{EncodeOptions, GgufVocabulary};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

#[derive(Arbitrary, Debug)]
struct Input {
    kind: u8,
    pre: Option<u8>,
    tokens: Vec<(String, u8, f32)>,
    merges: Option<Vec<(u8, u8)>>,
    has_types: bool,
    has_scores: bool,
    bos: Option<u8>,
    eos: Option<u8>,
    unknown: Option<u8>,
    sep: Option<u8>,
    switches: [Option<bool>; 7],
    charsmap: Option<Vec<u8>>,
    phi3: bool,
    text: String,
    ids: Vec<u8>,
}

const KINDS: [&str; 7] = ["gpt2", "llama", "gemma4", "bert", "t5", "rwkv", "no_vocab"];
const PRES: [&str; 8] =
    ["gpt-2", "llama-bpe", "jais-2", "superbpe", "tiny_aya", "whitespace", "sarvam-moe", "deepseek-llm"];

fuzz_target!(|input: Input| {
    let n_tokens = input.tokens.len();
    let spelled = |nth: u8| input.tokens.get(usize::from(nth) % n_tokens.max(1)).map_or("", |(text, ..)| text.as_str());
    let merge = |&(left, right): &(u8, u8)| format!("{} {}", spelled(left), spelled(right));
    let [add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces, lowercase, strip_accents] = input.switches;
    let vocabulary = GgufVocabulary {
        kind: KINDS[usize::from(input.kind) % KINDS.len()].to_owned(),
        pre: input.pre.map(|nth| PRES[usize::from(nth) % PRES.len()].to_owned()),
        merges: input.merges.as_ref().map(|merges| merges.iter().map(merge).collect()),
        types: input.has_types.then(|| input.tokens.iter().map(|(_, kind, _)| i64::from(*kind % 8)).collect()),
        scores: input.has_scores.then(|| input.tokens.iter().map(|(_, _, score)| *score).collect()),
        tokens: input.tokens.iter().map(|(text, ..)| text.clone()).collect(),
        bos: input.bos.map(u64::from),
        eos: input.eos.map(u64::from),
        unknown: input.unknown.map(u64::from),
        sep: input.sep.map(u64::from),
        add_bos,
        add_eos,
        add_sep,
        add_space_prefix,
        remove_extra_whitespaces,
        lowercase,
        strip_accents,
        charsmap: input.charsmap,
        model_name: input.phi3.then(|| "phi-3".to_owned()),
        ..GgufVocabulary::default()
    };
    let Ok(tokenizer) = vocabulary.build() else { return };
    let mut ids: Vec<u32> = input.ids.into_iter().map(u32::from).collect();
    for parse_special in [false, true] {
        let options = EncodeOptions { add_special: true, parse_special };
        let Ok(encoded) = tokenizer.encode(&input.text, options) else { continue };
        let tokens = tokenizer.encode_with_offsets(&input.text, options).expect("it was encoded before");
        assert!(tokens.iter().map(|token| token.id).eq(encoded.iter().copied()));
        assert!(tokens.iter().all(|token| token.range.start <= token.range.end && token.range.end <= input.text.len()));
        ids.extend(encoded);
    }
    for skip_special in [false, true] {
        let mut detokenizer = tokenizer.detokenizer(skip_special);
        let mut streamed: String = ids.iter().map(|&id| detokenizer.push(id)).collect();
        streamed.push_str(&detokenizer.finish());
        assert_eq!(streamed, tokenizer.decode(&ids, skip_special));
    }
});
