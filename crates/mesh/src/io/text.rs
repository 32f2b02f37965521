//! Lines, words and numbers of text files, as bytes: names and comments may have any encoding.

use super::error::{FileProblem, quote};

/// The lines of a text with their numbers. Lines end with `\n`, `\r\n` or `\r`.
#[derive(Clone)]
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, number: 0 }
    }

    /// Number of the current line, from 1.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The text after the current line.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Words of the next line that is not blank.
    pub(super) fn next_words(&mut self) -> Option<Words<'a>> {
        self.map(Words::new).find(|words| words.peek().is_some())
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        let Some(end) = self.rest.iter().position(|&b| b == b'\n' || b == b'\r') else {
            return Some(std::mem::take(&mut self.rest));
        };
        let (line, rest) = self.rest.split_at(end);
        let ending = if rest.starts_with(b"\r\n") { 2 } else { 1 };
        self.rest = &rest[ending..];
        Some(line)
    }
}

/// The words of a line, separated by white space. A word that starts with `#` starts a comment,
/// which ends the line.
#[derive(Clone, Default)]
pub(super) struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// The rest of the line, from the next word on.
    pub(super) fn unread(&self) -> &'a [u8] {
        self.rest.trim_ascii_start()
    }

    /// The next word, without consuming it.
    pub(super) fn peek(&self) -> Option<&'a [u8]> {
        self.clone().next()
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&b| !is_space(b))?;
        let from_start = &self.rest[start..];
        if from_start[0] == b'#' {
            self.rest = &[];
            return None;
        }
        let end = from_start.iter().position(|&b| is_space(b)).unwrap_or(from_start.len());
        let (word, rest) = from_start.split_at(end);
        self.rest = rest;
        Some(word)
    }
}

/// True for white space, including line ends.
pub(super) fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

/// Parses a word as a number of type `T`.
pub(super) fn number<T: std::str::FromStr>(word: &[u8], expected: &'static str) -> Result<T, FileProblem> {
    std::str::from_utf8(word)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| FileProblem::BadNumber { found: quote(word), expected })
}

/// Parses a word as a finite number.
pub(super) fn coordinate(word: &[u8]) -> Result<f64, FileProblem> {
    let value: f64 = number(word, "a number")?;
    if value.is_finite() { Ok(value) } else { Err(FileProblem::NotFinite { found: quote(word) }) }
}

/// Decodes `%20` and the like.
pub(super) fn percent_decoded(text: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let code = after
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_ending_are_counted_alike() {
        for text in ["a b\n\nc", "a b\r\n\r\nc\r\n", "a b\r\rc\r"] {
            let mut lines = Lines::new(text.as_bytes());
            let mut first = lines.next_words().unwrap();
            assert_eq!(first.next(), Some(&b"a"[..]));
            assert_eq!(first.next(), Some(&b"b"[..]));
            assert_eq!(first.next(), None);
            assert_eq!(lines.next_words().unwrap().peek(), Some(&b"c"[..]));
            assert_eq!(lines.number(), 3, "{text:?}");
            assert!(lines.next_words().is_none());
        }
    }

    #[test]
    fn comments_end_a_line() {
        let words: Vec<&[u8]> = Words::new(b" \t1 2# 3 #4 5").collect();
        assert_eq!(words, [&b"1"[..], b"2#", b"3"]);
        assert!(Lines::new(b"# x\n  #y").next_words().is_none());
    }
}
