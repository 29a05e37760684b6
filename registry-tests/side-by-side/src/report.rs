//! What a comparison found, as a table or as JSON.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::args::CompareArgs;

#[derive(Serialize)]
pub struct Report {
    pub model: PathBuf,
    pub file_bytes: u64,
    pub threads: usize,
    pub repetitions: usize,
    /// What each engine says about itself.
    pub about: Vec<String>,
    /// Names, in the order of [`Measurement::engines`].
    pub engines: Vec<String>,
    pub measurements: Vec<Measurement>,
}

#[derive(Serialize)]
pub struct Measurement {
    pub name: String,
    pub quantity: Quantity,
    pub engines: Vec<Found>,
    /// The first engine against each: times as fast, or times as small.
    pub ratios: Vec<Option<f64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    TokensPerSecond,
    Seconds,
    Bytes,
}

/// What one engine reached.
#[derive(Serialize)]
pub struct Found {
    pub median: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub values: Vec<f64>,
    pub failure: Option<String>,
}

impl Report {
    pub fn new(args: &CompareArgs, engines: &[String]) -> Report {
        Report {
            model: args.model.clone(),
            file_bytes: args.model.metadata().map_or(0, |metadata| metadata.len()),
            threads: args.engines.threads,
            repetitions: args.repetitions,
            about: Vec::new(),
            engines: engines.to_vec(),
            measurements: Vec::new(),
        }
    }

    pub fn add(&mut self, measurement: Measurement) {
        self.measurements.push(measurement);
    }

    pub fn print(&self, as_json: bool) -> Result<()> {
        if as_json {
            println!("{}", serde_json::to_string_pretty(self)?);
        } else {
            print!("{}", self.in_words());
        }
        Ok(())
    }

    fn in_words(&self) -> String {
        let about: String = self.about.iter().map(|line| format!("{line}\n")).collect();
        let megabytes = self.file_bytes as f64 / 1e6;
        let (model, threads, n) = (self.model.display(), self.threads, self.repetitions);
        let mut text = format!(
            "{about}\n{model}, {megabytes:.0} MB, {threads} threads, medians of {n} turns [least–most], each after a rest and an uncounted run of the same\n\n"
        );
        let ratio = |name: &String| format!("{} ÷ {name}", self.engines[0]);
        let heading = std::iter::once(String::new()).chain(self.engines.iter().cloned());
        let mut rows = vec![heading.chain(self.engines.iter().skip(1).map(ratio)).collect::<Vec<_>>()];
        rows.extend(self.measurements.iter().map(Measurement::row));
        text += &aligned(&rows);
        for measurement in &self.measurements {
            for (found, engine) in measurement.engines.iter().zip(&self.engines) {
                if let Some(failure) = &found.failure {
                    text += &format!("\n{}, {engine}: {failure}", measurement.name);
                }
            }
        }
        text.trim_end().to_owned() + "\n"
    }
}

impl Measurement {
    pub fn new(name: String, quantity: Quantity, values: Vec<Vec<f64>>, failures: Vec<Option<String>>) -> Measurement {
        let found = |(values, failure)| Found::new(values, failure);
        let engines: Vec<Found> = values.into_iter().zip(failures).map(found).collect();
        let first = engines.first().and_then(|found| found.median);
        let ratio = |found: &Found| match quantity {
            Quantity::TokensPerSecond => Some(first? / found.median?),
            Quantity::Seconds | Quantity::Bytes => Some(found.median? / first?),
        };
        let ratios = engines.iter().map(ratio).collect();
        Measurement { name, quantity, engines, ratios }
    }

    fn row(&self) -> Vec<String> {
        let unit = self.quantity.unit();
        let found = self.engines.iter().map(|found| found.in_words(self.quantity));
        let ratios =
            self.ratios.iter().skip(1).map(|ratio| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")));
        std::iter::once(format!("{}, {unit}", self.name)).chain(found).chain(ratios).collect()
    }
}

impl Quantity {
    fn unit(self) -> &'static str {
        match self {
            Quantity::TokensPerSecond => "tok/s",
            Quantity::Seconds => "s",
            Quantity::Bytes => "MB",
        }
    }

    fn number(self, value: f64) -> String {
        match self {
            Quantity::TokensPerSecond => format!("{value:.1}"),
            Quantity::Seconds => format!("{value:.3}"),
            Quantity::Bytes => format!("{:.0}", value / 1e6),
        }
    }
}

impl Found {
    fn new(mut values: Vec<f64>, failure: Option<String>) -> Found {
        let by_turn = values.clone();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => None,
            n if n % 2 == 0 => Some((values[middle - 1] + values[middle]) / 2.0),
            _ => Some(values[middle]),
        };
        let (min, max) = (values.first().copied(), values.last().copied());
        Found { median, min, max, values: by_turn, failure }
    }

    fn in_words(&self, quantity: Quantity) -> String {
        match (self.median, self.min, self.max) {
            (Some(median), Some(min), Some(max)) => {
                let [median, min, max] = [median, min, max].map(|value| quantity.number(value));
                format!("{median} [{min}–{max}]")
            }
            _ => "–".to_owned(),
        }
    }
}

/// Rows with cells of the same width per column, the first to the left and the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| match i {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_one_is_better_whatever_is_measured() {
        let measured =
            |quantity| Measurement::new("m".to_owned(), quantity, vec![vec![4.0], vec![2.0]], vec![None, None]);
        assert_eq!(measured(Quantity::TokensPerSecond).ratios, [Some(1.0), Some(2.0)]);
        assert_eq!(measured(Quantity::Seconds).ratios, [Some(1.0), Some(0.5)]);
        assert_eq!(measured(Quantity::Bytes).ratios, [Some(1.0), Some(0.5)]);
    }

    #[test]
    fn the_median_is_that_of_sorted_turns_which_stay_in_order() {
        let found = Found::new(vec![3.0, 1.0, 2.0], None);
        assert_eq!((found.median, found.min, found.max), (Some(2.0), Some(1.0), Some(3.0)));
        assert_eq!(found.values, [3.0, 1.0, 2.0]);
        assert_eq!(Found::new(vec![4.0, 1.0], None).median, Some(2.5));
        assert_eq!(Found::new(Vec::new(), Some("why".to_owned())).median, None);
    }
}
