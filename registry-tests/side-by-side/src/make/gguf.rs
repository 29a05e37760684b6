//! The header of a GGUF file, version 3.

use llama_cpp_sys_2::{ggml_row_size, ggml_type};

/// A tensor of the file, a matrix or a vector.
pub struct Tensor {
    pub name: String,
    pub columns: usize,
    /// `None` for a vector.
    pub rows: Option<usize>,
    pub dtype: ggml_type,
}

/// A value of the metadata.
pub enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    I32s(Vec<i32>),
    Texts(Vec<String>),
}

/// Everything before the tensors' bytes.
pub struct Header {
    pub bytes: Vec<u8>,
}

const ALIGNMENT: usize = 32;

/// Bytes that `n` take in the file.
pub fn padded(n: usize) -> usize {
    n.next_multiple_of(ALIGNMENT)
}

impl Tensor {
    pub fn row_bytes(&self) -> usize {
        // SAFETY: computes with numbers alone; the type is one of ggml's.
        unsafe { ggml_row_size(self.dtype, self.columns as i64) }
    }

    pub fn n_bytes(&self) -> usize {
        self.row_bytes() * self.rows.unwrap_or(1)
    }
}

impl Header {
    pub fn new(metadata: &[(&str, Value)], tensors: &[Tensor]) -> Header {
        let mut header = Header { bytes: b"GGUF".to_vec() };
        header.u32(3);
        header.u64(tensors.len());
        header.u64(metadata.len());
        for (key, value) in metadata {
            header.text(key);
            header.value(value);
        }
        let mut offset = 0;
        for tensor in tensors {
            header.text(&tensor.name);
            header.u32(1 + u32::from(tensor.rows.is_some()));
            header.u64(tensor.columns);
            tensor.rows.iter().for_each(|rows| header.u64(*rows));
            header.u32(tensor.dtype);
            header.u64(offset);
            offset += padded(tensor.n_bytes());
        }
        header.bytes.resize(padded(header.bytes.len()), 0);
        header
    }

    fn u32(&mut self, n: u32) {
        self.bytes.extend(n.to_le_bytes());
    }

    fn u64(&mut self, n: usize) {
        self.bytes.extend((n as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u64(text.len());
        self.bytes.extend(text.as_bytes());
    }

    fn value(&mut self, value: &Value) {
        const I32: u32 = 5;
        const TEXT: u32 = 8;
        const ARRAY: u32 = 9;
        match value {
            Value::U32(n) => {
                self.u32(4);
                self.u32(*n);
            }
            Value::F32(x) => {
                self.u32(6);
                self.bytes.extend(x.to_le_bytes());
            }
            Value::Bool(is) => {
                self.u32(7);
                self.bytes.push(u8::from(*is));
            }
            Value::Text(text) => {
                self.u32(TEXT);
                self.text(text);
            }
            Value::I32s(numbers) => {
                self.u32(ARRAY);
                self.u32(I32);
                self.u64(numbers.len());
                self.bytes.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
            }
            Value::Texts(texts) => {
                self.u32(ARRAY);
                self.u32(TEXT);
                self.u64(texts.len());
                texts.iter().for_each(|text| self.text(text));
            }
        }
    }
}
