//! Sequential access to binary files, and to files that mix text and binary.

use super::error::{Fault, FileProblem, Location, Parsed};
use super::scalar::Value;
use super::text::{Lines, is_space, number};

/// The unread bytes of a binary file.
#[derive(Clone)]
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
    file_size: usize,
    /// Byte order of the values.
    pub(super) little_endian: bool,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(content: &'a [u8], little_endian: bool) -> Self {
        Self { rest: content, file_size: content.len(), little_endian }
    }

    /// Number of unread bytes.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// The unread bytes.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Continues at `rest`, a later part of the file.
    pub(super) fn go_on(&mut self, rest: &'a [u8]) {
        self.rest = rest;
    }

    /// A problem at the current byte.
    pub(super) fn fail(&self, problem: FileProblem) -> Box<Fault> {
        problem.at(Location::Byte(self.file_size.saturating_sub(self.rest.len())))
    }

    fn ends_early(&self, expected: &'static str) -> Box<Fault> {
        self.fail(FileProblem::EndsEarly { expected })
    }

    /// The next value.
    pub(super) fn value<T: Value>(&mut self, expected: &'static str) -> Parsed<T> {
        let (value, rest) = T::split_from(self.rest, self.little_endian).ok_or_else(|| self.ends_early(expected))?;
        self.rest = rest;
        Ok(value)
    }

    /// The bytes of `count` values of `size` bytes each.
    pub(super) fn take(&mut self, count: u64, size: usize, expected: &'static str) -> Parsed<&'a [u8]> {
        let (taken, rest) = count
            .checked_mul(size as u64)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .and_then(|bytes| self.rest.split_at_checked(bytes))
            .ok_or_else(|| {
                self.fail(FileProblem::CountTooLarge {
                    element: expected.to_owned(),
                    declared: count,
                    capacity: (self.rest.len() / size.max(1)) as u64,
                    file_size: self.file_size,
                })
            })?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next word of text, if there is one.
    pub(super) fn next_word(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest;
        let start = rest.iter().position(|&b| !is_space(b))?;
        let end = rest[start..].iter().position(|&b| is_space(b));
        let end = end.map_or(rest.len(), |length| start + length);
        self.rest = &rest[end..];
        Some(&rest[start..end])
    }

    /// The next word, which must exist.
    pub(super) fn word(&mut self, expected: &'static str) -> Parsed<&'a [u8]> {
        self.next_word().ok_or_else(|| self.ends_early(expected))
    }

    /// The next word as a number.
    pub(super) fn number<T: std::str::FromStr>(&mut self, expected: &'static str) -> Parsed<T> {
        let word = self.word(expected)?;
        number(word, expected).map_err(|problem| self.fail(problem))
    }

    /// Skips the rest of the line and returns it.
    pub(super) fn end_line(&mut self) -> &'a [u8] {
        let mut lines = Lines::new(self.rest);
        let line = lines.next().unwrap_or_default();
        self.rest = lines.rest();
        line
    }

    /// Skips one line end, before binary values.
    pub(super) fn start_binary(&mut self) {
        let rest = self.rest;
        let rest = rest.strip_prefix(b"\r").unwrap_or(rest);
        self.rest = rest.strip_prefix(b"\n").unwrap_or(self.rest);
    }
}
