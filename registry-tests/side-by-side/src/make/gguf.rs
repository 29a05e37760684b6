//! The header of a GGUF file, version 3.

use llama_cpp_sys_2::{ggml_row_size, ggml_type};

/// A tensor of the file: a vector, a matrix or a matrix for each expert.
pub struct Tensor {
    pub name: String,
    pub columns: usize,
    /// `None` for a vector.
    pub rows: Option<usize>,
    /// Of how many experts, if it is of them.
    pub experts: Option<usize>,
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

    /// Rows of all experts together.
    pub fn n_rows(&self) -> usize {
        self.rows.unwrap_or(1) * self.experts.unwrap_or(1)
    }

    pub fn n_bytes(&self) -> usize {
        self.row_bytes() * self.n_rows()
    }
}

impl Header {
    pub fn new(metadata: &[(String, Value)], tensors: &[Tensor]) -> Header {
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
            let sizes = [Some(tensor.columns), tensor.rows, tensor.experts];
            header.u32(sizes.iter().flatten().count() as u32);
            sizes.iter().flatten().for_each(|size| header.u64(*size));
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
