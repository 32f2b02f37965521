//! The header: encoding, elements and properties.

use std::collections::HashSet;

use super::PlyEncoding;
use crate::io::Tally;
use crate::io::budget::ByteBudget;
use crate::io::error::{FileProblem, Location, Parsed, quote};
use crate::io::scalar::{Naming, Scalar};
use crate::io::text::{Lines, Words, number};

/// Type of a property.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Scalar(Scalar),
    List { length: Scalar, item: Scalar },
}

pub(super) struct Property<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: Kind,
}

pub(super) struct Element<'a> {
    pub(super) name: &'a [u8],
    pub(super) count: u64,
    pub(super) properties: Vec<Property<'a>>,
    /// Header line of the declaration.
    pub(super) line: usize,
}

impl Element<'_> {
    /// Minimum size of one element in bytes.
    fn least_bytes(&self, encoding: PlyEncoding) -> u64 {
        let properties = self.properties.iter();
        let bytes = match encoding {
            // A digit and a space.
            PlyEncoding::Ascii => 2 * properties.len(),
            _ => properties
                .map(|property| match property.kind {
                    Kind::Scalar(scalar) => scalar.bytes(),
                    Kind::List { length, .. } => length.bytes(),
                })
                .sum(),
        };
        bytes as u64
    }

    pub(super) fn truncated(&self, read: u64) -> FileProblem {
        FileProblem::Truncated { element: quote(self.name), read, declared: self.count }
    }
}

pub(super) struct Header<'a> {
    pub(super) encoding: PlyEncoding,
    pub(super) elements: Vec<Element<'a>>,
    /// Lines that are not part of a header, which are skipped.
    pub(super) stray_lines: Tally,
    /// Offset of the first byte after the header.
    pub(super) end: usize,
}

impl<'a> Header<'a> {
    /// Reads the header and checks that the rest of the file can hold the declared elements.
    pub(super) fn read(content: &'a [u8]) -> Parsed<(Self, Lines<'a>)> {
        let mut lines = Lines::new(content);
        let magic = lines.next().unwrap_or_default();
        if !super::is_magic(magic) {
            return Err(bad_header("the first line is not 'ply'").of_file());
        }
        let bare_returns = content[magic.len()..].starts_with(b"\r") && !content[magic.len()..].starts_with(b"\r\n");
        let mut parts = HeaderParts::default();
        while let Some(line) = lines.next() {
            if !parts.line(Words::new(line), lines.number()).map_err(|problem| problem.at_line(lines.number()))? {
                continue;
            }
            let mut end = content.len() - lines.rest().len();
            if bare_returns && content[..end].ends_with(b"\r\n") {
                // In a file with bare `\r` line ends, this `\n` is the first byte of data.
                end -= 1;
            }
            let encoding = parts.encoding.ok_or_else(|| missing("format").at_line(lines.number()))?;
            let header = Self { encoding, elements: parts.elements, stray_lines: parts.stray_lines, end };
            header.check_counts(content)?;
            return Ok((header, lines));
        }
        Err(missing("end_header").at_line(lines.number()))
    }

    fn check_counts(&self, content: &[u8]) -> Parsed<()> {
        // In text the last value needs no trailing space.
        let spare = usize::from(self.encoding == PlyEncoding::Ascii);
        let mut budget = ByteBudget::new(content.len() - self.end + spare, content.len());
        for element in &self.elements {
            budget
                .claim(element.name, element.count, element.least_bytes(self.encoding))
                .map_err(|problem| problem.at_line(element.line))?;
        }
        Ok(())
    }
}

/// State of the header reader.
#[derive(Default)]
struct HeaderParts<'a> {
    encoding: Option<PlyEncoding>,
    elements: Vec<Element<'a>>,
    /// Names so far, to detect duplicates.
    element_names: HashSet<&'a [u8]>,
    property_names: HashSet<&'a [u8]>,
    stray_lines: Tally,
}

impl<'a> HeaderParts<'a> {
    /// Processes one line; true if it is the last line of the header.
    fn line(&mut self, mut words: Words<'a>, number: usize) -> Result<bool, FileProblem> {
        match words.next() {
            None | Some(b"comment" | b"obj_info") => {}
            Some(b"end_header") => return Ok(true),
            Some(b"format") => self.encoding = Some(read_format(words)?),
            Some(b"element") => {
                let element = read_element(words, number)?;
                check_new(&mut self.element_names, element.name)?;
                self.property_names = HashSet::new();
                self.elements.push(element);
            }
            Some(b"property") => {
                let property = read_property(words)?;
                check_new(&mut self.property_names, property.name)?;
                self.elements
                    .last_mut()
                    .ok_or_else(|| bad_header("a property precedes the first element"))?
                    .properties
                    .push(property);
            }
            // A stray line, such as a comment without its keyword.
            Some(_) => self.stray_lines.add(|| Location::Line(number)),
        }
        Ok(false)
    }
}

pub(super) fn bad_header(why: impl Into<String>) -> FileProblem {
    FileProblem::BadHeader { why: why.into() }
}

pub(super) fn missing(line: &str) -> FileProblem {
    bad_header(format!("the line '{line}' is missing"))
}

fn check_new<'a>(names: &mut HashSet<&'a [u8]>, name: &'a [u8]) -> Result<(), FileProblem> {
    if names.insert(name) {
        return Ok(());
    }
    Err(bad_header(format!("the name '{}' is used twice", quote(name))))
}

fn read_format(mut words: Words) -> Result<PlyEncoding, FileProblem> {
    let name = words.next().unwrap_or_default();
    let version = words.next().unwrap_or_default();
    let encoding = [PlyEncoding::Ascii, PlyEncoding::LittleEndian, PlyEncoding::BigEndian]
        .into_iter()
        .find(|encoding| encoding.name().as_bytes() == name);
    match encoding {
        Some(encoding) if version == b"1.0" => Ok(encoding),
        _ => Err(FileProblem::unsupported(format!("PLY format '{} {}'", quote(name), quote(version)))),
    }
}

/// `element NAME COUNT`
fn read_element(mut words: Words, line: usize) -> Result<Element, FileProblem> {
    let (Some(name), Some(count)) = (words.next(), words.next()) else {
        return Err(bad_header("'element' needs a name and a count"));
    };
    Ok(Element { name, count: number(count, "a count")?, properties: Vec::new(), line })
}

/// `property TYPE NAME` or `property list LENGTH_TYPE ITEM_TYPE NAME`
fn read_property(mut words: Words) -> Result<Property, FileProblem> {
    let scalar = |words: &mut Words| {
        let word = words.next().unwrap_or_default();
        Scalar::named(Naming::Ply, word).ok_or_else(|| FileProblem::Unexpected {
            found: quote(word),
            expected: "a type such as 'float', 'int' or 'uchar'",
        })
    };
    let kind = if words.peek() == Some(b"list") {
        words.next();
        let length = scalar(&mut words)?;
        let item = scalar(&mut words)?;
        if !length.is_integer() {
            return Err(bad_header("the length of a list must be of an integer type"));
        }
        Kind::List { length, item }
    } else {
        Kind::Scalar(scalar(&mut words)?)
    };
    let name = words.next().ok_or_else(|| bad_header("'property' needs a type and a name"))?;
    Ok(Property { name, kind })
}
