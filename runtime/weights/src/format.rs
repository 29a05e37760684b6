//! The file formats a [`Source`](crate::Source) can be read from.

use std::{fmt, path::Path};

/// How weights are laid out on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightFormat {
    /// One GGUF file, or the numbered shards of one.
    Gguf,
    /// Safetensors, single or sharded by an index, with `config.json` beside.
    Safetensors,
}

impl WeightFormat {
    /// The format a file name suggests. Only a hint: [`Source::open`](crate::Source::open) looks at the bytes first.
    pub fn from_path(path: impl AsRef<Path>) -> Option<WeightFormat> {
        let name = path.as_ref().file_name()?.to_str()?.to_ascii_lowercase();
        if name.ends_with(".gguf") {
            Some(WeightFormat::Gguf)
        } else if name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") {
            Some(WeightFormat::Safetensors)
        } else {
            None
        }
    }

    /// Reads a format name as a person writes it: `gguf`, `safetensors`.
    pub fn parse(name: &str) -> Option<WeightFormat> {
        match name.trim().to_ascii_lowercase().as_str() {
            "gguf" => Some(WeightFormat::Gguf),
            "safetensors" | "st" => Some(WeightFormat::Safetensors),
            _ => None,
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WeightFormat::Gguf => "gguf",
            WeightFormat::Safetensors => "safetensors",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_suggest_a_format() {
        let cases = [
            ("dir/Model.Q4_K_M.GGUF", Some(WeightFormat::Gguf)),
            ("model-00001-of-00002.safetensors", Some(WeightFormat::Safetensors)),
            ("model.safetensors.index.json", Some(WeightFormat::Safetensors)),
            ("gguf", None),
            ("model.gguf/readme", None),
            ("config.json", None),
            ("", None),
        ];
        for (path, format) in cases {
            assert_eq!(WeightFormat::from_path(path), format, "{path}");
        }
    }

    #[test]
    fn a_format_is_read_as_it_is_written() {
        for format in [WeightFormat::Gguf, WeightFormat::Safetensors] {
            assert_eq!(WeightFormat::parse(&format.to_string()), Some(format));
            assert_eq!(WeightFormat::parse(&format!(" {} ", format.to_string().to_uppercase())), Some(format));
        }
        assert_eq!(WeightFormat::parse("onnx"), None);
    }
}
