//! Every kind of decoder that the families describe conforms: windows, experts, soft caps, norms on both sides.

use std::sync::Arc;

use kinfolk::{LoadOptions, LoadRequest, Registry, conformance, decoder::Source};
use kinfolk_registry_tests::in_repository;

#[track_caller]
fn check(fixture: &str) {
    let source = Arc::new(Source::open(in_repository("fixtures").join(fixture)).unwrap());
    let family = Registry::linked().claim(&source).unwrap().family;
    conformance::check(|| (family.load)(LoadRequest::new(Arc::clone(&source), LoadOptions::default())).unwrap());
}

#[test]
fn llama_conforms() {
    check("llama");
}

#[test]
fn mistral_with_a_window_on_every_layer_conforms() {
    check("mistral");
}

#[test]
fn ministral3_with_growing_queries_conforms() {
    check("mistral3");
}

#[test]
fn qwen2_with_shared_experts_conforms() {
    check("qwen2_moe");
}

#[test]
fn qwen3_with_experts_conforms() {
    check("qwen3_moe");
}

#[test]
fn gemma2_with_soft_caps_conforms() {
    check("gemma2");
}

#[test]
fn gemma3_with_local_and_global_layers_conforms() {
    check("gemma3");
}
