//! The environment transformers gives chat templates, in minijinja.

use minijinja::{Environment, Error, ErrorKind, Value, syntax::SyntaxConfig};

use super::{Clock, concat, filters, generator, methods, percent, python, rewrite};

/// What a template passed to `raise_exception`, as the cause of the engine's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

/// Builds the environment. Templates are added to it; the clock is per rendering ([`prepare`]).
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("Jinja's own delimiters are valid"));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(|out, _, value| match value.as_str() {
        Some(text) => Ok(out.write_str(text)?),
        None => Ok(out.write_str(&python::str(value)?)?),
    });
    environment.set_unknown_method_callback(methods::call);
    environment.add_filter("tojson", filters::tojson);
    environment.add_filter("string", |value: &Value| python::str(value));
    for name in ["default", "d"] {
        environment.add_filter(name, filters::default);
    }
    environment.add_filter("int", filters::int);
    environment.add_filter("float", filters::float);
    for name in ["e", "escape", "forceescape"] {
        environment.add_filter(name, filters::escape);
    }
    environment.add_filter("indent", filters::indent);
    for (name, filter) in generator::going_through() {
        environment.add_filter(name, generator::refusing_null(filter));
    }
    for (name, filter, null) in generator::generating() {
        environment.add_filter(name, generator::as_generator(filter, null));
    }
    environment.add_filter(concat::PRINTED, |value: &Value| python::str(value));
    environment.add_filter(rewrite::PERCENT, percent::format);
    environment.add_filter("center", filters::center);
    environment.add_filter("filesizeformat", minijinja_contrib::filters::filesizeformat);
    environment.add_filter("random", filters::random);
    environment.add_filter("striptags", filters::striptags);
    environment.add_filter("truncate", filters::truncate);
    environment.add_filter("wordcount", filters::wordcount);
    environment.add_function("cycler", minijinja_contrib::globals::cycler);
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    environment.add_test("callable", filters::is_callable);
    environment.add_filter(rewrite::GONE_THROUGH, generator::gone_through);
    environment.add_test("sequence", filters::is_sequence);
    environment.add_test("iterable", filters::is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment
}

/// Sets what is particular to one rendering: the clock that `strftime_now` reads, and how many steps it may take.
pub(super) fn prepare(environment: &mut Environment<'static>, clock: Clock, fuel: u64) {
    environment.set_fuel(Some(fuel));
    environment.add_function("strftime_now", move |format: &str| strftime(&clock, format));
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn strftime(clock: &Clock, format: &str) -> Result<String, Error> {
    use std::fmt::Write;
    let mut out = String::new();
    write!(out, "{}", clock.now().format(format))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("`{format}` is no format of dates and times")))?;
    Ok(out)
}
