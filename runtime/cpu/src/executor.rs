//! The executor's entry in the set of executors.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use kinfolk_decoder::{
    Decoder, EXECUTORS, Executor, LoadContext, LoadError, MemoryNeed, Model, Peaks, Refusal, Source, Weights, Workload,
};
use linkme::distributed_slice;

use crate::{memory::memory, model::CpuModel, peaks, supports::supports, team::Team};

/// Runs every described decoder on the processor's cores.
#[derive(Debug)]
pub struct CpuExecutor {
    /// The team models share, for as long as one of them is loaded: one team per process and thread count.
    team: Mutex<Weak<Team>>,
}

/// More threads than any machine has cores: a larger number is a slip, and would exhaust the system.
const MAX_THREADS: usize = 1024;

/// The one instance.
pub static CPU: CpuExecutor = CpuExecutor { team: Mutex::new(Weak::new()) };

#[distributed_slice(EXECUTORS)]
static ENTRY: &dyn Executor = &CPU;

impl CpuExecutor {
    fn team(&self, n_threads: usize) -> Arc<Team> {
        if n_threads == 1 {
            // No threads to share, and models that each have one need not share memory either.
            return Arc::new(Team::new(1));
        }
        let mut current = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        match current.upgrade() {
            Some(team) if team.n_threads() == n_threads => team,
            _ => {
                let team = Arc::new(Team::new(n_threads));
                *current = Arc::downgrade(&team);
                team
            }
        }
    }
}

fn n_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

impl Executor for CpuExecutor {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn devices(&self) -> Vec<String> {
        vec!["cpu".to_owned()]
    }

    fn supports(&self, decoder: &Decoder, _source: &Source) -> Result<(), Refusal> {
        supports(decoder)
    }

    fn memory(&self, decoder: &Decoder, weights: &Weights<'_>, workload: &Workload) -> MemoryNeed {
        memory(decoder, weights, workload, workload.threads.unwrap_or_else(n_cores))
    }

    fn load(
        &self,
        decoder: Arc<Decoder>,
        source: &Source,
        context: &LoadContext<'_>,
    ) -> Result<Arc<dyn Model>, LoadError> {
        supports(&decoder)?;
        let n_threads = context.threads.unwrap_or_else(n_cores);
        if !(1..=MAX_THREADS).contains(&n_threads) {
            return Err(LoadError::ThreadCount { max: MAX_THREADS, asked: n_threads });
        }
        let team = self.team(n_threads);
        Ok(Arc::new(CpuModel::load(decoder, source, context, team)?))
    }

    fn peaks(&self, threads: usize) -> Option<Peaks> {
        (1..=MAX_THREADS).contains(&threads).then(|| peaks::measure(threads))
    }
}
