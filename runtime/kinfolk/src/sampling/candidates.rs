//! The tokens still in the running, with their logits.

/// One token in the running.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub id: u32,
    /// Its logit, finite.
    pub logit: f32,
}

/// What a [`Stage`](super::Stage) works on. Never empty: stages only narrow it down to `min_keep`.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    items: Vec<Candidate>,
    sorted: bool,
}

impl Candidates {
    /// Refills from `logits` (index = token id), leaving out whatever is not finite. Reuses the allocation.
    pub(super) fn refill(&mut self, logits: &[f32]) {
        self.items.clear();
        self.sorted = false;
        let finite = logits.iter().enumerate().filter(|(_, l)| l.is_finite());
        // Zero has one sign here: the order below would put -0 behind 0, which are equally likely.
        self.items.extend(finite.map(|(id, &logit)| Candidate { id: id as u32, logit: logit + 0.0 }));
    }

    /// The candidates, likeliest first once a stage has sorted them, in id order before.
    pub fn as_slice(&self) -> &[Candidate] {
        &self.items
    }

    /// Changes logits in place. The order counts as lost.
    pub fn logits_mut(&mut self) -> impl Iterator<Item = &mut Candidate> {
        self.sorted = false;
        self.items.iter_mut()
    }

    /// Divides every logit's distance from the likeliest by a positive number, which keeps their order. Distances, since those
    /// are at most 0: however small the divisor, the likeliest stays what it is and nothing becomes infinite.
    pub fn divide(&mut self, divisor: f32) {
        debug_assert!(divisor > 0.0);
        let Some(likeliest) = self.likeliest() else { return };
        self.items.iter_mut().for_each(|c| c.logit = ((c.logit - likeliest.logit) / divisor).max(f32::MIN));
    }

    /// Keeps the `n` likeliest, likeliest first; ties go to the lower id.
    ///
    /// # Cost
    /// Linear in the candidates plus n log n: a partial selection, never a sort of the vocabulary.
    pub fn keep_likeliest(&mut self, n: usize) {
        if !self.sorted && n < self.items.len() {
            self.items.select_nth_unstable_by(n, by_likelihood);
            self.items.truncate(n);
        }
        self.sort();
        self.items.truncate(n);
    }

    /// Orders the candidates, likeliest first, ties by lower id.
    pub fn sort(&mut self) {
        if !self.sorted {
            self.items.sort_unstable_by(by_likelihood);
            self.sorted = true;
        }
    }

    /// Keeps those for which `keep` holds, but at least the `min_keep` likeliest.
    pub fn retain_at_least(&mut self, min_keep: usize, keep: impl Fn(&Candidate) -> bool) {
        if self.items.iter().filter(|c| keep(c)).count() >= min_keep {
            self.items.retain(keep);
        } else {
            self.keep_likeliest(min_keep);
        }
    }

    /// The likeliest candidate, the lowest id on a tie.
    pub fn likeliest(&self) -> Option<Candidate> {
        self.items.iter().copied().min_by(by_likelihood)
    }

    /// Probability of each candidate, in order: the softmax over what is left, in f64.
    pub fn probabilities(&self) -> Vec<f64> {
        let max = self.likeliest().map_or(0.0, |c| f64::from(c.logit));
        let exp: Vec<f64> = self.items.iter().map(|c| (f64::from(c.logit) - max).exp()).collect();
        let sum: f64 = exp.iter().sum();
        exp.into_iter().map(|e| e / sum).collect()
    }
}

fn by_likelihood(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}
