//! gguf-rs-lib as a second opinion: it reads what this crate reads, and this crate reads what it writes.

use std::{fs::File, io::BufReader, path::Path};

use gguf_rs_lib::{
    format::MetadataValue,
    prelude::{GGUFBuilder, GGUFFileReader},
};
use kinfolk_weights::{Dtype, Source};

#[test]
fn both_parsers_see_the_same_file() {
    for folder in ["llama-yarn", "qwen3_moe"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder).join("model.gguf");
        let ours = Source::open(&path).unwrap();
        let mut theirs = GGUFFileReader::new(BufReader::new(File::open(&path).unwrap())).unwrap();

        let metadata = ours.gguf().unwrap();
        assert_eq!(metadata.keys().count(), theirs.metadata().len());
        for (key, value) in theirs.metadata().iter() {
            match value {
                MetadataValue::String(text) => assert_eq!(metadata.str(key).unwrap(), Some(text.as_str())),
                MetadataValue::U32(value) => assert_eq!(metadata.u64(key).unwrap(), Some(u64::from(*value))),
                MetadataValue::F32(value) => assert_eq!(metadata.f64(key).unwrap(), Some(f64::from(*value))),
                MetadataValue::Bool(value) => assert_eq!(metadata.bool(key).unwrap(), Some(*value)),
                MetadataValue::Array(array) => assert_eq!(metadata.array_len(key), Some(array.len())),
                other => panic!("{key}: {other:?} is of no type these files have"),
            }
        }
        assert_eq!(ours.tensors().count(), theirs.tensor_count());
        for info in ours.tensors() {
            let data = theirs.load_tensor_data(&info.name).unwrap().unwrap();
            assert_eq!(ours.tensor(&info.name).unwrap().bytes, data.as_slice(), "{}", info.name);
        }
    }
}

#[test]
fn a_file_that_the_library_wrote_opens() {
    let (bytes, _) = GGUFBuilder::new()
        .add_metadata("general.architecture", MetadataValue::String("llama".into()))
        .add_metadata("llama.block_count", MetadataValue::U64(2))
        .add_f32_tensor("w", vec![3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        .unwrap()
        .build_to_bytes()
        .unwrap();
    let source = Source::from_bytes("written", bytes).unwrap();
    assert_eq!(source.config().usize("num_hidden_layers").unwrap(), 2);
    let tensor = source.tensor("w").unwrap();
    assert_eq!((tensor.info.dtype, tensor.info.shape.as_slice()), (Dtype::F32, &[2, 3][..]));
    assert_eq!(tensor.to_f32().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}
