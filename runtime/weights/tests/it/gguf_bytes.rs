//! A writer of GGUF files that can lie: counts, types, offsets and bytes are whatever a test says.

/// Value types as GGUF numbers them.
pub mod value_type {
    pub const U8: u32 = 0;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
}

/// Tensor types as GGUF numbers them.
pub mod tensor_type {
    pub const F32: u32 = 0;
    pub const Q4_0: u32 = 2;
}

/// A file in the making.
#[derive(Clone)]
pub struct GgufBytes {
    version: u32,
    alignment: usize,
    keys: Vec<u8>,
    n_keys: u64,
    tensors: Vec<u8>,
    n_tensors: u64,
    data: Vec<u8>,
}

impl GgufBytes {
    /// An empty file, version 3.
    pub fn new() -> GgufBytes {
        GgufBytes { version: 3, alignment: 32, keys: vec![], n_keys: 0, tensors: vec![], n_tensors: 0, data: vec![] }
    }

    /// A tiny llama: the keys every loader asks for, and one tensor of 4 f32.
    pub fn llama() -> GgufBytes {
        GgufBytes::new()
            .text("general.architecture", "llama")
            .u32("llama.block_count", 2)
            .u32("llama.context_length", 128)
            .u32("llama.embedding_length", 4)
            .tensor("token_embd.weight", &[1, 4], tensor_type::F32, &[0; 16])
    }

    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Pads tensors to this and says so in the metadata.
    pub fn alignment(mut self, alignment: usize) -> Self {
        self.alignment = alignment;
        self.u32("general.alignment", alignment as u32)
    }

    /// A value of any type from raw bytes.
    pub fn raw(mut self, key: &str, value_type: u32, value: &[u8]) -> Self {
        self.keys.extend(string(key));
        self.keys.extend(value_type.to_le_bytes());
        self.keys.extend(value);
        self.n_keys += 1;
        self
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.raw(key, value_type::U32, &value.to_le_bytes())
    }

    pub fn f32(self, key: &str, value: f32) -> Self {
        self.raw(key, value_type::F32, &value.to_le_bytes())
    }

    pub fn text(self, key: &str, value: &str) -> Self {
        self.raw(key, value_type::STRING, &string(value))
    }

    /// An array of `n` elements of one type from their bytes.
    pub fn array(self, key: &str, element: u32, n: u64, elements: &[u8]) -> Self {
        let mut value = element.to_le_bytes().to_vec();
        value.extend(n.to_le_bytes());
        value.extend(elements);
        self.raw(key, value_type::ARRAY, &value)
    }

    pub fn texts<S: AsRef<str>>(self, key: &str, texts: &[S]) -> Self {
        let elements: Vec<u8> = texts.iter().flat_map(|text| string(text.as_ref())).collect();
        self.array(key, value_type::STRING, texts.len() as u64, &elements)
    }

    /// A tensor behind the ones before it. `shape` is outermost first.
    pub fn tensor(mut self, name: &str, shape: &[u64], type_id: u32, bytes: &[u8]) -> Self {
        let offset = self.data.len() as u64;
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(self.alignment), 0);
        self.descriptor(name, shape, type_id, offset)
    }

    /// A tensor that is said to lie at `offset`.
    pub fn descriptor(mut self, name: &str, shape: &[u64], type_id: u32, offset: u64) -> Self {
        self.tensors.extend(string(name));
        self.tensors.extend((shape.len() as u32).to_le_bytes());
        self.tensors.extend(shape.iter().rev().flat_map(|size| size.to_le_bytes()));
        self.tensors.extend(type_id.to_le_bytes());
        self.tensors.extend(offset.to_le_bytes());
        self.n_tensors += 1;
        self
    }

    /// The file.
    pub fn build(&self) -> Vec<u8> {
        self.build_with_counts(self.n_tensors, self.n_keys)
    }

    /// The file with counts of tensors and keys that need not be true.
    pub fn build_with_counts(&self, n_tensors: u64, n_keys: u64) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend(n_tensors.to_le_bytes());
        file.extend(n_keys.to_le_bytes());
        file.extend(&self.keys);
        file.extend(&self.tensors);
        file.resize(file.len().next_multiple_of(self.alignment), 0);
        file.extend(&self.data);
        file
    }
}

/// A string as GGUF writes it.
pub fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}
