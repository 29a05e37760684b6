//! Safetensors.
