//! Scalar types of binary and text files.

use crate::AttributeValues;

/// A scalar type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    F32,
    F64,
}

impl Scalar {
    /// The type of a PLY type name.
    pub(super) fn parse(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"char" | b"int8" => Self::I8,
            b"uchar" | b"uint8" => Self::U8,
            b"short" | b"int16" => Self::I16,
            b"ushort" | b"uint16" => Self::U16,
            b"int" | b"int32" => Self::I32,
            b"uint" | b"uint32" => Self::U32,
            b"float" | b"float32" => Self::F32,
            b"double" | b"float64" => Self::F64,
            _ => return None,
        })
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
            Self::F64 => 8,
        }
    }

    /// Creates an empty column of this type.
    pub(super) fn column(self, capacity: usize) -> AttributeValues {
        match self {
            Self::I8 => AttributeValues::I8(Vec::with_capacity(capacity)),
            Self::U8 => AttributeValues::U8(Vec::with_capacity(capacity)),
            Self::I16 => AttributeValues::I16(Vec::with_capacity(capacity)),
            Self::U16 => AttributeValues::U16(Vec::with_capacity(capacity)),
            Self::I32 => AttributeValues::I32(Vec::with_capacity(capacity)),
            Self::U32 => AttributeValues::U32(Vec::with_capacity(capacity)),
            Self::F32 => AttributeValues::F32(Vec::with_capacity(capacity)),
            Self::F64 => AttributeValues::F64(Vec::with_capacity(capacity)),
        }
    }
}

/// A scalar value of a file.
pub(super) trait Value: std::str::FromStr + std::fmt::Debug + Copy {
    /// Description of a valid word, for error messages.
    const EXPECTED: &'static str;
    /// Splits a value from the start of `bytes`.
    fn split_from(bytes: &[u8], little_endian: bool) -> Option<(Self, &[u8])>;
    /// Appends the bytes of the value.
    fn append_to(self, bytes: &mut Vec<u8>, little_endian: bool);
}

macro_rules! impl_value {
    ($($type:ty, $expected:literal;)*) => {$(
        impl Value for $type {
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
    i8, "an integer from -128 to 127 (char)";
    u8, "an integer from 0 to 255 (uchar)";
    i16, "a signed 16-bit integer (short)";
    u16, "an unsigned 16-bit integer (ushort)";
    i32, "a signed 32-bit integer (int)";
    u32, "an unsigned 32-bit integer (uint)";
    f32, "a number";
    f64, "a number";
}
