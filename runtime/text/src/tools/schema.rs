//! The tools a request declares.

use serde_json::Value;

/// How deep a schema is followed for the types it allows.
const MAX_SCHEMA_DEPTH: usize = 8;

/// The declared tools: their names, and what type each argument has.
#[derive(Clone, Debug, Default)]
pub struct ToolSchemas {
    tools: Vec<(String, Value)>,
}

/// What a schema says about the type of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedTypes {
    names: Vec<String>,
}

impl ToolSchemas {
    /// Reads tools in OpenAI's form, `{"type": "function", "function": {"name", "parameters"}}`, or the inner object
    /// alone. Entries without a name are ignored with a warning: they cannot be called.
    pub fn new(tools: &[Value]) -> ToolSchemas {
        let mut schemas = ToolSchemas::default();
        for tool in tools {
            let function = tool.get("function").filter(|function| function.is_object()).unwrap_or(tool);
            match function.get("name").and_then(Value::as_str) {
                Some(name) => {
                    let parameters = function.get("parameters").or_else(|| function.get("input_schema"));
                    schemas.tools.push((name.to_owned(), parameters.cloned().unwrap_or(Value::Null)));
                }
                None => tracing::warn!("a declared tool is ignored: it has no `name`"),
            }
        }
        schemas
    }

    /// Whether nothing is declared, so that nothing can be called.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether a tool of this name is declared.
    pub fn declares(&self, name: &str) -> bool {
        self.parameters(name).is_some()
    }

    /// The declared names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|(name, _)| name.as_str())
    }

    /// Whether a declared tool can be called without arguments.
    pub fn requires_nothing(&self, name: &str) -> bool {
        self.parameters(name).is_some_and(|schema| {
            schema.get("required").and_then(Value::as_array).is_none_or(|required| required.is_empty())
        })
    }

    /// The types an argument may have. None are known for arguments nobody declared.
    pub fn types(&self, tool: &str, argument: &str) -> AllowedTypes {
        let mut types = AllowedTypes::default();
        let schema = self.parameters(tool).and_then(|schema| schema.get("properties")?.get(argument));
        if let Some(schema) = schema {
            types.add(schema, MAX_SCHEMA_DEPTH);
        }
        types
    }

    fn parameters(&self, name: &str) -> Option<&Value> {
        self.tools.iter().find(|(tool, _)| tool == name).map(|(_, parameters)| parameters)
    }
}

impl AllowedTypes {
    /// Whether text is all the value can be, so that it need not be read to the end first.
    pub fn only_string(&self) -> bool {
        !self.names.is_empty() && self.names.iter().all(|name| name == "string")
    }

    /// Makes JSON of a value written as bare text. `None` if it is of no allowed type.
    ///
    /// A type other than string wins where the text reads as one; with no type known, text that reads as JSON is JSON.
    /// Python's `True`, `False` and `None` are read as what they are.
    pub fn json_of(&self, text: &str) -> Option<String> {
        let trimmed = text.trim();
        let plain = match trimmed {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            other => other,
        };
        // As written wins over Python's spelling where anything goes, so that the word `None` stays one.
        let candidate = if self.names.is_empty() { trimmed } else { plain };
        match serde_json::from_str::<Value>(candidate) {
            Ok(value) if self.allows(&value) => Some(candidate.to_owned()),
            _ if self.names.is_empty() || self.names.iter().any(|name| name == "string") => {
                Some(Value::from(text).to_string())
            }
            _ => None,
        }
    }

    /// Whether a value that is no string has an allowed type.
    fn allows(&self, value: &Value) -> bool {
        let has = |name: &str| self.names.iter().any(|allowed| allowed == name);
        match value {
            Value::String(_) => self.names.is_empty(),
            _ if self.names.is_empty() => true,
            Value::Null => has("null"),
            Value::Bool(_) => has("boolean"),
            Value::Number(number) => has("number") || has("integer") && is_integral(number),
            Value::Array(_) => has("array"),
            Value::Object(_) => has("object"),
        }
    }

    fn add(&mut self, schema: &Value, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        match schema.get("type") {
            Some(Value::String(name)) => self.names.push(name.clone()),
            Some(Value::Array(names)) => {
                self.names.extend(names.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            _ => {}
        }
        for alternatives in ["anyOf", "oneOf"] {
            for schema in schema.get(alternatives).and_then(Value::as_array).into_iter().flatten() {
                self.add(schema, depth);
            }
        }
        if self.names.is_empty() {
            for value in schema.get("enum").and_then(Value::as_array).into_iter().flatten() {
                self.names.push(type_name(value).to_owned());
            }
        }
    }
}

/// JSON Schema counts 2.0 as an integer.
fn is_integral(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: Value, text: &str, expected: Option<Value>) {
        let tools = ToolSchemas::new(&[json!({"name": "f", "parameters": {"properties": {"x": schema.clone()}}})]);
        let found = tools.types("f", "x").json_of(text).map(|json| serde_json::from_str::<Value>(&json).unwrap());
        assert_eq!(found, expected, "{schema} {text:?}");
    }

    #[test]
    fn the_schema_says_what_bare_text_is() {
        check(json!({"type": "string"}), "00123", Some(json!("00123")));
        check(json!({"type": "string"}), "true", Some(json!("true")));
        check(json!({"type": "integer"}), "3", Some(json!(3)));
        check(json!({"type": "integer"}), "three", None);
        check(json!({"type": "integer"}), "3.5", None);
        check(json!({"type": "boolean"}), "True", Some(json!(true)));
        check(json!({"type": ["string", "null"]}), "null", Some(json!(null)));
        check(json!({"type": ["string", "null"]}), "nil", Some(json!("nil")));
        check(json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}), "7", Some(json!(7)));
        check(json!({"enum": ["1", "2"]}), "1", Some(json!("1")));
        check(json!({"type": "array"}), "[1, 2]", Some(json!([1, 2])));
    }

    #[test]
    fn a_value_nobody_declared_is_json_where_it_reads_as_json() {
        check(json!({}), "3", Some(json!(3)));
        check(json!({}), "00123", Some(json!("00123")));
        check(json!({}), "None", Some(json!("None")));
    }
}
