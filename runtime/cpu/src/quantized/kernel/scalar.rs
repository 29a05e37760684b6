//! The definition, in plain Rust.

use super::*;

pub fn accumulate(form: Form, tiles: &[&[Panel]], x: &[&[Group]], sums: &mut [Sums]) {
    for (x, sums) in x.iter().zip(sums) {
        for (tile, sums) in tiles.iter().zip(sums) {
            for (panel, x) in tile.iter().zip(*x) {
                group(form, panel, x, sums);
            }
        }
    }
}

fn group(form: Form, panel: &Panel, x: &Group, sums: &mut Lanes) {
    let offset = i32::from(form.offset());
    let mut products = [[0i32; ROWS]; 2];
    for (k, codes) in panel.codes.iter().enumerate() {
        let products = &mut products[k / 4];
        for (i, code) in codes.iter().enumerate() {
            let x = x.codes.iter().fold(0, |sum, plane| 256 * sum + i32::from(plane[4 * k + i % 4]));
            products[i / 4] += i32::from(*code) * x;
        }
    }
    for (row, sum) in sums.iter_mut().enumerate() {
        let of_half = |half: usize| products[half][row] - offset * x.sums[half];
        let product = if let Form::OffsetOfHalves(_) = form {
            let first = of_half(0) as f32 * panel.scaling.scales[0][row];
            (of_half(1) as f32).mul_add(panel.scaling.scales[1][row], first)
        } else {
            (of_half(0) + of_half(1)) as f32 * panel.scaling.scales[0][row]
        };
        *sum = product.mul_add(x.scale, *sum);
        if form == Form::Minimum {
            *sum = panel.scaling.minima[row].mul_add(x.scaled_sum, *sum);
        }
    }
}
