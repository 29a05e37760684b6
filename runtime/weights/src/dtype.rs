//! Element and block types of stored tensors.

use std::fmt;

macro_rules! dtypes {
    ($( $variant:ident = $name:literal, $block_len:literal, $block_bytes:literal, $gguf:expr; )*) => {
        /// How the elements of a tensor are stored.
        ///
        /// Rows are sequences of blocks of [`block_len`](Dtype::block_len) elements in
        /// [`block_bytes`](Dtype::block_bytes) bytes; plain types are blocks of one element.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[allow(non_camel_case_types)]
        pub enum Dtype {
            $( #[doc = concat!("`", $name, "`: ", stringify!($block_len), " elements in ", stringify!($block_bytes), " bytes")] $variant, )*
        }

        impl Dtype {
            /// Every type, in declaration order.
            pub const ALL: &'static [Dtype] = &[$(Dtype::$variant),*];

            /// The name as the field writes it: `F16`, `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self { $(Dtype::$variant => $name),* }
            }

            /// Elements per block.
            pub const fn block_len(self) -> usize {
                match self { $(Dtype::$variant => $block_len),* }
            }

            /// Bytes per block.
            pub const fn block_bytes(self) -> usize {
                match self { $(Dtype::$variant => $block_bytes),* }
            }

            /// The number GGUF files use for this type, if they can hold it.
            pub const fn gguf_id(self) -> Option<u32> {
                match self { $(Dtype::$variant => $gguf),* }
            }

            /// The type with this GGUF number.
            pub fn from_gguf_id(id: u32) -> Option<Dtype> {
                Self::ALL.iter().copied().find(|d| d.gguf_id() == Some(id))
            }
        }
    };
}

dtypes! {
    F32 = "F32", 1, 4, Some(0);
    F16 = "F16", 1, 2, Some(1);
    BF16 = "BF16", 1, 2, Some(30);
    F64 = "F64", 1, 8, Some(28);
    I8 = "I8", 1, 1, Some(24);
    I16 = "I16", 1, 2, Some(25);
    I32 = "I32", 1, 4, Some(26);
    I64 = "I64", 1, 8, Some(27);
    U8 = "U8", 1, 1, None;
    U16 = "U16", 1, 2, None;
    U32 = "U32", 1, 4, None;
    U64 = "U64", 1, 8, None;
    Bool = "BOOL", 1, 1, None;
    F8_E4M3 = "F8_E4M3", 1, 1, None;
    F8_E5M2 = "F8_E5M2", 1, 1, None;
    F8_E8M0 = "F8_E8M0", 1, 1, None;
    Q4_0 = "Q4_0", 32, 18, Some(2);
    Q4_1 = "Q4_1", 32, 20, Some(3);
    Q5_0 = "Q5_0", 32, 22, Some(6);
    Q5_1 = "Q5_1", 32, 24, Some(7);
    Q8_0 = "Q8_0", 32, 34, Some(8);
    Q8_1 = "Q8_1", 32, 36, Some(9);
    Q2_K = "Q2_K", 256, 84, Some(10);
    Q3_K = "Q3_K", 256, 110, Some(11);
    Q4_K = "Q4_K", 256, 144, Some(12);
    Q5_K = "Q5_K", 256, 176, Some(13);
    Q6_K = "Q6_K", 256, 210, Some(14);
    Q8_K = "Q8_K", 256, 292, Some(15);
    IQ2_XXS = "IQ2_XXS", 256, 66, Some(16);
    IQ2_XS = "IQ2_XS", 256, 74, Some(17);
    IQ3_XXS = "IQ3_XXS", 256, 98, Some(18);
    IQ1_S = "IQ1_S", 256, 50, Some(19);
    IQ4_NL = "IQ4_NL", 32, 18, Some(20);
    IQ3_S = "IQ3_S", 256, 110, Some(21);
    IQ2_S = "IQ2_S", 256, 82, Some(22);
    IQ4_XS = "IQ4_XS", 256, 136, Some(23);
    IQ1_M = "IQ1_M", 256, 56, Some(29);
    TQ1_0 = "TQ1_0", 256, 54, Some(34);
    TQ2_0 = "TQ2_0", 256, 66, Some(35);
    MXFP4 = "MXFP4", 32, 17, Some(39);
    NVFP4 = "NVFP4", 64, 36, Some(40);
    Q1_0 = "Q1_0", 128, 18, Some(41);
    Q2_0 = "Q2_0", 64, 18, Some(42);
}

impl Dtype {
    /// Bytes of `n_elements` in whole blocks; `None` if they do not fill whole blocks or the product overflows.
    pub fn bytes_for(self, n_elements: usize) -> Option<usize> {
        if !n_elements.is_multiple_of(self.block_len()) {
            return None;
        }
        (n_elements / self.block_len()).checked_mul(self.block_bytes())
    }
}

impl Dtype {
    /// The type that a GGUF file's name says most of its tensors have: `Q4_K` of `tiny-Q4_K_M.gguf`. Only a hint.
    pub fn from_file_name(name: &str) -> Option<Dtype> {
        let name = name.to_ascii_uppercase();
        let types = Self::ALL.iter().filter(|dtype| dtype.gguf_id().is_some()).map(|&dtype| (dtype.name(), dtype));
        let mentioned = types.chain(FILE_TYPES.iter().copied()).filter_map(|(words, dtype)| {
            let starts = name.match_indices(words).map(|(at, _)| at);
            // A type within another's name, such as Q4_K in IQ4_K, begins in the middle of a word.
            let at =
                starts.filter(|&at| !name.as_bytes()[..at].last().is_some_and(u8::is_ascii_alphanumeric)).last()?;
            Some((at, words.len(), dtype))
        });
        mentioned.max_by_key(|(at, len, _)| (*at, *len)).map(|(_, _, dtype)| dtype)
    }
}

/// Mixtures that are named after no type of theirs, with the type most of their tensors have.
const FILE_TYPES: &[(&str, Dtype)] = &[
    ("FP16", Dtype::F16),
    ("FP32", Dtype::F32),
    ("IQ2_M", Dtype::IQ2_S),
    ("IQ3_M", Dtype::IQ3_S),
    ("IQ3_XS", Dtype::IQ3_S),
];

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gguf_numbers_lead_back_to_their_type() {
        for &dtype in Dtype::ALL {
            if let Some(id) = dtype.gguf_id() {
                assert_eq!(Dtype::from_gguf_id(id), Some(dtype));
            }
        }
        for retired in [4, 5, 31, 32, 33, 36, 37, 38, 43, u32::MAX] {
            assert_eq!(Dtype::from_gguf_id(retired), None);
        }
    }

    #[test]
    fn file_names_hint_at_their_type() {
        let cases = [
            ("SmolLM2-135M-Instruct.Q4_1.gguf", Some(Dtype::Q4_1)),
            ("gemma-3-270m-q4_k_m.gguf", Some(Dtype::Q4_K)),
            ("m-UD-Q5_K_XL-00001-of-00002.gguf", Some(Dtype::Q5_K)),
            ("m-BF16.gguf", Some(Dtype::BF16)),
            ("m.f16.gguf", Some(Dtype::F16)),
            ("m-fp16.gguf", Some(Dtype::F16)),
            ("m-IQ4_NL.gguf", Some(Dtype::IQ4_NL)),
            ("m-IQ3_M.gguf", Some(Dtype::IQ3_S)),
            ("m-IQ3_XXS.gguf", Some(Dtype::IQ3_XXS)),
            ("m-MXFP4_MOE.gguf", Some(Dtype::MXFP4)),
            ("q8_0-distilled-Q2_K.gguf", Some(Dtype::Q2_K)),
            ("XQ8_0.gguf", None),
            ("model.gguf", None),
            ("", None),
            ("é-Q8_0.gguf", Some(Dtype::Q8_0)),
        ];
        for (name, dtype) in cases {
            assert_eq!(Dtype::from_file_name(name), dtype, "{name}");
        }
    }

    #[test]
    fn bytes_are_counted_in_whole_blocks() {
        assert_eq!(Dtype::Q4_0.bytes_for(64), Some(36));
        assert_eq!(Dtype::Q4_0.bytes_for(33), None);
        assert_eq!(Dtype::F32.bytes_for(0), Some(0));
        assert_eq!(Dtype::F64.bytes_for(usize::MAX), None);
    }
}
