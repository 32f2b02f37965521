//! Numbers of a section, in text or binary.

use glam::DVec3;

use crate::io::cursor::Bytes;
use crate::io::error::{Fault, FileProblem, Parsed};

pub(super) struct Input<'a> {
    pub(super) bytes: Bytes<'a>,
    pub(super) is_binary: bool,
}

impl<'a> Input<'a> {
    pub(super) fn new(content: &'a [u8]) -> Self {
        Self { bytes: Bytes::new(content, true), is_binary: false }
    }

    pub(super) fn fail(&self, problem: FileProblem) -> Box<Fault> {
        self.bytes.fail(problem)
    }

    /// Goes to the values after the name of a section or a line of text.
    pub(super) fn start(&mut self) {
        if self.is_binary {
            self.bytes.end_line();
        }
    }

    /// A count in text, after which values start.
    pub(super) fn counted(&mut self) -> Parsed<u64> {
        let count = self.bytes.number("a count")?;
        self.start();
        Ok(count)
    }

    /// A 32-bit integer.
    pub(super) fn int(&mut self) -> Parsed<i64> {
        match self.is_binary {
            true => self.bytes.value::<i32>("an integer").map(i64::from),
            false => self.bytes.number("an integer"),
        }
    }

    /// A node or element tag of 32 bits.
    pub(super) fn tag(&mut self) -> Parsed<u64> {
        if self.is_binary { self.bytes.value::<u32>("a tag").map(u64::from) } else { self.bytes.number("a tag") }
    }

    /// A count or tag of 64 bits.
    pub(super) fn size(&mut self) -> Parsed<u64> {
        if self.is_binary { self.bytes.value("a count") } else { self.bytes.number("a count") }
    }

    pub(super) fn double(&mut self) -> Parsed<f64> {
        if self.is_binary { self.bytes.value("a number") } else { self.bytes.number("a number") }
    }

    pub(super) fn point(&mut self) -> Parsed<DVec3> {
        Ok(DVec3::new(self.double()?, self.double()?, self.double()?))
    }

    /// Goes to the end of a section, after the line `$EndNAME`.
    pub(super) fn skip_section(&mut self, name: &[u8]) -> Parsed<()> {
        let end = [b"$End", name].concat();
        let rest = self.bytes.rest();
        let found = rest.windows(end.len()).position(|window| window == end);
        let at = found.ok_or_else(|| {
            let expected = "the end of a section";
            self.fail(FileProblem::EndsEarly { expected })
        })?;
        self.bytes.go_on(&rest[at + end.len()..]);
        Ok(())
    }
}
