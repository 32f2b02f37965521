//! Scalar attributes of vertices and faces: labels, colours, features.

/// A named column with one value per vertex. The column of [`MeshFile::face_attributes`](crate::MeshFile) has one
/// value per face instead.
///
/// Colours are by convention three or four `u8` columns: `red`, `green`, `blue` and `alpha`.
///
/// ```
/// use gemcnn_mesh::{AttributeValues, VertexAttribute};
/// let labels = VertexAttribute::new("label", AttributeValues::U8(vec![3, 1, 2]));
/// assert_eq!(labels.values.to_f64(0), 3.0);
/// assert_eq!(labels.values.gather(&[2, 2]), AttributeValues::U8(vec![2, 2]));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct VertexAttribute {
    /// Name of the attribute; in a PLY file, the name of the property.
    pub name: String,
    /// One value per vertex.
    pub values: AttributeValues,
}

impl VertexAttribute {
    /// Creates an attribute with the given name and values.
    pub fn new(name: impl Into<String>, values: AttributeValues) -> Self {
        Self { name: name.into(), values }
    }
}

/// The values of a [`VertexAttribute`], in the scalar type of the file.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValues {
    /// 8-bit signed integers.
    I8(Vec<i8>),
    /// 8-bit unsigned integers.
    U8(Vec<u8>),
    /// 16-bit signed integers.
    I16(Vec<i16>),
    /// 16-bit unsigned integers.
    U16(Vec<u16>),
    /// 32-bit signed integers.
    I32(Vec<i32>),
    /// 32-bit unsigned integers.
    U32(Vec<u32>),
    /// Single-precision numbers.
    F32(Vec<f32>),
    /// Double-precision numbers.
    F64(Vec<f64>),
}

/// Evaluates `$body` with `$values` bound to the inner vector of any type.
macro_rules! with_values {
    ($attribute:expr, $values:ident => $body:expr) => {
        match $attribute {
            $crate::AttributeValues::I8($values) => $body,
            $crate::AttributeValues::U8($values) => $body,
            $crate::AttributeValues::I16($values) => $body,
            $crate::AttributeValues::U16($values) => $body,
            $crate::AttributeValues::I32($values) => $body,
            $crate::AttributeValues::U32($values) => $body,
            $crate::AttributeValues::F32($values) => $body,
            $crate::AttributeValues::F64($values) => $body,
        }
    };
}
pub(crate) use with_values;

impl AttributeValues {
    /// Number of values.
    pub fn len(&self) -> usize {
        with_values!(self, values => values.len())
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of one vertex. Every type converts to f64 exactly.
    ///
    /// # Panics
    /// If there is no such vertex.
    #[expect(clippy::useless_conversion, reason = "one of the types is f64")]
    pub fn to_f64(&self, vertex: usize) -> f64 {
        with_values!(self, values => f64::from(values[vertex]))
    }

    /// All values in vertex order.
    pub fn iter_f64(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        (0..self.len()).map(|vertex| self.to_f64(vertex))
    }

    /// Gathers the values of the given vertices, in that order. Use this to transfer a column when
    /// vertices are dropped, merged or reordered.
    ///
    /// # Panics
    /// If a vertex index is out of range.
    pub fn gather(&self, vertices: &[u32]) -> Self {
        macro_rules! gather {
            ($($variant:ident)*) => {
                match self {
                    $(Self::$variant(values) => Self::$variant(
                        vertices.iter().map(|&vertex| values[vertex as usize]).collect(),
                    ),)*
                }
            };
        }
        gather!(I8 U8 I16 U16 I32 U32 F32 F64)
    }

    /// Every `step`-th value from `first` on: one component of interleaved vectors.
    pub(crate) fn every(&self, first: usize, step: usize) -> Self {
        macro_rules! every {
            ($($variant:ident)*) => {
                match self {
                    $(Self::$variant(values) => Self::$variant(
                        values.iter().copied().skip(first).step_by(step.max(1)).collect(),
                    ),)*
                }
            };
        }
        every!(I8 U8 I16 U16 I32 U32 F32 F64)
    }

    /// Appends values of the same type. Returns false, and changes nothing, if the types differ.
    pub(crate) fn append(&mut self, more: Self) -> bool {
        macro_rules! append {
            ($($variant:ident)*) => {
                match (self, more) {
                    $((Self::$variant(values), Self::$variant(mut more)) => values.append(&mut more),)*
                    _ => return false,
                }
            };
        }
        append!(I8 U8 I16 U16 I32 U32 F32 F64);
        true
    }
}
