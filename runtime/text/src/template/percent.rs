//! `"%s is %d" % (name, count)`: Python's formatting of text with the `%` operator.

use minijinja::{
    Error, ErrorKind, Value,
    value::{Tuple, ValueKind},
};

use super::python;

/// The widest field, and the most digits, in characters.
const MAX_WIDTH: usize = 1 << 12;

/// One `%…` of a format.
#[derive(Default)]
struct Field<'a> {
    key: Option<&'a str>,
    left: bool,
    zeros: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// What the fields of a format take their values from.
struct Arguments<'a> {
    all: &'a Value,
    /// The members of a tuple, or the one value there is.
    left: std::vec::IntoIter<Value>,
}

/// Formats `values` (a tuple, a mapping, or one value).
///
/// # Errors
/// `InvalidOperation` for a format that is none and for values that do not fit it.
pub(super) fn format(format: &str, values: &Value) -> Result<String, Error> {
    let is_tuple = values.downcast_object_ref::<Tuple>().is_some();
    let left: Vec<Value> = if is_tuple { values.try_iter()?.collect() } else { vec![values.clone()] };
    let mut arguments = Arguments { all: values, left: left.into_iter() };
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let (field, conversion, after) = parse(after, &mut arguments)?;
        rest = after;
        if conversion == '%' {
            out.push('%');
            continue;
        }
        let value = arguments.next(field.key)?;
        out.push_str(&field.write(conversion, &value)?);
    }
    out.push_str(rest);
    if arguments.left.len() > 0 && (is_tuple || values.kind() != ValueKind::Map) {
        return Err(refuse("not all values were used by the format"));
    }
    Ok(out)
}

fn refuse(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

impl Arguments<'_> {
    fn next(&mut self, key: Option<&str>) -> Result<Value, Error> {
        match key {
            Some(key) if self.all.kind() == ValueKind::Map => {
                let value = self.all.get_attr(key)?;
                if value.is_undefined() { Err(refuse(format!("the mapping has no `{key}`"))) } else { Ok(value) }
            }
            Some(_) => Err(refuse("the format needs a mapping")),
            None => self.left.next().ok_or_else(|| refuse("not enough values for the format")),
        }
    }

    /// A width or precision: digits, or `*` for a value.
    fn size<'a>(&mut self, text: &'a str) -> Result<(Option<usize>, &'a str), Error> {
        if let Some(rest) = text.strip_prefix('*') {
            return Ok((Some(bounded(usize::try_from(self.next(None)?)?)?), rest));
        }
        let (digits, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let size = (!digits.is_empty()).then(|| digits.parse().unwrap_or(usize::MAX));
        Ok((size.map(bounded).transpose()?, rest))
    }
}

fn bounded(size: usize) -> Result<usize, Error> {
    if size <= MAX_WIDTH {
        Ok(size)
    } else {
        Err(refuse(format!("expected a width of at most {MAX_WIDTH}, found {size}")))
    }
}

/// Reads what follows a `%`: the field, its conversion, and the rest of the format.
fn parse<'a>(text: &'a str, arguments: &mut Arguments) -> Result<(Field<'a>, char, &'a str), Error> {
    let mut field = Field::default();
    let mut rest = text;
    if let Some(keyed) = rest.strip_prefix('(') {
        let (key, after) = keyed.split_once(')').ok_or_else(|| refuse("a key of the format does not end"))?;
        field.key = Some(key);
        rest = after;
    }
    loop {
        let flag = match rest.as_bytes().first() {
            Some(b'-') => &mut field.left,
            Some(b'0') => &mut field.zeros,
            Some(b'+') => &mut field.plus,
            Some(b' ') => &mut field.space,
            Some(b'#') => &mut field.alternate,
            _ => break,
        };
        *flag = true;
        rest = &rest[1..];
    }
    (field.width, rest) = arguments.size(rest)?;
    if let Some(after) = rest.strip_prefix('.') {
        (field.precision, rest) = arguments.size(after)?;
        field.precision.get_or_insert(0);
    }
    let rest = rest.trim_start_matches(['h', 'l', 'L']);
    let conversion = rest.chars().next().ok_or_else(|| refuse("the format ends inside a field"))?;
    Ok((field, conversion, &rest[conversion.len_utf8()..]))
}

impl Field<'_> {
    fn write(&self, conversion: char, value: &Value) -> Result<String, Error> {
        let (sign, digits) = match conversion {
            's' => return Ok(self.padded("", &self.cut(&python::str(value)?), false)),
            'r' | 'a' => return Ok(self.padded("", &self.cut(&python::repr(value)?), false)),
            'c' => return Ok(self.padded("", &character(value)?, false)),
            'd' | 'i' | 'u' => self.whole(value, conversion, |number| number.to_string(), "")?,
            'x' => self.whole(value, conversion, |number| format!("{number:x}"), "0x")?,
            'X' => self.whole(value, conversion, |number| format!("{number:X}"), "0X")?,
            'o' => self.whole(value, conversion, |number| format!("{number:o}"), "0o")?,
            'f' | 'F' | 'e' | 'E' | 'g' | 'G' => {
                let number = number(value)?;
                let digits = self.real(conversion, number.abs());
                let digits = if conversion.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
                (self.sign(number.is_sign_negative() && !number.is_nan()), digits)
            }
            other => return Err(refuse(format!("`%{other}` is no format"))),
        };
        Ok(self.padded(sign, &digits, self.zeros && !self.left))
    }

    fn cut(&self, text: &str) -> String {
        text.chars().take(self.precision.unwrap_or(usize::MAX)).collect()
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            _ => "",
        }
    }

    /// A whole number's sign and digits.
    fn whole(
        &self,
        value: &Value,
        conversion: char,
        digits: impl Fn(u128) -> String,
        prefix: &str,
    ) -> Result<(&'static str, String), Error> {
        let number = match i128::try_from(value.clone()) {
            Ok(number) => number,
            // Python cuts floats off for `%d`, and refuses them for the others.
            Err(_) if matches!(conversion, 'd' | 'i' | 'u') => number(value)? as i128,
            Err(error) => return Err(error),
        };
        let mut text = digits(number.unsigned_abs());
        let n_missing = self.precision.unwrap_or(0).saturating_sub(text.len());
        text.insert_str(0, &"0".repeat(n_missing));
        if self.alternate {
            text.insert_str(0, prefix);
        }
        Ok((self.sign(number < 0), text))
    }

    /// The digits of a number that is not negative.
    fn real(&self, conversion: char, number: f64) -> String {
        let precision = self.precision.unwrap_or(6);
        if number.is_nan() {
            return "nan".to_owned();
        }
        if number.is_infinite() {
            return "inf".to_owned();
        }
        match conversion.to_ascii_lowercase() {
            'f' => format!("{number:.precision$}"),
            'e' => with_exponent(&format!("{number:.precision$e}")),
            _ => {
                let n_digits = precision.max(1);
                let scientific = format!("{number:.*e}", n_digits - 1);
                let exponent: i64 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
                let is_short = exponent < -4 || exponent >= n_digits as i64;
                let text = if is_short {
                    scientific
                } else {
                    let decimals = usize::try_from(n_digits as i64 - 1 - exponent).unwrap_or(0);
                    format!("{number:.decimals$}")
                };
                let (digits, exponent) = text.split_once('e').map_or((text.as_str(), None), |(d, e)| (d, Some(e)));
                let digits = if digits.contains('.') && !self.alternate {
                    digits.trim_end_matches('0').trim_end_matches('.')
                } else {
                    digits
                };
                exponent.map_or_else(|| digits.to_owned(), |exponent| with_exponent(&format!("{digits}e{exponent}")))
            }
        }
    }

    fn padded(&self, sign: &str, text: &str, zeros: bool) -> String {
        let n_missing = self.width.unwrap_or(0).saturating_sub(sign.len() + text.chars().count());
        if zeros {
            return format!("{sign}{}{text}", "0".repeat(n_missing));
        }
        let blanks = " ".repeat(n_missing);
        if self.left { format!("{sign}{text}{blanks}") } else { format!("{blanks}{sign}{text}") }
    }
}

/// Exponents have a sign and two digits at least.
fn with_exponent(scientific: &str) -> String {
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

fn number(value: &Value) -> Result<f64, Error> {
    match value.kind() {
        ValueKind::Number | ValueKind::Bool => f64::try_from(value.clone()),
        kind => Err(refuse(format!("expected a number to format, found {kind}"))),
    }
}

fn character(value: &Value) -> Result<String, Error> {
    let mut chars = value.as_str().unwrap_or_default().chars();
    let code = || u32::try_from(value.clone()).ok().and_then(char::from_u32);
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok(c.to_string()),
        _ => code().map(String::from).ok_or_else(|| refuse("expected one character to format")),
    }
}
