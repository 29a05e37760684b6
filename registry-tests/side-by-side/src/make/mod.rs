//! Files of random weights in the shape of a real model: they run as fast as that model and need no download.

mod gguf;
mod mixture;
mod shape;
mod weights;

use std::{
    env,
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::ValueEnum;

pub use mixture::Mixture;
pub use shape::Shape;

use crate::args::MakeArgs;
use gguf::Header;

pub fn run(args: &MakeArgs) -> Result<()> {
    let folder = args.to.clone().map_or_else(default_folder, Ok)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let types = if args.types.is_empty() { Mixture::value_variants() } else { &args.types };
    for &mixture in types {
        let path = folder.join(format!("{}-{mixture}.gguf", args.shape));
        if !path.exists() {
            // Under another name until it is whole.
            let unfinished = path.with_extension("unfinished");
            write(&unfinished, args.shape, mixture).with_context(|| format!("cannot write `{}`", path.display()))?;
            fs::rename(&unfinished, &path)?;
        }
        println!("{}", path.display());
    }
    Ok(())
}

fn default_folder() -> Result<PathBuf> {
    let home = env::var_os("HOME").context("expected a folder after --to, or HOME; found neither")?;
    Ok(Path::new(&home).join(".cache/kinfolk-test-models/made"))
}

fn write(path: &Path, shape: Shape, mixture: Mixture) -> Result<()> {
    let tensors = shape.tensors(mixture);
    let header = Header::new(&shape.metadata(mixture), &tensors);
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&header.bytes)?;
    for (i, tensor) in tensors.iter().enumerate() {
        weights::write(&mut file, tensor, i as u64)?;
        let n_bytes = tensor.n_bytes();
        file.write_all(&vec![0; gguf::padded(n_bytes) - n_bytes])?;
    }
    file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    Ok(())
}
