//! The request that was typed, beside its prompt.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kinfolk::{
    decoder::Cancel,
    sampling::{Constraint, Grammar},
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
        Ok(Requests { args, grammar })
    }

    /// A request to `session`. Once `cancel`led it ends where it is.
    ///
    /// # Errors
    /// A grammar that is none; a draft model that cannot be loaded or has another vocabulary.
    pub fn next(&self, session: &Session, cancel: &Cancel) -> Result<Request> {
        let args = self.args;
        let mut request = Request::default();
        request.cancel = cancel.clone();
        request.max_tokens = args.max_tokens;
        request.stop = args.stop.clone();
        request.ignore_eos = args.ignore_eos;
        request.overflow = args.shift.map_or(Overflow::Refuse, |keep| Overflow::Shift { keep });
        request.constraint = self.constraint(session)?;
        request.speculation = self.speculation(session, cancel)?;
        // From here on, not from before a draft model was loaded.
        request.deadline = args.timeout.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        Ok(request)
    }

    fn constraint(&self, session: &Session) -> Result<Option<Box<dyn Constraint>>> {
        let Some(grammar) = &self.grammar else { return Ok(None) };
        let constraint = session.grammar_compiler().and_then(|compiler| compiler.compile(grammar));
        Ok(Some(constraint.context("the reply cannot be constrained")?))
    }

    fn speculation(&self, session: &Session, cancel: &Cancel) -> Result<Option<Speculation>> {
        let speculation = match &self.args.draft_model {
            Some(model) => {
                let load = LoadArgs::of(model.clone());
                let draft = open::builder(&load, cancel)?.session().context("the draft model cannot be loaded")?;
                let text = draft.shared_text();
                Speculation::new(DraftModel::new(draft.into_runner(), &text.tokenizer, &session.text().tokenizer)?)
            }
            None if self.args.speculate => Speculation::new(PromptLookup::default()),
            None => return Ok(None),
        };
        ensure!(session.runner().capabilities().decodes_several, "this model cannot check guesses in one pass");
        Ok(Some(speculation.with_max_tokens(self.args.draft_tokens)))
    }
}
