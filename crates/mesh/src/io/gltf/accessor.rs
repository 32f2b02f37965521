//! Accessors: typed views of buffers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::json::{Accessor, Buffer, BufferView, Root, Sparse, element};
use crate::AttributeValues;
use crate::io::base64;
use crate::io::error::{FileProblem, quote, quote_name};
use crate::io::format::ReadOther;
use crate::io::scalar::Scalar;

/// The buffers of a file, loaded on first use.
pub(super) struct Data<'a> {
    root: &'a Root<'a>,
    binary: Option<&'a [u8]>,
    read_other: ReadOther<'a>,
    /// Contents of the buffers with a URI.
    loaded: HashMap<usize, Rc<Vec<u8>>>,
    files: HashMap<String, Rc<Vec<u8>>>,
    /// Size of the file and of those it refers to.
    pub(super) file_size: usize,
}

/// Values of an accessor.
pub(super) struct Values {
    pub(super) components: usize,
    pub(super) values: AttributeValues,
    /// True if integers stand for fractions of their range.
    pub(super) normalized: bool,
    /// Name of the accessor, or an empty string.
    pub(super) name: String,
}

fn bad(why: String) -> FileProblem {
    FileProblem::BadDocument { why }
}

impl<'a> Data<'a> {
    pub(super) fn new(
        root: &'a Root<'a>,
        binary: Option<&'a [u8]>,
        file_size: usize,
        read_other: ReadOther<'a>,
    ) -> Self {
        Self { root, binary, read_other, loaded: HashMap::new(), files: HashMap::new(), file_size }
    }

    /// Number of elements of an accessor, and of values in each, without reading it. Its data are there.
    pub(super) fn shape(&mut self, index: usize) -> Result<(usize, usize), FileProblem> {
        let accessor: Accessor = element(&self.root.accessors, index, "accessor")?;
        let (components, scalar) = (components(&accessor)?, scalar(index, accessor.component_type)?);
        if let Some(view) = accessor.buffer_view {
            let size = scalar.bytes() * components;
            self.rows(index, &Rows { view, offset: accessor.byte_offset, count: accessor.count, size })?;
        }
        Ok((accessor.count, components))
    }

    /// Reads an accessor, for whose elements the caller has claimed memory.
    pub(super) fn read(&mut self, index: usize) -> Result<Values, FileProblem> {
        let accessor: Accessor = element(&self.root.accessors, index, "accessor")?;
        let (components, scalar) = (components(&accessor)?, scalar(index, accessor.component_type)?);
        let (count, size) = (accessor.count, scalar.bytes() * components);
        let mut packed = match (accessor.buffer_view, &accessor.sparse) {
            (Some(view), _) => self.packed(index, &Rows { view, offset: accessor.byte_offset, count, size })?,
            (None, Some(_)) => vec![0; count.saturating_mul(size)],
            (None, None) => {
                return Err(FileProblem::unsupported("a glTF accessor without data (perhaps with Draco compression)"));
            }
        };
        if let Some(Sparse { count, indices, values }) = accessor.sparse {
            let number = self::scalar(index, indices.component_type)?;
            let [at, new] = [(indices, number.bytes()), (values, size)].map(|(part, size)| Rows {
                view: part.buffer_view,
                offset: part.byte_offset,
                count,
                size,
            });
            let places = number.decode(&self.packed(index, &at)?, true);
            for (place, row) in places.iter_f64().zip(self.packed(index, &new)?.chunks_exact(size)) {
                let start = (place as usize).saturating_mul(size);
                let Some(old) = packed.get_mut(start..).and_then(|rest| rest.get_mut(..size)) else {
                    return Err(bad(format!("accessor {index} has a sparse value for element {place}")));
                };
                old.copy_from_slice(row);
            }
        }
        Ok(Values {
            components,
            values: scalar.decode(&packed, true),
            normalized: accessor.normalized,
            name: accessor.name.map(Cow::into_owned).unwrap_or_default(),
        })
    }

    /// The rows of an accessor without the bytes between them.
    fn packed(&mut self, index: usize, rows: &Rows) -> Result<Vec<u8>, FileProblem> {
        let (buffer, range, stride) = self.rows(index, rows)?;
        let bytes = buffer.bytes().get(range).unwrap_or_default();
        if stride == rows.size {
            return Ok(bytes.to_vec());
        }
        let mut packed = Vec::with_capacity(rows.count * rows.size);
        for row in bytes.chunks(stride) {
            packed.extend_from_slice(&row[..rows.size]);
        }
        Ok(packed)
    }

    /// The buffer of rows, their place in it, and the distance between them.
    fn rows(&mut self, index: usize, rows: &Rows) -> Result<(Contents<'a>, Range<usize>, usize), FileProblem> {
        let view: BufferView = element(&self.root.buffer_views, rows.view, "buffer view")?;
        let stride = match view.byte_stride {
            0 => rows.size,
            stride => stride,
        };
        let gaps = rows.count.checked_sub(1);
        let needed = gaps.map_or(Some(0), |gaps| gaps.checked_mul(stride)?.checked_add(rows.size));
        let end = needed.and_then(|needed| rows.offset.checked_add(needed));
        let Some(end) = end.filter(|&end| end <= view.byte_length && stride >= rows.size) else {
            return Err(bad(format!("accessor {index} exceeds its buffer view")));
        };
        let buffer = self.buffer(view.buffer)?;
        let length = buffer.bytes().len();
        // The end is not before the start of the rows.
        match view.byte_offset.checked_add(end).filter(|&end| end <= length) {
            Some(end) => Ok((buffer, view.byte_offset + rows.offset..end, stride)),
            None => {
                let number = view.buffer;
                let file: Option<Buffer> = element(&self.root.buffers, number, "buffer").ok();
                let file = file.and_then(|buffer| buffer.uri).filter(|uri| !uri.starts_with("data:"));
                let file = file.map_or(String::new(), |uri| format!(" in the file '{}'", quote_name(&uri)));
                Err(bad(format!("accessor {index} exceeds buffer {number}, which has {length} bytes{file}")))
            }
        }
    }

    fn buffer(&mut self, index: usize) -> Result<Contents<'a>, FileProblem> {
        if let Some(loaded) = self.loaded.get(&index) {
            return Ok(Contents::Loaded(Rc::clone(loaded)));
        }
        let buffer: Buffer = element(&self.root.buffers, index, "buffer")?;
        let Some(uri) = buffer.uri else {
            let binary = self.binary.ok_or_else(|| bad(format!("buffer {index} has no data")))?;
            return Ok(Contents::Chunk(binary));
        };
        let content = if let Some(data) = uri.strip_prefix("data:") {
            let (kind, text) = data.split_once(',').unwrap_or_default();
            if !kind.ends_with(";base64") {
                return Err(FileProblem::unsupported("a glTF data URI that is not Base64"));
            }
            Rc::new(base64::decode(text.as_bytes())?)
        } else if let Some(content) = self.files.get(uri.as_ref()) {
            Rc::clone(content)
        } else {
            let content = Rc::new((self.read_other)(&file_name(&uri)?)?);
            self.file_size = self.file_size.saturating_add(content.len());
            self.files.insert(uri.into_owned(), Rc::clone(&content));
            content
        };
        self.loaded.insert(index, Rc::clone(&content));
        Ok(Contents::Loaded(content))
    }
}

/// Rows of a buffer view.
struct Rows {
    view: usize,
    offset: usize,
    count: usize,
    /// Bytes of a row.
    size: usize,
}

/// Bytes of a buffer.
enum Contents<'a> {
    Chunk(&'a [u8]),
    Loaded(Rc<Vec<u8>>),
}

impl Contents<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Chunk(bytes) => bytes,
            Self::Loaded(bytes) => bytes,
        }
    }
}

fn scalar(accessor: usize, component_type: u32) -> Result<Scalar, FileProblem> {
    Ok(match component_type {
        5120 => Scalar::I8,
        5121 => Scalar::U8,
        5122 => Scalar::I16,
        5123 => Scalar::U16,
        5125 => Scalar::U32,
        5126 => Scalar::F32,
        other => return Err(bad(format!("accessor {accessor} has the unknown type {other}"))),
    })
}

fn components(accessor: &Accessor) -> Result<usize, FileProblem> {
    match accessor.kind.as_ref() {
        "SCALAR" => Ok(1),
        "VEC2" => Ok(2),
        "VEC3" => Ok(3),
        "VEC4" => Ok(4),
        other => Err(FileProblem::unsupported(format!("a glTF accessor of type '{}'", quote(other.as_bytes())))),
    }
}

/// The file name of a URI, which must be relative and must not leave the folder.
pub(super) fn file_name(uri: &str) -> Result<String, FileProblem> {
    let name = crate::io::text::percent_decoded(uri.as_bytes());
    let leaves =
        name.contains(':') || name.starts_with(['/', '\\']) || name.split(['/', '\\']).any(|part| part == "..");
    if leaves {
        return Err(FileProblem::OutsideFolder { file: quote_name(&name) });
    }
    Ok(name)
}
