//! What some filters return: something to go through once, as Python's generators are.
//!
//! Templates tell the difference: a generator is true even if nothing comes, has no length, is no JSON, and is empty the second
//! time.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use minijinja::{
    Error, ErrorKind, State, Value, filters,
    value::{Enumerator, Kwargs, Object, ObjectRepr, ValueKind},
};

/// Values that come out once.
#[derive(Debug)]
pub(super) struct Generator {
    left: Mutex<VecDeque<Value>>,
}

impl Generator {
    fn left<T>(&self, look: impl FnOnce(&mut VecDeque<Value>) -> T) -> T {
        // A panic elsewhere leaves the values whole.
        look(&mut self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Iter(Box::new(Coming(Arc::clone(self))))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PRINTED)
    }
}

/// How a generator prints. (Python adds an address.)
pub(super) const PRINTED: &str = "<generator object>";

/// Takes values out of a generator.
struct Coming(Arc<Generator>);

impl Iterator for Coming {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        self.0.left(VecDeque::pop_front)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n_left = self.0.left(|left| left.len());
        (n_left, Some(n_left))
    }
}

/// Whether a value is a [`Generator`].
pub(super) fn is_generator(value: &Value) -> bool {
    value.downcast_object_ref::<Generator>().is_some()
}

/// What a `for` tag goes through.
///
/// # Errors
/// `InvalidOperation` for null.
pub(super) fn gone_through(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::None => Err(Error::new(ErrorKind::InvalidOperation, "null cannot be gone through")),
        _ => Ok(value),
    }
}

/// The engine's filters that go through their first argument and refuse null as such.
pub(super) fn going_through() -> Vec<(&'static str, Value)> {
    vec![
        ("join", Value::from_function(filters::join)),
        ("list", Value::from_function(filters::list)),
        ("max", Value::from_function(filters::max)),
        ("min", Value::from_function(filters::min)),
        ("sort", Value::from_function(filters::sort)),
        ("sum", Value::from_function(filters::sum)),
    ]
}

/// The engine's filters whose result is a generator. Jinja2 lets null pass where it looks whether there is anything first.
pub(super) fn generating() -> Vec<(&'static str, Value, NullIs)> {
    vec![
        ("batch", Value::from_function(filters::batch), NullIs::Refused),
        ("map", Value::from_function(filters::map), NullIs::Nothing),
        ("reject", Value::from_function(filters::reject), NullIs::Nothing),
        ("rejectattr", Value::from_function(filters::rejectattr), NullIs::Nothing),
        ("select", Value::from_function(filters::select), NullIs::Nothing),
        ("selectattr", Value::from_function(filters::selectattr), NullIs::Nothing),
        ("slice", Value::from_function(filters::slice), NullIs::Refused),
        ("unique", Value::from_function(filters::unique), NullIs::Refused),
    ]
}

/// What a filter takes null for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NullIs {
    Refused,
    Nothing,
}

/// A filter of the engine that refuses null.
pub(super) fn refusing_null(filter: Value) -> impl Fn(&mut State, &[Value], Kwargs) -> Result<Value, Error> {
    move |state, positional, keywords| {
        if let Some(first) = positional.first() {
            gone_through(first.clone())?;
        }
        call(&filter, state, positional, keywords)
    }
}

/// A filter of the engine whose result becomes a generator.
pub(super) fn as_generator(
    filter: Value,
    null: NullIs,
) -> impl Fn(&mut State, &[Value], Kwargs) -> Result<Value, Error> {
    move |state, positional, keywords| {
        if let Some(first) = positional.first()
            && null == NullIs::Refused
        {
            gone_through(first.clone())?;
        }
        let left = call(&filter, state, positional, keywords)?.try_iter()?.collect();
        Ok(Value::from_object(Generator { left: Mutex::new(left) }))
    }
}

fn call(filter: &Value, state: &mut State, positional: &[Value], keywords: Kwargs) -> Result<Value, Error> {
    let mut arguments = positional.to_vec();
    if keywords.args().next().is_some() {
        arguments.push(keywords.into());
    }
    filter.call(state, &arguments)
}
