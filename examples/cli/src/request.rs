//! The request that was typed, beside its prompt.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use kinfolk::{
    decoder::Cancel,
    sampling::{Grammar, GrammarCompiler},
    session::{Overflow, Request, Session},
    speculation::{DraftModel, PromptLookup, Speculation},
};

use crate::{
    args::{LoadArgs, ReplyArgs},
    open,
};

/// Makes requests as typed, one after the other.
pub struct Requests<'a> {
    args: &'a ReplyArgs,
    grammar: Option<Grammar>,
    compiler: Option<GrammarCompiler>,
    draft: Option<Arc<Mutex<DraftModel>>>,
}

impl<'a> Requests<'a> {
    /// Reads the files that were named.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn new(args: &'a ReplyArgs) -> Result<Requests<'a>> {
        let grammar = match (&args.json_schema, &args.regex, &args.grammar) {
            (Some(path), _, _) => Some(Grammar::json_schema(&open::json_file(path)?)),
            (_, Some(pattern), _) => Some(Grammar::regex(pattern)),
            (_, _, Some(path)) => Some(Grammar::lark(&open::text_file(path)?)),
            _ => None,
        };
        Ok(Requests { args, grammar, compiler: None, draft: None })
    }

    /// Makes ready what all requests to `session` share. A draft model is loaded as `load` says of the other.
    ///
    /// # Errors
    /// A draft model that cannot be loaded or has another vocabulary; a model that cannot check guesses.
    pub fn prepare(&mut self, session: &Session, load: &LoadArgs, cancel: &Cancel) -> Result<()> {
        if self.grammar.is_some() {
            self.compiler = Some(session.grammar_compiler()?);
        }
        if let Some(model) = &self.args.draft_model {
            let load = LoadArgs { threads: load.threads, executor: load.executor.clone(), ..LoadArgs::of(model) };
            let draft = open::builder(&load, cancel)?.session().context("the draft model cannot be loaded")?;
            let own = draft.shared_text();
            let draft = DraftModel::new(draft.into_runner(), &own.tokenizer, &session.text().tokenizer)?;
            self.draft = Some(Arc::new(Mutex::new(draft)));
        }
        let guesses = self.args.speculate || self.draft.is_some();
        let checks = session.runner().capabilities().decodes_several;
        ensure!(checks || !guesses, "this model cannot check guesses in one pass");
        Ok(())
    }

    /// A request. Once `cancel`led it ends where it is.
    ///
    /// # Errors
    /// A grammar that is none.
    pub fn next(&self, cancel: &Cancel) -> Result<Request> {
        let args = self.args;
        let mut request = Request::default();
        request.cancel = cancel.clone();
        request.max_tokens = args.max_tokens;
        request.stop = args.stop.clone();
        request.ignore_eos = args.ignore_eos;
        request.overflow = args.shift.map_or(Overflow::Refuse, |keep| Overflow::Shift { keep });
        if let (Some(compiler), Some(grammar)) = (&self.compiler, &self.grammar) {
            request.constraint = Some(compiler.compile(grammar).context("the reply cannot be constrained")?);
        }
        request.speculation = self.speculation().map(|guesses| guesses.with_max_tokens(args.draft_tokens));
        request.deadline = args.timeout.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        Ok(request)
    }

    fn speculation(&self) -> Option<Speculation> {
        match &self.draft {
            Some(draft) => Some(Speculation::new(Arc::clone(draft))),
            None => self.args.speculate.then(|| Speculation::new(PromptLookup::default())),
        }
    }
}
