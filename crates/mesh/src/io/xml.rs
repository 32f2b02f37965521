//! XML documents as a sequence of tags and texts.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};

use super::error::{Fault, FileProblem, Parsed, quote};
use super::text::Lines;

/// True if a file is XML, with a tag near its start.
pub(super) fn starts_with_tag(content: &[u8], tag: &[u8]) -> bool {
    let start = &content[..content.len().min(1 << 12)];
    content.trim_ascii_start().starts_with(b"<") && start.windows(tag.len()).any(|window| window == tag)
}

/// A part of a document. Comments, declarations and processing instructions are left out, and an
/// empty tag is an opening and a closing one.
pub(super) enum Node<'a> {
    Open(Tag<'a>),
    /// A closing tag, which matches the last open one.
    Close,
    /// Text between tags, or a part of it.
    Text(Cow<'a, str>),
    /// End of the document.
    End,
}

/// An opening tag.
pub(super) struct Tag<'a> {
    start: BytesStart<'a>,
}

impl Tag<'_> {
    pub(super) fn name(&self) -> &str {
        let name = self.start.name().into_inner();
        name.rsplit_once(':').map_or(name, |(_, local)| local)
    }

    /// The value of an attribute.
    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        let mut attributes = self.start.attributes();
        // Duplicates are harmless; looking for them takes quadratic time.
        let found = attributes.with_checks(false).flatten().find(|attribute| attribute.key.into_inner() == name)?;
        let value = &*found.value;
        Some(unescape(value).map_or_else(|_| value.to_owned(), Cow::into_owned))
    }

    /// The value of an attribute that is a number; `default` if the attribute is missing.
    pub(super) fn number(&self, name: &str, default: u64) -> Result<u64, FileProblem> {
        match self.attribute(name) {
            None => Ok(default),
            Some(text) => super::text::number(text.trim().as_bytes(), "a count"),
        }
    }
}

/// Reader of a document.
pub(super) struct Document<'a> {
    reader: Reader<&'a [u8]>,
    text: &'a str,
    /// Number of open elements.
    depth: usize,
}

impl<'a> Document<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut reader = Reader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        Self { reader, text, depth: 0 }
    }

    /// The next part.
    pub(super) fn next(&mut self) -> Parsed<Node<'a>> {
        loop {
            return Ok(match self.reader.read_event() {
                Ok(Event::Start(start) | Event::Empty(start)) => {
                    self.depth += 1;
                    Node::Open(Tag { start })
                }
                Ok(Event::End(_)) => {
                    self.depth = self.depth.saturating_sub(1);
                    Node::Close
                }
                Ok(Event::Text(text)) => Node::Text(text.into_inner()),
                Ok(Event::CData(text)) => Node::Text(text.into_inner()),
                Ok(Event::GeneralRef(name)) => {
                    let entity = format!("&{};", &*name);
                    let text = unescape(&entity).map_or_else(|_| String::new(), Cow::into_owned);
                    Node::Text(text.into())
                }
                Ok(Event::Eof) => Node::End,
                Ok(_) => continue,
                Err(error) => {
                    let why = format!("bad XML: {}", quote(error.to_string().as_bytes()));
                    return Err(self.fail(FileProblem::BadDocument { why }));
                }
            });
        }
    }

    /// The text of the element that was opened last, up to its closing tag. Elements in it are
    /// skipped, with their texts.
    pub(super) fn text_of_element(&mut self) -> Parsed<Cow<'a, str>> {
        let mut text = Cow::Borrowed("");
        let mut depth = 0;
        loop {
            match self.next()? {
                Node::Open(_) => depth += 1,
                Node::Close if depth == 0 => return Ok(text),
                Node::Close => depth -= 1,
                Node::Text(part) if depth == 0 => {
                    if text.trim_ascii().is_empty() {
                        text = part;
                    } else if !part.trim_ascii().is_empty() {
                        text.to_mut().push_str(&part);
                    }
                }
                Node::Text(_) => {}
                Node::End => return Err(self.ends_early()),
            }
        }
    }

    /// Checks at the end of the document that no more than `open` elements are still open.
    pub(super) fn check_end(&self, open: usize) -> Parsed<()> {
        if self.depth <= open { Ok(()) } else { Err(self.ends_early()) }
    }

    fn ends_early(&self) -> Box<Fault> {
        let expected = "a closing tag";
        self.fail(FileProblem::EndsEarly { expected })
    }

    /// A problem at the current line.
    pub(super) fn fail(&self, problem: FileProblem) -> Box<Fault> {
        let at = usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX);
        let read = &self.text.as_bytes()[..at.min(self.text.len())];
        problem.at_line(Lines::new(read).count().max(1))
    }
}
