//! Problems of many files in few lines.

use std::collections::HashMap;
use std::path::Path;

/// Number of files that are named besides the first.
const EXAMPLES: usize = 3;

/// Problems as a list of a length that can be read: those that differ only in the name of the file and in numbers are one
/// line, with the number of the others and a few of their names. The order is that of the first of each.
///
/// ```
/// let problems = ["a.ply: no faces", "b.ply: 12 rows, not 10", "c.ply: no faces", "d.ply: no faces"];
/// let lines = gemcnn_tasks::summed_up(&problems.map(String::from));
/// assert_eq!(lines, ["a.ply: no faces (and 2 more like it: c.ply, d.ply)", "b.ply: 12 rows, not 10"]);
/// ```
pub fn summed_up(problems: &[String]) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut places = HashMap::new();
    for problem in problems {
        let (file, what) = problem.split_once(": ").unwrap_or(("", problem));
        let place = *places.entry(kind(file, what)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, others)) => others.push(file),
            None => groups.push((problem, Vec::new())),
        }
    }
    let line = |(first, others): (&str, Vec<&str>)| {
        let named = others[..others.len().min(EXAMPLES)].join(", ");
        match others.len() {
            0 => first.to_owned(),
            count if count > EXAMPLES => format!("{first} (and {count} more like it: {named}, ...)"),
            count => format!("{first} (and {count} more like it: {named})"),
        }
    };
    groups.into_iter().map(line).collect()
}

/// A problem without what differs from file to file.
fn kind(file: &str, what: &str) -> String {
    let file = file.split(':').next().unwrap_or(file);
    let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str()).filter(|stem| !stem.is_empty());
    let what = stem.map_or_else(|| what.to_owned(), |stem| without_word(what, stem));
    let mut kind = String::with_capacity(what.len());
    for character in what.chars() {
        let character = if character.is_ascii_digit() { '#' } else { character };
        if character != '#' || !kind.ends_with('#') {
            kind.push(character);
        }
    }
    kind
}

/// A text with `#` in place of a word, where it is not part of a longer one.
fn without_word(text: &str, word: &str) -> String {
    let mut rest = String::with_capacity(text.len());
    let mut end = 0;
    for (start, _) in text.match_indices(word) {
        let (before, after) = (&text[..start], &text[start + word.len()..]);
        let is_whole = !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        if is_whole {
            rest.push_str(&text[end..start]);
            rest.push('#');
            end = start + word.len();
        }
    }
    rest + &text[end..]
}
