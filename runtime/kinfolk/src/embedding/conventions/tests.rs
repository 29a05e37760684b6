//! Checkpoints' own words, and files that lie.

use kinfolk_decoder::Source;
use tempfile::TempDir;

use super::{ConventionsError, EmbeddingConventions, MAX_FILE_BYTES};
use crate::{
    embedding::{EmbedError, Prompt},
    fixture::{LLAMA, path},
};

const MODULES: &str = r#"[
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
]"#;
const LAST: &str =
    r#"{"word_embedding_dimension": 48, "pooling_mode_cls_token": false, "pooling_mode_lasttoken": true}"#;

/// A checkpoint with these files beside its weights.
fn checkpoint(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(path(LLAMA).join(name), directory.path().join(name)).unwrap();
    }
    for (name, text) in files {
        let file = directory.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    directory
}

fn read(files: &[(&str, &str)]) -> Result<EmbeddingConventions, ConventionsError> {
    EmbeddingConventions::from_source(&Source::open(checkpoint(files).path()).unwrap())
}

#[track_caller]
fn refused(files: &[(&str, &str)], parts: &[&str]) {
    let text = read(files).unwrap_err().to_string();
    assert!(text.len() < 500, "{} bytes of message", text.len());
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in: {text}");
}

#[test]
fn a_checkpoint_that_says_nothing_gives_the_last_token_at_length_one() {
    let found = read(&[]).unwrap();
    assert_eq!(found, EmbeddingConventions::default());
    assert_eq!((found.pooling.to_string(), found.normalize, found.include_prompt), ("last".to_owned(), true, true));
}

#[test]
fn each_way_to_write_the_pooling_is_read() {
    // Flags in any order mean the library's order; lists mean their own.
    for (file, expected) in [
        (LAST, "last"),
        (r#"{"pooling_mode_cls_token": true}"#, "cls"),
        (r#"{"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": false}"#, "mean"),
        (r#"{"pooling_mode_max_tokens": true}"#, "max"),
        (r#"{"pooling_mode_mean_sqrt_len_tokens": true}"#, "mean_sqrt_len"),
        (r#"{"pooling_mode_weightedmean_tokens": true}"#, "weightedmean"),
        (
            r#"{"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true}"#,
            "max+mean+last",
        ),
        (r#"{"pooling_mode_mean_tokens": false}"#, "mean"),
        ("{}", "mean"),
        (r#"{"embedding_dimension": 48, "pooling_mode": "lasttoken"}"#, "last"),
        (r#"{"pooling_mode": ["mean", "cls"], "pooling_mode_max_tokens": true}"#, "mean+cls"),
    ] {
        let found = read(&[("modules.json", MODULES), ("1_Pooling/config.json", file)]).unwrap();
        assert_eq!(found.pooling.to_string(), expected, "{file}");
        assert!(found.include_prompt && found.normalize);
    }
    let file = r#"{"pooling_mode_mean_tokens": true, "include_prompt": false}"#;
    assert!(!read(&[("modules.json", MODULES), ("1_Pooling/config.json", file)]).unwrap().include_prompt);
}

#[test]
fn vectors_are_normalised_where_a_module_does_it_and_only_there() {
    let without = r#"[{"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
        {"path": "pool/", "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"}]"#;
    let found = read(&[("modules.json", without), ("pool/config.json", LAST)]).unwrap();
    assert!(!found.normalize);
    assert_eq!(found.pooling.to_string(), "last");
}

#[test]
fn the_longest_text_is_the_transformer_s_or_else_the_tokenizer_s() {
    let of = |transformer: Option<&str>, tokenizer: &str| {
        let mut files =
            vec![("modules.json", MODULES), ("1_Pooling/config.json", LAST), ("tokenizer_config.json", tokenizer)];
        files.extend(transformer.map(|text| ("sentence_bert_config.json", text)));
        read(&files).unwrap().max_seq_length
    };
    let limits = r#"{"model_max_length": 512}"#;
    assert_eq!(of(Some(r#"{"max_seq_length": 128, "do_lower_case": false}"#), limits), Some(128));
    assert_eq!(of(Some(r#"{"max_seq_length": null}"#), limits), Some(512));
    assert_eq!(of(None, limits), Some(512));
    // What transformers writes where nobody set a limit.
    assert_eq!(of(None, r#"{"model_max_length": 1000000000000000019884624838656}"#), None);
    assert_eq!(of(None, "no json"), None);
}

#[test]
fn prompts_are_found_by_name_and_by_what_they_are_for() {
    let file =
        r#"{"prompts": {"query": "find: ", "passage": "text: ", "blank": null}, "default_prompt_name": "query"}"#;
    let found = read(&[("config_sentence_transformers.json", file)]).unwrap();
    let text = |prompt| found.prompt_text(&prompt).map(str::to_owned);
    for (prompt, expected) in [
        (Prompt::Default, "find: "),
        (Prompt::None, ""),
        (Prompt::Query, "find: "),
        (Prompt::Document, "text: "),
        (Prompt::Named("blank".to_owned()), ""),
        (Prompt::Literal("as typed ".to_owned()), "as typed "),
    ] {
        assert_eq!(text(prompt.clone()).unwrap(), expected, "{prompt:?}");
    }
    let known = ["blank", "passage", "query"].map(str::to_owned).to_vec();
    let unknown = EmbedError::UnknownPrompt { asked: "haiku".to_owned(), known };
    assert_eq!(text(Prompt::Named("haiku".to_owned())), Err(unknown));
    let mut many = EmbeddingConventions::default();
    many.prompts.extend((0..1000).map(|i| (format!("{i:0>2000}"), String::new())));
    let error = many.prompt_text(&Prompt::Named("haiku".to_owned())).unwrap_err().to_string();
    assert!(error.len() < 2000 && error.ends_with("and 990 more], found `haiku`"), "{error}");
    let none = EmbeddingConventions::default();
    for prompt in [Prompt::Default, Prompt::Query, Prompt::Document] {
        assert_eq!(none.prompt_text(&prompt).unwrap(), "");
    }
}

#[test]
fn what_would_change_the_vector_and_is_not_there_is_refused_by_name() {
    let modules = |class: &str| MODULES.replace("sentence_transformers.models.Normalize", class);
    for class in [
        "sentence_transformers.models.Dense",
        "sentence_transformers.models.Pooling",
        "their_code.Normalize",
        "Normalize",
    ] {
        refused(&[("modules.json", &modules(class)), ("1_Pooling/config.json", LAST)], &["modules.json", class]);
    }
    let custom = MODULES.replace("sentence_transformers.models.Transformer", "jina.Transformer");
    refused(&[("modules.json", &custom)], &["`jina.Transformer`"]);
    for (name, text, part) in [
        ("1_Pooling/config.json", r#"{"pooling_mode_attention": true}"#, "`pooling_mode_attention`"),
        ("1_Pooling/config.json", r#"{"pooling_mode": "median"}"#, "`median`"),
        ("1_Pooling/config.json", r#"{"pooling_mode": ["mean", "mean"]}"#, "`mean`"),
        ("sentence_bert_config.json", r#"{"do_lower_case": true}"#, "`do_lower_case`"),
        ("sentence_bert_config.json", r#"{"transformer_task": "fill-mask"}"#, "`fill-mask`"),
        ("2_Normalize/config.json", r#"{"module_input_name": "token_embeddings"}"#, "`token_embeddings`"),
        ("config_sentence_transformers.json", r#"{"model_type": "SparseEncoder"}"#, "`SparseEncoder`"),
    ] {
        let mut files = vec![("modules.json", MODULES), ("1_Pooling/config.json", LAST)];
        files.retain(|(other, _)| *other != name);
        refused(&[files, vec![(name, text)]].concat(), &[name, part, "is not supported"]);
    }
}

#[test]
fn damaged_files_are_named_with_what_was_expected() {
    let long = " ".repeat(MAX_FILE_BYTES + 1);
    let deep = "[".repeat(100_000);
    let wordy = format!("{{\"pooling_mode\": \"{}\"}}", "x".repeat(100_000));
    let far = MODULES.replace("1_Pooling", &"x/".repeat(100_000));
    for (name, text, part) in [
        ("modules.json", "", "expected JSON"),
        ("modules.json", "{}", "expected JSON"),
        ("modules.json", "[]", "`Transformer` and `Pooling`"),
        ("modules.json", deep.as_str(), "expected JSON"),
        ("modules.json", long.as_str(), "at most 1048576 bytes"),
        ("modules.json", r#"[{"path": "", "type": 3}]"#, "expected JSON"),
        ("modules.json", far.as_str(), "paths of at most 255 bytes"),
        ("modules.json", wordy.as_str(), "expected JSON"),
        ("1_Pooling/config.json", wordy.as_str(), "pooling `xxx"),
        ("config_sentence_transformers.json", wordy.replace("pooling_mode", "prompts").as_str(), "expected JSON"),
        ("1_Pooling/config.json", "[]", "expected JSON"),
        ("1_Pooling/config.json", r#"{"word_embedding_dimension": 49}"#, "expected the hidden size 48, found `49`"),
        ("1_Pooling/config.json", r#"{"pooling_mode": 3}"#, "`pooling_mode`: expected a name"),
        ("1_Pooling/config.json", r#"{"pooling_mode": []}"#, "pooling ``"),
        (
            "1_Pooling/config.json",
            r#"{"pooling_mode_cls_token": "yes"}"#,
            "`pooling_mode_cls_token`: expected a boolean",
        ),
        ("1_Pooling/config.json", r#"{"include_prompt": 0}"#, "`include_prompt`: expected a boolean"),
        ("sentence_bert_config.json", r#"{"max_seq_length": 0}"#, "expected at least 1, found 0"),
        ("sentence_bert_config.json", r#"{"max_seq_length": -1}"#, "expected JSON"),
        ("config_sentence_transformers.json", r#"{"prompts": {"q": 3}}"#, "expected JSON"),
        (
            "config_sentence_transformers.json",
            r#"{"default_prompt_name": "q"}"#,
            "expected a name of `prompts`, found `q`",
        ),
    ] {
        let mut files = vec![("modules.json", MODULES), ("1_Pooling/config.json", LAST)];
        files.retain(|(other, _)| *other != name);
        refused(&[files, vec![(name, text)]].concat(), &[name, part]);
    }
    refused(&[("modules.json", MODULES)], &["1_Pooling/config.json", "found none"]);
}

#[test]
fn a_module_cannot_be_kept_outside_the_model_s_directory() {
    for outside in ["../1_Pooling", "/etc", "a/../../b", "a//b", "c:", "a\\\\b"] {
        let modules = MODULES.replace("\"1_Pooling\"", &format!("\"{outside}\""));
        refused(&[("modules.json", &modules), ("1_Pooling/config.json", LAST)], &["in a folder there"]);
    }
}

/// A GGUF file of no tensors, whose metadata has this `llama.pooling_type`.
fn gguf(pooling_type: Option<u32>) -> Source {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = [b"GGUF".to_vec(), 3u32.to_le_bytes().to_vec(), 0u64.to_le_bytes().to_vec()].concat();
    bytes.extend((1 + u64::from(pooling_type.is_some())).to_le_bytes());
    bytes.extend([text("general.architecture"), 8u32.to_le_bytes().to_vec(), text("llama")].concat());
    if let Some(kind) = pooling_type {
        bytes.extend([text("llama.pooling_type"), 4u32.to_le_bytes().to_vec(), kind.to_le_bytes().to_vec()].concat());
    }
    Source::from_bytes("tiny.gguf", bytes).unwrap()
}

#[test]
fn a_gguf_file_says_how_to_pool_by_number() {
    for (kind, expected) in [(None, "last"), (Some(0), "last"), (Some(1), "mean"), (Some(2), "cls"), (Some(3), "last")]
    {
        let found = EmbeddingConventions::from_source(&gguf(kind)).unwrap();
        assert_eq!((found.pooling.to_string().as_str(), found.normalize), (expected, true), "{kind:?}");
    }
    for (kind, part) in [(4, "`rank`"), (5, "pooling type 5")] {
        let text = EmbeddingConventions::from_source(&gguf(Some(kind))).unwrap_err().to_string();
        assert!(text.contains("tiny.gguf") && text.contains("`llama.pooling_type`") && text.contains(part), "{text}");
    }
}
