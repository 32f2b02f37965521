//! Scalar types of binary and text files.

use super::error::FileProblem;
use super::text::number;
use crate::AttributeValues;
use crate::attribute::with_values;

/// A scalar type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

/// Formats with names for scalar types.
#[derive(Debug, Clone, Copy)]
pub(super) enum Naming {
    Ply,
    VtkXml,
    /// In lower case.
    VtkLegacy,
    /// Names and codes.
    Gifti,
}

/// The names of each type, by [`Naming`]. Files are written with the first name.
const NAMES: [(Scalar, [&str; 4]); 10] = [
    (Scalar::I8, ["char int8", "Int8", "char signed_char vtktypeint8", "INT8 256"]),
    (Scalar::U8, ["uchar uint8", "UInt8", "unsigned_char vtktypeuint8", "UINT8 2"]),
    (Scalar::I16, ["short int16", "Int16", "short vtktypeint16", "INT16 4"]),
    (Scalar::U16, ["ushort uint16", "UInt16", "unsigned_short vtktypeuint16", "UINT16 512"]),
    (Scalar::I32, ["int int32", "Int32", "int vtkidtype vtktypeint32", "INT32 8"]),
    (Scalar::U32, ["uint uint32", "UInt32", "unsigned_int vtktypeuint32", "UINT32 768"]),
    (Scalar::I64, ["", "Int64", "long long_long vtktypeint64", "INT64 1024"]),
    (Scalar::U64, ["", "UInt64", "unsigned_long unsigned_long_long vtktypeuint64", "UINT64 1280"]),
    (Scalar::F32, ["float float32", "Float32", "float", "FLOAT32 16"]),
    (Scalar::F64, ["double float64", "Float64", "double", "FLOAT64 64"]),
];

impl Scalar {
    /// All names in a format.
    fn names(self, naming: Naming) -> impl Iterator<Item = &'static str> {
        NAMES[self as usize].1[naming as usize].split_whitespace()
    }

    /// The type of a name.
    pub(super) fn named(naming: Naming, name: &[u8]) -> Option<Self> {
        let mut types = NAMES.iter().map(|&(scalar, _)| scalar);
        types.find(|scalar| scalar.names(naming).any(|known| known.as_bytes() == name))
    }

    /// The name that is written.
    pub(super) fn name(self, naming: Naming) -> &'static str {
        self.names(naming).next().unwrap_or_default()
    }

    pub(super) fn is_integer(self) -> bool {
        !matches!(self, Self::F32 | Self::F64)
    }

    /// Size in bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Creates an empty column of this type; 64-bit integers are stored as f64.
    pub(super) fn column(self, capacity: usize) -> AttributeValues {
        match self {
            Self::I8 => AttributeValues::I8(Vec::with_capacity(capacity)),
            Self::U8 => AttributeValues::U8(Vec::with_capacity(capacity)),
            Self::I16 => AttributeValues::I16(Vec::with_capacity(capacity)),
            Self::U16 => AttributeValues::U16(Vec::with_capacity(capacity)),
            Self::I32 => AttributeValues::I32(Vec::with_capacity(capacity)),
            Self::U32 => AttributeValues::U32(Vec::with_capacity(capacity)),
            Self::F32 => AttributeValues::F32(Vec::with_capacity(capacity)),
            Self::I64 | Self::U64 | Self::F64 => AttributeValues::F64(Vec::with_capacity(capacity)),
        }
    }
}

/// Evaluates `$values!(Variant, type)` for the column of a scalar type. 64-bit integers, which no
/// column holds, are narrowed by [`narrow`].
macro_rules! collect {
    ($scalar:expr, $values:ident) => {
        match $scalar {
            Scalar::I8 => AttributeValues::I8($values!(i8)),
            Scalar::U8 => AttributeValues::U8($values!(u8)),
            Scalar::I16 => AttributeValues::I16($values!(i16)),
            Scalar::U16 => AttributeValues::U16($values!(u16)),
            Scalar::I32 => AttributeValues::I32($values!(i32)),
            Scalar::U32 => AttributeValues::U32($values!(u32)),
            Scalar::I64 => narrow(&$values!(i64), |value| value as f64),
            Scalar::U64 => narrow(&$values!(u64), |value| value as f64),
            Scalar::F32 => AttributeValues::F32($values!(f32)),
            Scalar::F64 => AttributeValues::F64($values!(f64)),
        }
    };
}

impl Scalar {
    /// Decodes an array. Bytes after the last whole value are ignored.
    pub(super) fn decode(self, bytes: &[u8], little_endian: bool) -> AttributeValues {
        macro_rules! values {
            ($type:ty) => {
                bytes
                    .chunks_exact(size_of::<$type>())
                    .filter_map(|value| <$type>::split_from(value, little_endian))
                    .map(|(value, _)| value)
                    .collect::<Vec<$type>>()
            };
        }
        collect!(self, values)
    }

    /// Parses an array of `count` words, for which the caller has checked that there is room.
    /// Returns `None` if there are fewer words.
    pub(super) fn parse_words<'a>(
        self,
        words: &mut impl Iterator<Item = &'a [u8]>,
        count: usize,
    ) -> Result<Option<AttributeValues>, FileProblem> {
        macro_rules! values {
            ($type:ty) => {{
                let mut values = Vec::with_capacity(count);
                for _ in 0..count {
                    let Some(word) = words.next() else { return Ok(None) };
                    values.push(number::<$type>(word, <$type>::EXPECTED)?);
                }
                values
            }};
        }
        Ok(Some(collect!(self, values)))
    }
}

/// Stores 64-bit integers in the first of `i32`, `u32` and `f64` that can hold them all; `f64` is
/// exact up to 2^53.
fn narrow<T>(values: &[T], to_f64: fn(T) -> f64) -> AttributeValues
where
    T: Copy + TryInto<i32> + TryInto<u32>,
{
    fn all<T: Copy + TryInto<U>, U>(values: &[T]) -> Option<Vec<U>> {
        values.iter().map(|&value| value.try_into().ok()).collect()
    }
    if let Some(narrow) = all(values) {
        AttributeValues::I32(narrow)
    } else if let Some(narrow) = all(values) {
        AttributeValues::U32(narrow)
    } else {
        AttributeValues::F64(values.iter().map(|&value| to_f64(value)).collect())
    }
}

/// A scalar value of a file.
pub(super) trait Value: std::str::FromStr + std::fmt::Debug + Copy {
    /// The type.
    const SCALAR: Scalar;
    /// Description of a valid word, for error messages.
    const EXPECTED: &'static str;
    /// Splits a value from the start of `bytes`.
    fn split_from(bytes: &[u8], little_endian: bool) -> Option<(Self, &[u8])>;
    /// Appends the bytes of the value.
    fn append_to(self, bytes: &mut Vec<u8>, little_endian: bool);
}

macro_rules! impl_value {
    ($($type:ty, $scalar:ident, $expected:literal;)*) => {$(
        impl Value for $type {
            const SCALAR: Scalar = Scalar::$scalar;
            const EXPECTED: &'static str = $expected;

            fn split_from(bytes: &[u8], little_endian: bool) -> Option<(Self, &[u8])> {
                let (&bytes, rest) = bytes.split_first_chunk()?;
                let value = if little_endian {
                    Self::from_le_bytes(bytes)
                } else {
                    Self::from_be_bytes(bytes)
                };
                Some((value, rest))
            }

            fn append_to(self, bytes: &mut Vec<u8>, little_endian: bool) {
                if little_endian {
                    bytes.extend_from_slice(&self.to_le_bytes());
                } else {
                    bytes.extend_from_slice(&self.to_be_bytes());
                }
            }
        }
    )*};
}
impl_value! {
    i8, I8, "an integer from -128 to 127 (char)";
    u8, U8, "an integer from 0 to 255 (uchar)";
    i16, I16, "a signed 16-bit integer (short)";
    u16, U16, "an unsigned 16-bit integer (ushort)";
    i32, I32, "a signed 32-bit integer (int)";
    u32, U32, "an unsigned 32-bit integer (uint)";
    i64, I64, "a signed 64-bit integer";
    u64, U64, "an unsigned 64-bit integer";
    f32, F32, "a number";
    f64, F64, "a number";
}

impl AttributeValues {
    /// Type of the values.
    pub(super) fn scalar(&self) -> Scalar {
        fn of<T: Value>(_: &[T]) -> Scalar {
            T::SCALAR
        }
        with_values!(self, values => of(values))
    }

    /// Name of the type of the values in PLY files.
    pub fn ply_type(&self) -> &'static str {
        self.scalar().name(Naming::Ply)
    }
}
