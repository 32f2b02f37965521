//! Accessors: typed views of buffers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use super::json::{Accessor, Buffer, BufferView, Root, element};
use crate::AttributeValues;
use crate::io::base64;
use crate::io::error::{FileProblem, quote};
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

    /// Number of elements of an accessor, and of values in each, without reading it.
    pub(super) fn shape(&self, index: usize) -> Result<(usize, usize), FileProblem> {
        let accessor: Accessor = element(&self.root.accessors, index, "accessor")?;
        Ok((accessor.count, components(&accessor)?))
    }

    /// Reads an accessor.
    pub(super) fn read(&mut self, index: usize) -> Result<Values, FileProblem> {
        let accessor: Accessor = element(&self.root.accessors, index, "accessor")?;
        if accessor.sparse.is_some() {
            return Err(FileProblem::unsupported("a sparse glTF accessor"));
        }
        let Some(view) = accessor.buffer_view else {
            return Err(FileProblem::unsupported("a glTF accessor without data (perhaps with Draco compression)"));
        };
        let scalar = match accessor.component_type {
            5120 => Scalar::I8,
            5121 => Scalar::U8,
            5122 => Scalar::I16,
            5123 => Scalar::U16,
            5125 => Scalar::U32,
            5126 => Scalar::F32,
            other => {
                return Err(bad(format!("accessor {index} has the unknown type {other}")));
            }
        };
        let components = components(&accessor)?;
        let view: BufferView = element(&self.root.buffer_views, view, "buffer view")?;
        let size = scalar.bytes() * components;
        let stride = match view.byte_stride {
            0 => size,
            stride => stride,
        };
        let buffer = self.buffer(view.buffer)?;
        let bytes = buffer
            .bytes()
            .get(view.byte_offset..)
            .and_then(|rest| rest.get(..view.byte_length))
            .and_then(|view| view.get(accessor.byte_offset..));
        let needed = accessor.count.checked_sub(1).map_or(Some(0), |gaps| gaps.checked_mul(stride)?.checked_add(size));
        let (Some(bytes), Some(needed), true) = (bytes, needed, stride >= size) else {
            return Err(bad(format!("accessor {index} exceeds its buffer view or buffer")));
        };
        let Some(bytes) = bytes.get(..needed) else {
            return Err(bad(format!("accessor {index} exceeds its buffer view")));
        };
        let packed: Cow<[u8]> = if stride == size {
            bytes.into()
        } else {
            let mut packed = Vec::with_capacity(accessor.count * size);
            for row in bytes.chunks(stride) {
                packed.extend_from_slice(&row[..size]);
            }
            packed.into()
        };
        Ok(Values {
            components,
            values: scalar.decode(&packed, true),
            normalized: accessor.normalized,
            name: accessor.name.map(Cow::into_owned).unwrap_or_default(),
        })
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
fn file_name(uri: &str) -> Result<String, FileProblem> {
    let name = crate::io::text::percent_decoded(uri.as_bytes());
    let leaves =
        name.contains(':') || name.starts_with(['/', '\\']) || name.split(['/', '\\']).any(|part| part == "..");
    if leaves {
        return Err(FileProblem::external(&name));
    }
    Ok(name)
}
