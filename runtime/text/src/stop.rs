//! Stop strings: texts that end a reply where they appear.

/// Looks for stop strings in a text that comes in pieces, wherever the pieces are cut.
///
/// The string that starts first stops the reply, and of those that start at the same place the longest: as if the whole
/// text had been searched at once. Only what may still be part of a stop string is held back. One machine serves
/// streams and whole texts: a whole text is a stream of one piece.
///
/// # Cost
/// O(bytes of the piece × stop strings), amortised (Knuth, Morris and Pratt's automaton for each string).
///
/// # Example
/// ```
/// let mut stops = kinfolk_text::StopStrings::new(["beta gamma"]);
/// let texts: Vec<String> = ["alpha ", "beta", " gam", "ma x"].map(|piece| stops.push(piece).text).into();
/// assert_eq!(texts.concat(), "alpha ");
/// assert_eq!(stops.stopped(), Some(0));
/// ```
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<Automaton>,
    include_stop: bool,
    /// What is not given out yet.
    held: String,
    /// Where in the text `held` begins, in bytes.
    base: usize,
    /// The best match so far, which one that starts earlier or is longer may still replace.
    best: Option<Match>,
    stopped: Option<usize>,
}

/// What a piece makes certain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Text to give out, possibly none.
    pub text: String,
    /// The place in the list of the stop string that ends the reply here.
    pub stopped: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Match {
    which: usize,
    start: usize,
    end: usize,
}

impl StopStrings {
    /// Arms the strings. Empty ones are never armed, since they would stop every reply before it starts; they keep
    /// their place in the list.
    pub fn new<S: Into<String>>(stops: impl IntoIterator<Item = S>) -> StopStrings {
        StopStrings {
            stops: stops.into_iter().map(|stop| Automaton::new(stop.into())).collect(),
            include_stop: false,
            held: String::new(),
            base: 0,
            best: None,
            stopped: None,
        }
    }

    /// Whether the stop string is given out too.
    #[must_use]
    pub fn include_stop(mut self, include_stop: bool) -> StopStrings {
        self.include_stop = include_stop;
        self
    }

    /// The stop string that ended the reply. After that nothing more is given out.
    pub fn stopped(&self) -> Option<usize> {
        self.stopped
    }

    /// Takes a piece; gives out what is certain not to be part of a stop string.
    pub fn push(&mut self, piece: &str) -> Pushed {
        if self.stopped.is_some() {
            return Pushed { text: String::new(), stopped: self.stopped };
        }
        let before = self.base + self.held.len();
        for (place, byte) in piece.bytes().enumerate() {
            self.step(byte, before + place + 1);
        }
        self.held.push_str(piece);
        match self.best {
            Some(best) if !self.may_be_replaced(best) => self.stop(best),
            _ => Pushed { text: self.release(), stopped: None },
        }
    }

    /// Ends the text: whatever is held comes out, up to a stop string that only waited for a longer one.
    pub fn finish(&mut self) -> Pushed {
        match (self.stopped, self.best) {
            (Some(_), _) => Pushed { text: String::new(), stopped: self.stopped },
            (None, Some(best)) => self.stop(best),
            (None, None) => Pushed { text: std::mem::take(&mut self.held), stopped: None },
        }
    }

    /// Moves every automaton over a byte after which the text is `end` bytes long.
    fn step(&mut self, byte: u8, end: usize) {
        for (which, stop) in self.stops.iter_mut().enumerate() {
            if stop.step(byte) {
                let found = Match { which, start: end - stop.text.len(), end };
                let replaces = self
                    .best
                    .is_none_or(|best| found.start < best.start || found.start == best.start && found.end > best.end);
                if replaces {
                    self.best = Some(found);
                }
            }
        }
    }

    /// Whether a string that has begun would win over `best` once it is complete.
    fn may_be_replaced(&self, best: Match) -> bool {
        let end = self.base + self.held.len();
        self.stops.iter().any(|stop| {
            let start = end - stop.matched;
            stop.matched > 0 && (start < best.start || start == best.start && stop.text.len() > best.end - best.start)
        })
    }

    /// Takes out of `held` what no stop string can begin in.
    fn release(&mut self) -> String {
        let end = self.base + self.held.len();
        let begun = self.stops.iter().map(|stop| end - stop.matched);
        let keep_from = begun.chain(self.best.map(|best| best.start)).min().unwrap_or(end);
        self.take(keep_from)
    }

    fn stop(&mut self, at: Match) -> Pushed {
        self.stopped = Some(at.which);
        let text = self.take(if self.include_stop { at.end } else { at.start });
        self.held.clear();
        Pushed { text, stopped: self.stopped }
    }

    /// Takes the text up to a place, which is between characters: a stop string begins and ends with whole ones.
    fn take(&mut self, to: usize) -> String {
        let rest = self.held.split_off(to - self.base);
        self.base = to;
        std::mem::replace(&mut self.held, rest)
    }
}

/// Knuth, Morris and Pratt's automaton: knows how much of its string the text ends with.
#[derive(Clone, Debug)]
struct Automaton {
    text: String,
    /// For every prefix, the length of the longest shorter prefix that it ends with.
    fallback: Vec<usize>,
    /// The length of the longest prefix, but not the whole string, that the text ends with.
    matched: usize,
}

impl Automaton {
    fn new(text: String) -> Automaton {
        let bytes = text.as_bytes();
        let mut fallback = vec![0; bytes.len()];
        let mut matched = 0;
        for place in 1..bytes.len() {
            while matched > 0 && bytes[place] != bytes[matched] {
                matched = fallback[matched - 1];
            }
            matched += usize::from(bytes[place] == bytes[matched]);
            fallback[place] = matched;
        }
        Automaton { text, fallback, matched: 0 }
    }

    /// Whether the string is complete with this byte.
    fn step(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        if bytes.is_empty() {
            return false;
        }
        while self.matched > 0 && byte != bytes[self.matched] {
            self.matched = self.fallback[self.matched - 1];
        }
        self.matched += usize::from(byte == bytes[self.matched]);
        let complete = self.matched == bytes.len();
        if complete {
            self.matched = self.fallback[self.matched - 1];
        }
        complete
    }
}
