//! JSON inside a reply, read strictly: nothing is repaired.

use serde::de::IgnoredAny;

use super::scanner::{Broken, Read, Scanner};

/// Deeper than any arguments; what nests deeper is not read by JSON libraries either.
const MAX_DEPTH: usize = 100;

/// What is open around a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Array,
    Object,
}

/// The keys of a call that is written as one JSON object.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallKeys {
    pub(super) name: &'static [&'static str],
    pub(super) arguments: &'static [&'static str],
    pub(super) id: &'static [&'static str],
}

/// What a call object has said so far.
#[derive(Default)]
struct CallObject {
    name: Option<String>,
    id: Option<String>,
    /// Arguments that came before the name, or an id that may follow.
    arguments: Option<String>,
    /// Whether the arguments are told.
    told: bool,
}

impl Scanner {
    /// Reads white space as JSON knows it.
    pub(super) async fn json_space(&mut self) {
        self.run(|c| matches!(c, ' ' | '\t' | '\n' | '\r')).await;
    }

    /// Reads one JSON value.
    ///
    /// # Errors
    /// `Malformed` at the first character that cannot be, which is left unread.
    pub(super) async fn json_value(&mut self) -> Read<()> {
        self.json_value_within(Vec::new()).await
    }

    /// Reads one JSON value and what is left of the containers around it.
    ///
    /// # Errors
    /// As [`json_value`](Self::json_value).
    pub(super) async fn json_value_within(&mut self, mut open: Vec<Container>) -> Read<()> {
        loop {
            self.json_space().await;
            if open.len() > MAX_DEPTH {
                return Err(Broken::Malformed);
            }
            match self.peek().await.ok_or(Broken::Ended)? {
                '{' => {
                    self.char().await?;
                    self.json_space().await;
                    if !self.eat("}").await {
                        self.json_key().await?;
                        open.push(Container::Object);
                        continue;
                    }
                }
                '[' => {
                    self.char().await?;
                    self.json_space().await;
                    if !self.eat("]").await {
                        open.push(Container::Array);
                        continue;
                    }
                }
                '"' => {
                    self.json_string().await?;
                }
                _ => self.json_scalar().await?,
            }
            // A value is complete; so may be what is around it.
            loop {
                let Some(&container) = open.last() else { return Ok(()) };
                self.json_space().await;
                if self.json_goes_on(container).await? {
                    if container == Container::Object {
                        self.json_space().await;
                        self.json_key().await?;
                    }
                    break;
                }
                open.pop();
            }
        }
    }

    /// Reads the comma after a member, or the end of its container. True for the comma.
    pub(super) async fn json_goes_on(&mut self, container: Container) -> Read<bool> {
        let goes_on = match (container, self.peek().await.ok_or(Broken::Ended)?) {
            (_, ',') => true,
            (Container::Array, ']') | (Container::Object, '}') => false,
            _ => return Err(Broken::Malformed),
        };
        self.char().await?;
        Ok(goes_on)
    }

    /// Reads a key and its colon.
    pub(super) async fn json_key(&mut self) -> Read<String> {
        let key = self.json_string().await?;
        self.json_space().await;
        self.expect(":").await?;
        Ok(key)
    }

    /// Reads a string; returns what it stands for.
    pub(super) async fn json_string(&mut self) -> Read<String> {
        self.expect("\"").await?;
        let mut written = "\"".to_owned();
        loop {
            written += &self.run(|c| c != '"' && c != '\\').await;
            let special = self.char().await?;
            written.push(special);
            if special == '"' {
                return serde_json::from_str(&written).map_err(|_| Broken::Malformed);
            }
            written.push(self.char().await?);
        }
    }

    /// Reads a number, `true`, `false` or `null`.
    async fn json_scalar(&mut self) -> Read<()> {
        let written = self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')).await;
        match serde_json::from_str::<IgnoredAny>(&written) {
            Ok(_) => Ok(()),
            // At the end of the reply, `tru` may have become `true`.
            Err(_) if self.peek().await.is_none() => Err(Broken::Ended),
            Err(_) => Err(Broken::Malformed),
        }
    }

    /// Reads a JSON object as the arguments of the open call.
    ///
    /// # Errors
    /// `Malformed` at the first character that cannot be, `Ended` if the reply ends first.
    pub async fn json_arguments(&mut self) -> Read<()> {
        self.json_space().await;
        match self.peek().await {
            Some('{') => {}
            Some(_) => return Err(Broken::Malformed),
            None => return Err(Broken::Ended),
        }
        self.verbatim_begin();
        self.json_value().await?;
        self.verbatim_end();
        Ok(())
    }

    /// Reads a call that is written as one JSON object, and leaves it open: what follows decides whether it is one.
    ///
    /// The arguments are an object, or a string that holds one. They may be missing where the tool requires none. Other
    /// keys are passed over; `{"function": {…}}` around the keys is, too.
    pub(super) async fn call_object(&mut self, keys: &CallKeys) -> Read<()> {
        let mut object = CallObject::default();
        let mut depth = 1;
        self.json_space().await;
        self.expect("{").await?;
        self.json_space().await;
        let mut goes_on = !self.eat("}").await;
        while goes_on {
            let key = self.json_key().await?;
            self.json_space().await;
            let is = |names: &[&str]| names.contains(&key.as_str());
            if key == "function" && depth == 1 && self.eat("{").await {
                depth = 2;
                self.json_space().await;
                continue;
            }
            if is(keys.name) {
                set_once(&mut object.name, self.json_string().await?)?;
            } else if is(keys.id) {
                let id = self.json_id().await?;
                set_once(&mut object.id, id)?;
            } else if is(keys.arguments) {
                self.call_arguments(keys, &mut object).await?;
            } else {
                self.json_value().await?;
            }
            self.json_space().await;
            goes_on = self.json_goes_on(Container::Object).await?;
            while !goes_on && depth == 2 {
                depth = 1;
                self.json_space().await;
                goes_on = self.json_goes_on(Container::Object).await?;
            }
            self.json_space().await;
        }
        self.complete_call(object)
    }

    /// Reads the value of the arguments' key: on its way out at once if all that comes before arguments is there.
    async fn call_arguments(&mut self, keys: &CallKeys, object: &mut CallObject) -> Read<()> {
        if object.told || object.arguments.is_some() {
            return Err(Broken::Malformed);
        }
        match self.peek().await.ok_or(Broken::Ended)? {
            '{' => match &object.name {
                Some(name) if object.id.is_some() || keys.id.is_empty() => {
                    self.begin_call(object.id.take(), name)?;
                    object.told = true;
                    self.json_arguments().await
                }
                _ => {
                    let from = self.block().len();
                    self.json_value().await?;
                    object.arguments = Some(self.block()[from..].to_owned());
                    Ok(())
                }
            },
            '"' => {
                let text = self.json_string().await?;
                serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text)
                    .map_err(|_| Broken::Malformed)?;
                object.arguments = Some(text);
                Ok(())
            }
            _ if self.eat("null").await => Ok(()),
            _ => Err(Broken::Malformed),
        }
    }

    /// Begins the call if it has not begun on the way.
    fn complete_call(&mut self, object: CallObject) -> Read<()> {
        if object.told {
            return Ok(());
        }
        let name = object.name.ok_or(Broken::Malformed)?;
        let arguments = match object.arguments {
            Some(arguments) => arguments,
            None if self.tools().requires_nothing(&name) => "{}".to_owned(),
            None => return Err(Broken::Malformed),
        };
        self.begin_call(object.id, &name)?;
        self.arguments(&arguments);
        Ok(())
    }

    /// Reads an id: a string, or a number as it is written.
    async fn json_id(&mut self) -> Read<String> {
        if self.peek().await == Some('"') {
            return self.json_string().await;
        }
        let from = self.block().len();
        self.json_value().await?;
        Ok(self.block()[from..].to_owned())
    }

    /// Reads an array of call objects, or one alone, and tells each as soon as it is complete.
    pub(super) async fn call_objects(&mut self, keys: &CallKeys) -> Read<()> {
        self.json_space().await;
        if self.eat("[").await {
            return self.call_array(keys).await;
        }
        self.call_object(keys).await?;
        self.end_call();
        Ok(())
    }

    /// Reads call objects and the marker after them, unless the reply ends before it.
    pub(super) async fn call_objects_until(&mut self, keys: &CallKeys, close: &str) -> Read<()> {
        self.call_objects(keys).await?;
        self.space().await;
        if self.peek().await.is_some() { self.expect(close).await } else { Ok(()) }
    }

    /// Reads an array of call objects after its bracket.
    pub(super) async fn call_array(&mut self, keys: &CallKeys) -> Read<()> {
        self.json_space().await;
        let mut goes_on = !self.eat("]").await;
        while goes_on {
            self.call_object(keys).await?;
            self.json_space().await;
            goes_on = self.json_goes_on(Container::Array).await?;
            self.json_space().await;
            self.end_call();
        }
        Ok(())
    }
}

fn set_once(place: &mut Option<String>, value: String) -> Read<()> {
    if place.is_some() {
        return Err(Broken::Malformed);
    }
    *place = Some(value);
    Ok(())
}
