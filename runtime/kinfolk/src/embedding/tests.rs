//! Whole models with the files of sentence-transformers beside them.

use std::{path::Path, sync::Arc};

use kinfolk_decoder::{Cancel, LoadRole, Model, Sequence, Source, Want};
use kinfolk_text::Text;
use tempfile::TempDir;

use super::{EmbedError, EmbedRequest, Embedder, EmbeddingConventions, PoolingMode, Prompt, Truncation};
use crate::{
    LmRunner, RunnerError,
    fixture::{load, request},
};

/// Width of the model's hidden states.
const WIDTH: usize = 192;
const TEXTS: [&str; 4] = ["Once upon a time", "a", "The fox had a lantern, and the lantern had a light.", ""];

/// The files of a small model that speaks English, its tokenizer's config changed by `edit`, with `files` beside it.
fn checkpoint(edit: impl FnOnce(String) -> String, files: &[(&str, &str)]) -> TempDir {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../registry-tests/models/tinytales");
    let directory = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(model.join(name), directory.path().join(name)).unwrap();
    }
    let config = edit(std::fs::read_to_string(model.join("tokenizer_config.json")).unwrap());
    std::fs::write(directory.path().join("tokenizer_config.json"), config).unwrap();
    for (name, text) in files {
        let file = directory.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    directory
}

fn open(directory: &Path) -> (Embedder, Arc<dyn Model>) {
    let source = Source::open(directory).unwrap();
    let conventions = EmbeddingConventions::from_source(&source).unwrap();
    let text = Text::from_source(&source, &[]).unwrap();
    let runner = load(request(source, |options| options.role = LoadRole::Embedding)).unwrap();
    let model = runner.model().unwrap();
    (Embedder::new(runner, text, conventions), model)
}

fn embedder() -> (Embedder, Arc<dyn Model>) {
    open(checkpoint(|config| config, &[]).path())
}

/// Adds the model's EOS to every text, as Qwen3-Embedding does.
fn with_eos(config: String) -> String {
    config.replace("\"add_eos_token\": false", "\"add_eos_token\": true")
}

fn modules(pooling: &str, normalize: bool) -> Vec<(&'static str, String)> {
    let normalize = if normalize { r#", {"path": "2", "type": "sentence_transformers.models.Normalize"}"# } else { "" };
    let modules = format!(
        r#"[{{"path": "", "type": "sentence_transformers.models.Transformer"}},
            {{"path": "1", "type": "sentence_transformers.models.Pooling"}}{normalize}]"#
    );
    vec![("modules.json", modules), ("1/config.json", pooling.to_owned())]
}

fn with_modules(pooling: &str, normalize: bool, prompts: &str) -> (Embedder, Arc<dyn Model>) {
    let mut files = modules(pooling, normalize);
    files.push(("config_sentence_transformers.json", prompts.to_owned()));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    open(checkpoint(|config| config, &files).path())
}

/// The model's hidden state at every token.
fn hidden(model: &dyn Model, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut cache = model.new_cache();
    let sequence = Sequence { cache: &mut *cache, tokens, want: Want::Hidden };
    let output = model.forward(&mut [sequence], &Cancel::new()).unwrap().remove(0);
    output.rows().map(<[f32]>::to_vec).collect()
}

fn tokens(embedder: &Embedder, text: &str) -> Vec<u32> {
    embedder
        .text
        .tokenizer
        .encode(text, kinfolk_text::EncodeOptions { add_special: true, parse_special: false })
        .unwrap()
}

fn mean(rows: &[Vec<f32>]) -> Vec<f32> {
    (0..WIDTH).map(|i| rows.iter().map(|row| row[i]).sum::<f32>() / rows.len() as f32).collect()
}

fn at_length_one(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.iter().map(|x| x / length).collect()
}

#[track_caller]
fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    let far = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far <= 1e-5, "{far}");
}

fn embed(embedder: &mut Embedder, text: &str, choose: impl FnOnce(&mut EmbedRequest)) -> Vec<f32> {
    let mut request = EmbedRequest::default();
    choose(&mut request);
    embedder.embed(&[text], &request).unwrap().vectors.remove(0)
}

#[track_caller]
fn refused(embedder: &mut Embedder, texts: &[&str], request: &EmbedRequest) -> EmbedError {
    embedder.embed(texts, request).unwrap_err().downcast().unwrap()
}

/// Overwrites a tensor of `model.safetensors` with ones, which make NaN of every float type.
fn damage(directory: &Path, tensor: &str) {
    let path = directory.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: serde_json::Value = serde_json::from_slice(&bytes[8..header]).unwrap();
    let offset = |i: usize| header + tensors[tensor]["data_offsets"][i].as_u64().unwrap() as usize;
    bytes[offset(0)..offset(1)].fill(0xFF);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn hidden_states_that_are_no_numbers_are_refused() {
    let directory = checkpoint(|config| config, &[]);
    damage(directory.path(), "model.norm.weight");
    let (mut embedder, _) = open(directory.path());
    let error = refused(&mut embedder, &TEXTS, &EmbedRequest::default());
    assert_eq!(error, EmbedError::NotANumber { text: 0 });
}

#[test]
fn without_further_word_it_is_the_last_hidden_state_at_length_one() {
    let (mut embedder, model) = embedder();
    let found = embedder.embed(&TEXTS, &EmbedRequest::default()).unwrap();
    for ((text, vector), n_tokens) in TEXTS.iter().zip(&found.vectors).zip(&found.n_tokens) {
        let tokens = tokens(&embedder, text);
        assert_eq!(*n_tokens, tokens.len());
        close(vector, &at_length_one(hidden(&*model, &tokens).last().unwrap()));
        let mut runner = crate::DecoderRunner::new(
            "test",
            Arc::clone(&model),
            kinfolk_weights::Fingerprint::from_bytes([0; 32]),
            Cancel::new(),
        );
        assert_eq!(*vector, runner.embed(&tokens).unwrap(), "the runner's own `embed` is the same code");
    }
    assert_eq!(found.truncated, []);
}

#[test]
fn the_checkpoint_decides_pooling_and_normalisation_and_the_host_overrides_both() {
    let (mut embedder, model) = with_modules(r#"{"pooling_mode_mean_tokens": true}"#, false, "{}");
    let rows = hidden(&*model, &tokens(&embedder, TEXTS[0]));
    close(&embed(&mut embedder, TEXTS[0], |_| {}), &mean(&rows));
    close(&embed(&mut embedder, TEXTS[0], |r| r.normalize = Some(true)), &at_length_one(&mean(&rows)));
    embedder.set_pooling(PoolingMode::Cls.into()).unwrap();
    close(&embed(&mut embedder, TEXTS[0], |_| {}), &rows[0]);
    embedder.set_pooling("last+mean".parse().unwrap()).unwrap();
    close(&embed(&mut embedder, TEXTS[0], |_| {}), &[rows.last().unwrap().clone(), mean(&rows)].concat());

    let (mut embedder, model) = with_modules(r#"{"pooling_mode_mean_tokens": true}"#, true, "{}");
    let rows = hidden(&*model, &tokens(&embedder, TEXTS[0]));
    close(&embed(&mut embedder, TEXTS[0], |_| {}), &at_length_one(&mean(&rows)));
    close(&embed(&mut embedder, TEXTS[0], |r| r.normalize = Some(false)), &mean(&rows));
}

#[test]
fn a_vector_does_not_depend_on_the_batch_it_is_made_in() {
    let (mut embedder, _) = with_modules(r#"{"pooling_mode": ["mean", "lasttoken", "max"]}"#, true, "{}");
    let long = "The fox had a lantern. ".repeat(20);
    let texts = [TEXTS.as_slice(), &[&long], &TEXTS].concat();
    let alone: Vec<Vec<f32>> = texts.iter().map(|text| embed(&mut embedder, text, |_| {})).collect();
    for batch_tokens in [0, 1, 7, 64, 512, 100_000] {
        let request = EmbedRequest { batch_tokens, ..EmbedRequest::default() };
        let together = embedder.embed(&texts, &request).unwrap();
        together.vectors.iter().zip(&alone).for_each(|(a, b)| close(a, b));
    }
    assert_eq!(embedder.embed(&[], &EmbedRequest::default()).unwrap().vectors.len(), 0);
}

#[test]
fn a_prompt_stands_before_the_text_and_is_pooled_unless_the_checkpoint_forbids() {
    let prompts = r#"{"prompts": {"query": "find: ", "document": ""}, "default_prompt_name": null}"#;
    let pooling = r#"{"pooling_mode_mean_tokens": true}"#;
    let (mut embedder, model) = with_modules(pooling, false, prompts);
    let plain = embed(&mut embedder, "a fox", |_| {});
    let rows = hidden(&*model, &tokens(&embedder, "find: a fox"));
    close(&embed(&mut embedder, "a fox", |r| r.prompt = Prompt::Query), &mean(&rows));
    close(&embed(&mut embedder, "a fox", |r| r.prompt = Prompt::Literal("find: ".to_owned())), &mean(&rows));
    assert_eq!(embed(&mut embedder, "a fox", |r| r.prompt = Prompt::Document), plain);

    let pooling = r#"{"pooling_mode_mean_tokens": true, "include_prompt": false}"#;
    let (mut embedder, _) = with_modules(pooling, false, prompts);
    // BOS and the prompt's own tokens.
    let n_left_out = tokens(&embedder, "find: ").len();
    close(&embed(&mut embedder, "a fox", |r| r.prompt = Prompt::Query), &mean(&rows[n_left_out..]));
    assert_eq!(embed(&mut embedder, "a fox", |_| {}), plain, "without a prompt BOS is pooled too");
    let request = EmbedRequest { prompt: Prompt::Query, ..EmbedRequest::default() };
    assert_eq!(refused(&mut embedder, &["a fox", ""], &request), EmbedError::NoTokens { text: 1 });
}

#[test]
fn the_tokenizer_s_own_tokens_stand_around_the_text_and_the_last_is_pooled() {
    // N1: the token that is pooled is the one the checkpoint was trained to pool.
    let (mut embedder, model) = open(checkpoint(with_eos, &[]).path());
    let plain = tokens(&embedder, "a fox");
    assert_eq!((plain.first(), plain.last()), (Some(&0), Some(&2)));
    close(&embed(&mut embedder, "a fox", |_| {}), &at_length_one(hidden(&*model, &plain).last().unwrap()));
    // A control token that was typed is text.
    let typed = tokens(&embedder, "a <|im_end|>");
    assert!(typed.iter().filter(|&&token| token == 2).count() == 1, "{typed:?}");
    assert_eq!(embedder.embed(&["a <|im_end|>"], &EmbedRequest::default()).unwrap().n_tokens, [typed.len()]);
}

#[test]
fn a_token_that_the_tokenizer_s_post_processor_adds_is_there_and_pooled() {
    // As in Qwen3-Embedding: the token at the end is neither BOS nor EOS by the tokenizer's config.
    let bare = |config: String| config.replace("\"add_bos_token\": true", "\"add_bos_token\": false");
    let directory = checkpoint(bare, &[]);
    let path = directory.path().join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let end = serde_json::json!({ "SpecialToken": { "id": "<|im_start|>", "type_id": 0 } });
    let text = serde_json::json!({ "Sequence": { "id": "A", "type_id": 0 } });
    tokenizer["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing", "single": [text, end], "pair": [text, end],
        "special_tokens": { "<|im_start|>": { "id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"] } }
    });
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    let (mut embedder, model) = open(directory.path());
    let tokens = [embedder.encode("a fox").unwrap(), vec![1]].concat();
    close(&embed(&mut embedder, "a fox", |_| {}), &at_length_one(hidden(&*model, &tokens).last().unwrap()));
    close(&embed(&mut embedder, "", |_| {}), &at_length_one(&hidden(&*model, &[1])[0]));
}

#[test]
fn a_text_that_is_too_long_is_refused_with_both_numbers_or_cut_on_request() {
    // N4.
    let (mut embedder, model) = open(checkpoint(with_eos, &[]).path());
    assert_eq!(embedder.max_tokens(), 1024);
    let text = "The fox had a lantern. ".repeat(3);
    let all = tokens(&embedder, &text);
    embedder.set_max_seq_length(Some(all.len()));
    assert_eq!(embedder.embed(&[&text], &EmbedRequest::default()).unwrap().truncated, []);
    embedder.set_max_seq_length(Some(10));
    let found = all.len();
    let error = refused(&mut embedder, &["a", &text], &EmbedRequest::default());
    assert_eq!(error, EmbedError::TooLong { text: 1, limit: 10, found });
    assert_eq!(error.to_string(), format!("text 1: expected at most 10 tokens, found {found}"));

    let cut = EmbedRequest { truncate: true, ..EmbedRequest::default() };
    let embeddings = embedder.embed(&["a", &text], &cut).unwrap();
    assert_eq!(embeddings.truncated, [Truncation { text: 1, n_cut_tokens: found - 10 }]);
    assert_eq!(embeddings.n_tokens, [3, 10]);
    let kept = [&all[..9], &all[found - 1..]].concat();
    close(&embeddings.vectors[1], &at_length_one(hidden(&*model, &kept).last().unwrap()));

    // Nothing of the text would be left.
    embedder.set_max_seq_length(Some(2));
    assert!(matches!(refused(&mut embedder, &["a"], &cut), EmbedError::TooLong { limit: 2, found: 3, .. }));
    embedder.set_max_seq_length(Some(5000));
    assert_eq!(embedder.max_tokens(), 1024, "the context is the limit all the same");
}

#[test]
fn the_checkpoint_s_own_limit_holds() {
    let mut files = modules(r#"{"pooling_mode_lasttoken": true}"#, true);
    files.push(("sentence_bert_config.json", r#"{"max_seq_length": 4}"#.to_owned()));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let (mut embedder, _) = open(checkpoint(|config| config, &files).path());
    let error = refused(&mut embedder, &["Once upon a time"], &EmbedRequest::default());
    assert_eq!(error, EmbedError::TooLong { text: 0, limit: 4, found: 5 });
}

#[test]
fn fewer_dimensions_are_the_first_ones_and_normalised_again() {
    let (mut embedder, _) = embedder();
    let whole = embed(&mut embedder, TEXTS[0], |_| {});
    close(&embed(&mut embedder, TEXTS[0], |r| r.dimensions = Some(32)), &at_length_one(&whole[..32]));
    close(&embed(&mut embedder, TEXTS[0], |r| r.dimensions = Some(WIDTH)), &whole);
    assert_eq!(embedder.dimensions(), Some(WIDTH));
    let raw = embed(&mut embedder, TEXTS[0], |r| r.normalize = Some(false));
    let choose = |r: &mut EmbedRequest| (r.dimensions, r.normalize) = (Some(32), Some(false));
    assert_eq!(embed(&mut embedder, TEXTS[0], choose), raw[..32]);
    for asked in [0, WIDTH + 1, usize::MAX] {
        let request = EmbedRequest { dimensions: Some(asked), ..EmbedRequest::default() };
        assert_eq!(refused(&mut embedder, &["a"], &request), EmbedError::Dimensions { asked, width: WIDTH });
    }
}

#[test]
fn a_text_without_tokens_is_refused() {
    let bare = |config: String| config.replace("\"add_bos_token\": true", "\"add_bos_token\": false");
    let (mut embedder, _) = open(checkpoint(bare, &[]).path());
    assert_eq!(refused(&mut embedder, &["a", ""], &EmbedRequest::default()), EmbedError::NoTokens { text: 1 });
}

#[test]
fn texts_that_are_tokens_already_are_taken_as_they_are() {
    let prompts = r#"{"prompts": {"query": "find: "}, "default_prompt_name": "query"}"#;
    let (mut embedder, _) = with_modules(r#"{"pooling_mode_mean_tokens": true}"#, true, prompts);
    let whole = tokens(&embedder, "find: a fox");
    let found = embedder.embed_tokens(&[&whole], &EmbedRequest::default()).unwrap();
    assert_eq!(found, embedder.embed(&["a fox"], &EmbedRequest::default()).unwrap());
    embedder.set_max_seq_length(Some(3));
    let error = embedder.embed_tokens(&[&[1], &whole], &EmbedRequest::default()).unwrap_err();
    let found = whole.len();
    assert_eq!(error.downcast_ref(), Some(&EmbedError::TooLong { text: 1, limit: 3, found }));
    let cut = EmbedRequest { truncate: true, ..EmbedRequest::default() };
    let found = embedder.embed_tokens(&[&[], &whole], &cut).unwrap_err();
    assert_eq!(found.downcast_ref(), Some(&EmbedError::NoTokens { text: 0 }));
    let found = embedder.embed_tokens(&[&whole], &cut).unwrap();
    assert_eq!(found.truncated, [Truncation { text: 0, n_cut_tokens: whole.len() - 3 }]);
    assert_eq!(found.vectors, embedder.embed_tokens(&[&whole[..3]], &cut).unwrap().vectors);
    let error = embedder.embed_tokens(&[&[9999]], &EmbedRequest::default()).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(RunnerError::TokenOutOfRange { token: 9999, .. })), "{error}");
}

#[test]
fn a_cancellation_is_typed() {
    let (mut embedder, _) = embedder();
    let request = EmbedRequest::default();
    request.cancel.cancel();
    let error = embedder.embed(&TEXTS, &request).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&RunnerError::Cancelled));
}

/// A runner with no shared model, whose vector is the first two tokens.
struct PoolsByItself;

impl LmRunner for PoolsByItself {
    fn family(&self) -> &str {
        "stub"
    }
    fn vocab_size(&self) -> usize {
        1024
    }
    fn context_length(&self) -> usize {
        6
    }
    fn predict_logits(&mut self, _: &[u32]) -> anyhow::Result<Vec<f32>> {
        Ok(vec![0.0; 1024])
    }
    fn embed(&mut self, tokens: &[u32]) -> anyhow::Result<Vec<f32>> {
        Ok(vec![tokens[0] as f32, tokens[1] as f32])
    }
}

#[test]
fn a_runner_that_pools_by_itself_is_not_told_how() {
    let text = || Text::from_source(&Source::open(checkpoint(|config| config, &[]).path()).unwrap(), &[]).unwrap();
    let mut conventions = EmbeddingConventions { include_prompt: false, ..EmbeddingConventions::default() };
    conventions.prompts.insert("query".to_owned(), "find: ".to_owned());
    let mut embedder = Embedder::new(Box::new(PoolsByItself), text(), conventions);
    assert_eq!(embedder.max_tokens(), 6);
    let second = tokens(&embedder, "Once upon a time")[1] as f32;
    close(&embed(&mut embedder, "Once upon a time", |r| r.normalize = Some(false)), &[0.0, second]);
    close(&embed(&mut embedder, "Once upon a time", |_| {}), &[0.0, 1.0]);
    assert_eq!(embedder.dimensions(), None);
    let wide = EmbedRequest { dimensions: Some(3), ..EmbedRequest::default() };
    assert_eq!(refused(&mut embedder, &["a"], &wide), EmbedError::Dimensions { asked: 3, width: 2 });
    let asked = "mean".to_owned();
    let refusal = EmbedError::RunnerPools { family: "stub".to_owned(), asked };
    assert_eq!(embedder.set_pooling(PoolingMode::Mean.into()), Err(refusal));
    let query = EmbedRequest { prompt: Prompt::Query, ..EmbedRequest::default() };
    assert!(matches!(refused(&mut embedder, &["a"], &query), EmbedError::RunnerPools { .. }));
    let request = EmbedRequest::default();
    request.cancel.cancel();
    let error = embedder.embed(&["a"], &request).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&RunnerError::Cancelled));
}
