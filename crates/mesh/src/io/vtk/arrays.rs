//! Arrays of XML files: text, Base64 or raw bytes, with or without zlib compression.

use std::borrow::Cow;

use crate::AttributeValues;
use crate::io::base64;
use crate::io::error::{FileProblem, quote};
use crate::io::inflate::Inflater;
use crate::io::scalar::{Naming, Scalar, Value};
use crate::io::text::Words;
use crate::io::xml::Tag;

/// How the arrays of a file are stored.
pub(super) struct Storage<'a> {
    pub(super) little_endian: bool,
    /// True if sizes have 64 bits, otherwise 32.
    pub(super) wide_sizes: bool,
    pub(super) compressed: bool,
    /// Bytes after the XML part of the file.
    pub(super) appended: Option<Source<'a>>,
    pub(super) inflater: Inflater,
    /// Encoded bytes that may still be read: appended arrays may overlap, but not without limit.
    pub(super) bytes_left: u64,
}

const TOO_SHORT: &str = "an array has fewer bytes than its header declares";

impl Storage<'_> {
    /// The values of a `DataArray` element with the given text.
    pub(super) fn read(&mut self, tag: &Tag, text: &str) -> Result<AttributeValues, FileProblem> {
        let name = tag.attribute("type").unwrap_or_default();
        let scalar = Scalar::named(Naming::VtkXml, name.as_bytes())
            .ok_or_else(|| FileProblem::unsupported(format!("a VTK array of type '{}'", quote(name.as_bytes()))))?;
        let format = tag.attribute("format").unwrap_or_default();
        let bytes: Cow<[u8]> = match format.as_str() {
            "ascii" | "" => return text_values(scalar, text),
            "binary" => {
                let text = base64::compact(text.as_bytes());
                self.decode(Source::Base64(&text))?.into_owned().into()
            }
            "appended" => {
                let offset = tag.number("offset", 0)?;
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                let missing = || FileProblem::bad_data("an array refers to data after the end of the file");
                let data = self.appended.and_then(|data| data.skip(offset));
                self.decode(data.ok_or_else(missing)?)?
            }
            _ => {
                return Err(FileProblem::unsupported(format!("the VTK array format '{}'", quote(format.as_bytes()))));
            }
        };
        if !bytes.len().is_multiple_of(scalar.bytes()) {
            return Err(FileProblem::bad_data("the size of an array is not a multiple of its type"));
        }
        Ok(scalar.decode(&bytes, self.little_endian))
    }

    fn decode<'s>(&mut self, source: Source<'s>) -> Result<Cow<'s, [u8]>, FileProblem> {
        let size = if self.wide_sizes { 8 } else { 4 };
        if source.is_empty() {
            return Ok(Cow::Borrowed(&[]));
        }
        let (first, _) = source.split(size)?;
        let count = self.size(&first, 0)?;
        if !self.compressed {
            self.claim(count)?;
            return source.after_header(size, count);
        }
        // Number of blocks, their inflated size, that of the last one, and the compressed sizes.
        let header_size = count.saturating_add(3).saturating_mul(size);
        let (header, data) = source.split(header_size)?;
        let sizes: Vec<u64> =
            (0..count as usize).map(|block| self.size(&header, 3 + block)).collect::<Result<_, _>>()?;
        let total = sizes.iter().try_fold(0_u64, |sum, &size| sum.checked_add(size));
        let total = total.ok_or_else(|| FileProblem::bad_data(TOO_SHORT))?;
        self.claim(total)?;
        let (data, _) = data.split(total)?;
        let mut rest = &data[..];
        let mut inflated = Vec::new();
        for size in sizes {
            let (block, after) = rest.split_at(size as usize);
            self.inflater.inflate(block, &mut inflated)?;
            rest = after;
        }
        Ok(inflated.into())
    }

    fn claim(&mut self, bytes: u64) -> Result<(), FileProblem> {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.ok_or_else(|| FileProblem::bad_data(TOO_SHORT))?;
        Ok(())
    }

    /// A number of a header.
    fn size(&self, header: &[u8], place: usize) -> Result<u64, FileProblem> {
        let value = if self.wide_sizes {
            header.get(8 * place..).and_then(|b| u64::split_from(b, self.little_endian)).map(|v| v.0)
        } else {
            header.get(4 * place..).and_then(|b| u32::split_from(b, self.little_endian)).map(|v| u64::from(v.0))
        };
        value.ok_or_else(|| FileProblem::bad_data(TOO_SHORT))
    }
}

fn text_values(scalar: Scalar, text: &str) -> Result<AttributeValues, FileProblem> {
    let words = Words::new(text.as_bytes());
    let count = words.clone().count();
    let values = scalar.parse_words(&mut words.clone(), count)?;
    values.ok_or_else(|| FileProblem::bad_data(TOO_SHORT))
}

/// Encoded bytes of an array, and perhaps of others after it.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Raw(&'a [u8]),
    Base64(&'a [u8]),
}

impl<'a> Source<'a> {
    fn is_empty(self) -> bool {
        match self {
            Self::Raw(data) | Self::Base64(data) => data.is_empty(),
        }
    }

    /// What follows the first `bytes` encoded bytes; `None` if that is nothing.
    fn skip(self, bytes: usize) -> Option<Self> {
        let rest = match self {
            Self::Raw(data) => Self::Raw(data.get(bytes..)?),
            Self::Base64(text) => Self::Base64(text.get(bytes..)?),
        };
        (!rest.is_empty()).then_some(rest)
    }

    /// The first `bytes` bytes, and the source after them. In Base64 the rest starts a new encoded
    /// part.
    fn split(self, bytes: u64) -> Result<(Cow<'a, [u8]>, Self), FileProblem> {
        let at = |data: &'a [u8], bytes: u64| {
            let bytes = usize::try_from(bytes).ok();
            bytes.and_then(|bytes| data.split_at_checked(bytes)).ok_or_else(|| FileProblem::bad_data(TOO_SHORT))
        };
        match self {
            Self::Raw(data) => {
                let (taken, rest) = at(data, bytes)?;
                Ok((taken.into(), Self::Raw(rest)))
            }
            Self::Base64(text) => {
                let length = base64::encoded_length(bytes);
                // The last part of a text may lack its padding.
                let available = text.len() as u64;
                let length = if length > available && length - available < 3 { available } else { length };
                let (taken, rest) = at(text, length)?;
                let mut decoded = base64::decode(taken)?;
                if (decoded.len() as u64) < bytes {
                    return Err(FileProblem::bad_data(TOO_SHORT));
                }
                decoded.truncate(bytes as usize);
                Ok((decoded.into(), Self::Base64(rest)))
            }
        }
    }

    /// The `bytes` bytes after a header of `size` bytes. In Base64 header and data are encoded
    /// together, or the header has its own padding.
    fn after_header(self, size: u64, bytes: u64) -> Result<Cow<'a, [u8]>, FileProblem> {
        let Self::Base64(text) = self else {
            let (_, data) = self.split(size)?;
            return Ok(data.split(bytes)?.0);
        };
        let header = usize::try_from(base64::encoded_length(size)).unwrap_or(usize::MAX);
        if text.get(..header).is_some_and(|header| header.ends_with(b"=")) && text.len() > header {
            return Ok(Self::Base64(&text[header..]).split(bytes)?.0);
        }
        let total = size.checked_add(bytes).ok_or_else(|| FileProblem::bad_data(TOO_SHORT))?;
        let mut data = self.split(total)?.0.into_owned();
        data.drain(..size as usize);
        Ok(data.into())
    }
}
