//! Stop strings.

use kinfolk_text::{Pushed, StopStrings};
use proptest::prelude::*;

use crate::tools::cut;

/// The text up to the stop string that starts first, the longest of those at the same place, by looking at every place.
fn naive(stops: &[String], text: &str, include_stop: bool) -> (String, Option<usize>) {
    for (place, _) in text.char_indices() {
        let here =
            stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty() && text[place..].starts_with(stop.as_str()));
        // Of two that are equal the first counts.
        let longest = here.rev().max_by_key(|(_, stop)| stop.len());
        if let Some((which, stop)) = longest {
            let end = if include_stop { place + stop.len() } else { place };
            return (text[..end].to_owned(), Some(which));
        }
    }
    (text.to_owned(), None)
}

fn stream(stops: &[String], pieces: &[&str], include_stop: bool) -> (Vec<String>, Option<usize>) {
    let mut machine = StopStrings::new(stops.to_vec()).include_stop(include_stop);
    let mut texts: Vec<String> = pieces.iter().map(|piece| machine.push(piece).text).collect();
    texts.push(machine.finish().text);
    (texts, machine.stopped())
}

#[track_caller]
fn check(stops: &[&str], pieces: &[&str], texts: &[&str], stopped: Option<usize>) {
    let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
    let found = stream(&stops, pieces, false);
    assert_eq!(
        (found.0.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), found.1),
        (texts, stopped),
        "{stops:?} {pieces:?}"
    );
}

// E6: split over pieces, nothing of it leaks, and only what may be part of it is held.
#[test]
fn e6_a_stop_string_split_over_pieces_is_found() {
    check(&["beta gamma"], &["alpha ", "beta", " gam", "ma x"], &["alpha ", "", "", "", ""], Some(0));
    check(&["beta gamma"], &["alpha be", "tter"], &["alpha ", "better", ""], None);
    check(&["aab"], &["aaa", "b"], &["a", "", ""], Some(0));
}

// E7: what is held comes out at any other end.
#[test]
fn e7_held_text_comes_out_at_the_end() {
    check(&["\n"], &["?"], &["?", ""], None);
    check(&["as it was"], &["just ", "as"], &["just ", "", "as"], None);
}

// E9: with and without the stop string, whole or in pieces, the same machine.
#[test]
fn e9_the_stop_string_is_given_out_only_where_it_is_asked_for() {
    let stops = vec!["END".to_owned()];
    for pieces in [&["a END b"][..], &["a E", "ND b"], &["a ", "E", "N", "D", " b"]] {
        assert_eq!(stream(&stops, pieces, false).0.concat(), "a ");
        assert_eq!(stream(&stops, pieces, true).0.concat(), "a END");
    }
}

#[test]
fn empty_stop_strings_are_never_armed() {
    check(&["", "x"], &["ab", "xc"], &["ab", "", ""], Some(1));
    check(&[""], &["ab"], &["ab", ""], None);
}

#[test]
fn the_string_that_starts_first_wins_and_then_the_longest() {
    check(&["bc", "abcd"], &["abc", "d"], &["", "", ""], Some(1));
    check(&["bc", "abcd"], &["abc", "x"], &["", "a", ""], Some(0));
    check(&["ab", "abc"], &["xab", "c"], &["x", "", ""], Some(1));
    // It only waited for a longer one.
    check(&["ab", "abc"], &["xab"], &["x", ""], Some(0));
}

#[test]
fn nothing_comes_after_a_stop() {
    let mut stops = StopStrings::new(["."]);
    stops.push("a.");
    assert_eq!(stops.push("b"), Pushed { text: String::new(), stopped: Some(0) });
    assert_eq!(stops.finish(), Pushed { text: String::new(), stopped: Some(0) });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_machine_equals_a_search_of_the_whole_text(
        stops in prop::collection::vec("[abé]{0,4}", 0..4), text in "[abé]{0,24}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6), include_stop in any::<bool>(),
    ) {
        let (texts, stopped) = stream(&stops, &cut(&text, &cuts), include_stop);
        prop_assert_eq!((texts.concat(), stopped), naive(&stops, &text, include_stop));
    }

    /// What is held back is the shortest end of the text that may be part of a stop string, and no more.
    #[test]
    fn nothing_is_held_that_cannot_be_part_of_a_stop_string(stop in "[ab]{1,5}", text in "[ab]{0,16}") {
        let mut machine = StopStrings::new([stop.clone()]);
        let given = machine.push(&text).text;
        if machine.stopped().is_none() {
            let held = &text[given.len()..];
            prop_assert!(stop.starts_with(held), "{:?} {:?} {:?}", stop, text, held);
        }
    }
}
