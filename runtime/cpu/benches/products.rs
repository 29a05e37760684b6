//! What products with each type of weights reach, on all cores: GB/s of weights with one token, weights coming from memory, and G multiply-adds/s
//! with many.
//!
//! `cargo bench -p kinfolk-cpu --features testing --bench products [-- PART OF A NAME]`

#![expect(missing_docs, reason = "of what a macro defines")]

use std::{hint::black_box, thread, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kinfolk_cpu::Product;
use kinfolk_weights::Dtype;

const TYPES: [Dtype; 11] = [
    Dtype::Q4_0,
    Dtype::Q4_1,
    Dtype::Q5_0,
    Dtype::Q5_1,
    Dtype::Q8_0,
    Dtype::Q4_K,
    Dtype::Q5_K,
    Dtype::Q6_K,
    Dtype::BF16,
    Dtype::F16,
    Dtype::F32,
];

const N_COLS: usize = 1024;

/// Rows of a projection, and of one that caches do not hold.
const N_ROWS: usize = 3072;
const LARGE_BYTES: usize = 400 << 20;

fn product(dtype: Dtype, n_rows: usize) -> Product {
    let n = dtype.bytes_for(n_rows * N_COLS).expect("columns fill blocks");
    // As floats of 16 and 32 bits, and as the scales of blocks, 0.01 or so.
    let bytes: Vec<u8> = (0..n).map(|i| if i % 2 == 1 { 0x3c } else { (i % 251) as u8 & 0x7f }).collect();
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    Product::new(dtype, n_rows, N_COLS, &bytes, n_threads).expect("enough memory").expect("a type with a kernel")
}

fn activations(n_tokens: usize) -> Vec<f32> {
    (0..n_tokens * N_COLS).map(|i| (i as f32 * 0.713).sin()).collect()
}

fn one_token(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("1 token");
    for dtype in TYPES {
        let row_bytes = dtype.bytes_for(N_COLS).expect("columns fill blocks");
        group.throughput(Throughput::BytesDecimal((LARGE_BYTES / row_bytes * row_bytes) as u64));
        group.bench_function(dtype.to_string(), |bencher| {
            let (product, x) = (product(dtype, LARGE_BYTES / row_bytes), activations(1));
            bencher.iter(|| product.of(black_box(&x)));
        });
    }
    group.finish();
}

fn many_tokens(criterion: &mut Criterion) {
    for n_tokens in [8, 48, 512] {
        let mut group = criterion.benchmark_group(format!("{n_tokens} tokens"));
        group.throughput(Throughput::Elements((n_tokens * N_ROWS * N_COLS) as u64));
        for dtype in TYPES {
            group.bench_function(dtype.to_string(), |bencher| {
                let (product, x) = (product(dtype, N_ROWS), activations(n_tokens));
                bencher.iter(|| product.of(black_box(&x)));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = products;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots();
    targets = one_token, many_tokens
}
criterion_main!(products);
