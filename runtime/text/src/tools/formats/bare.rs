//! Calls without markers: JSON that is all of the reply, or its first line.
//!
//! Nothing but the text says that this is a call, so it has to be one without doubt: it stands at the start of the
//! reply, nothing else stands on its last line, and it calls a declared tool.

use serde_json::{Map, Value};

use crate::tools::{
    json::Container,
    scanner::{Broken, Read, Scanner},
    schema::ToolSchemas,
};

/// What a call, or what holds some, can begin with.
const FIRST_KEYS: [&str; 7] = ["name", "type", "id", "function", "arguments", "parameters", "tool_calls"];
const FENCE: &str = "```";

/// A call as it is in the JSON.
struct Call {
    name: String,
    id: Option<String>,
    arguments: String,
}

/// Reads calls at the start of the reply, if they begin with one of `openers`. What turns out to be none stays content.
pub(super) async fn calls(reply: &mut Scanner, openers: &[&str]) {
    reply.pass_opening().await;
    while reply.looking_at(openers).await.is_some() {
        reply.begin_block();
        match line(reply).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(broken) => return give_up(reply, broken, |name| Value::from(name).to_string()).await,
        }
    }
}

/// Gives up on what was read without a marker: it was an ordinary text all along, unless it was cut off after it had
/// named a declared tool, in the spelling of the format.
pub(super) async fn give_up(reply: &mut Scanner, broken: Broken, spelling: impl Fn(&str) -> String) {
    let names_a_tool = reply.tools().names().any(|name| reply.block().contains(&spelling(name)));
    if broken == Broken::Ended && reply.expect_own_end().is_err() && names_a_tool {
        reply.abandon(broken, &[]).await;
    } else {
        reply.release_block();
    }
}

/// Reads a value and what may follow it. True if another one is to follow.
async fn line(reply: &mut Scanner) -> Read<bool> {
    let is_fenced = reply.eat(FENCE).await;
    if is_fenced {
        reply.eat("json").await;
        reply.space().await;
    }
    let from = reply.block().len();
    value(reply).await?;
    let calls = read_calls(&reply.block()[from..], reply.tools()).ok_or(Broken::Malformed)?;
    if is_fenced {
        reply.space().await;
        if reply.peek().await.is_some() {
            reply.expect(FENCE).await?;
        }
    }
    reply.run(|c| c.is_whitespace() && c != '\n').await;
    let goes_on = match reply.peek().await {
        None | Some('\n') => false,
        Some(';') => reply.eat(";").await,
        Some(_) => return Err(Broken::Malformed),
    };
    for call in calls {
        reply.begin_call(call.id, &call.name)?;
        reply.arguments(&call.arguments);
        reply.end_call();
    }
    reply.end_block();
    if goes_on {
        reply.space().await;
    }
    Ok(goes_on)
}

/// Reads a JSON object, or an array of them. What begins like no call is given up at once, so that other JSON is not
/// held back.
async fn value(reply: &mut Scanner) -> Read<()> {
    let mut open = Vec::new();
    if reply.eat("[").await {
        open.push(Container::Array);
        reply.json_space().await;
    }
    reply.expect("{").await?;
    open.push(Container::Object);
    reply.json_space().await;
    if !FIRST_KEYS.contains(&reply.json_key().await?.as_str()) {
        return Err(Broken::Malformed);
    }
    reply.json_value_within(open).await
}

/// Makes calls of a value: an object, an array of them, or `{"tool_calls": […]}`. `None` unless all of it is calls of
/// declared tools.
fn read_calls(json: &str, tools: &ToolSchemas) -> Option<Vec<Call>> {
    let value: Value = serde_json::from_str(json).ok()?;
    let objects = match &value {
        Value::Array(objects) => objects.as_slice(),
        Value::Object(object) => match object.get("tool_calls") {
            Some(Value::Array(objects)) if object.len() == 1 => objects.as_slice(),
            Some(_) => return None,
            None => std::slice::from_ref(&value),
        },
        _ => return None,
    };
    objects.iter().map(|object| read_call(object.as_object()?, tools)).collect()
}

fn read_call(object: &Map<String, Value>, tools: &ToolSchemas) -> Option<Call> {
    let function = object.get("function").and_then(Value::as_object).unwrap_or(object);
    let name = function.get("name")?.as_str().filter(|name| tools.declares(name))?;
    let arguments = match function.get("arguments").or_else(|| function.get("parameters")) {
        Some(Value::Object(arguments)) => Value::Object(arguments.clone()).to_string(),
        Some(Value::String(text)) => serde_json::from_str::<Map<String, Value>>(text).ok().map(|_| text.clone())?,
        _ => return None,
    };
    let id = object.get("id").and_then(Value::as_str).map(str::to_owned);
    Some(Call { name: name.to_owned(), id, arguments })
}
