//! NumPy's `.npy` files.
//!
//! The reader accepts versions 1, 2 and 3, integers of 1 to 8 bytes, booleans, and floats of 4 and 8 bytes in
//! either byte order, with one or two dimensions in C order (a single column may be in any order). The writer
//! writes `f32` and `i64`.

use super::table::NumberTable;
use crate::DataError;
use std::path::Path;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Header of a file.
#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// Parses the bytes of a file. `path` is for messages.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<NumberTable, DataError> {
    read(bytes).map_err(|problem| DataError::table(path, None, problem))
}

fn read(bytes: &[u8]) -> Result<NumberTable, String> {
    let (header, data) = split(bytes)?;
    let header = parse_header(header)?;
    let (rows, columns) = match header.shape[..] {
        [rows] => (rows, 1),
        [rows, columns] => (rows, columns),
        _ => {
            return Err(format!(
                "the array has {} dimensions; save one row for each vertex or face",
                header.shape.len()
            ));
        }
    };
    if header.fortran_order && rows > 1 && columns > 1 {
        return Err("the array is in Fortran order; save numpy.ascontiguousarray(array) instead".into());
    }
    let scalar = Scalar::parse(&header.descr)?;
    let count = rows.checked_mul(columns);
    let expected = count.and_then(|count| count.checked_mul(scalar.size));
    if expected != Some(data.len()) {
        return Err(format!(
            "the header declares {rows} x {columns} numbers of {} bytes, but {} bytes follow; the file is truncated or damaged",
            scalar.size,
            data.len()
        ));
    }
    let values = data.chunks_exact(scalar.size);
    Ok(NumberTable { header: Vec::new(), columns, values: values.map(|bytes| scalar.value(bytes)).collect() })
}

/// The text of the header, and the data after it.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let cut = || "the file is truncated".to_string();
    let rest = bytes.strip_prefix(MAGIC).ok_or("this is not a .npy file: the magic bytes are missing")?;
    let (&[major, _minor], rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let (length, rest) = match major {
        1 => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        _ => {
            return Err(format!("version {major} of the .npy format is not supported"));
        }
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| "the header is not text")?;
    Ok((header, data))
}

/// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn parse_header(text: &str) -> Result<Header, String> {
    let mut words = Words(text);
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    words.expect('{')?;
    while !words.take('}') {
        let key = words.string()?;
        words.expect(':')?;
        match key {
            "descr" if words.next_is('[') => {
                return Err("the array has named fields; save one array of plain numbers instead".into());
            }
            "descr" => descr = Some(words.string()?.to_string()),
            "fortran_order" => fortran_order = Some(words.truth()?),
            "shape" => shape = Some(words.tuple()?),
            other => return Err(format!("the header has an unknown key {other:?}")),
        }
        if !words.take(',') {
            words.expect('}')?;
            break;
        }
    }
    match (descr, fortran_order, shape) {
        (Some(descr), Some(fortran_order), Some(shape)) => Ok(Header { descr, fortran_order, shape }),
        _ => Err("the header lacks `descr`, `fortran_order` or `shape`".into()),
    }
}

/// The rest of a header.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn next_is(&mut self, character: char) -> bool {
        self.0 = self.0.trim_start();
        self.0.starts_with(character)
    }

    fn take(&mut self, character: char) -> bool {
        let found = self.next_is(character);
        if found {
            self.0 = &self.0[character.len_utf8()..];
        }
        found
    }

    fn expect(&mut self, character: char) -> Result<(), String> {
        if self.take(character) { Ok(()) } else { Err(format!("the header lacks a `{character}`")) }
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.next_is('"') { '"' } else { '\'' };
        self.expect(quote)?;
        let (text, rest) = self.0.split_once(quote).ok_or("a string in the header is not terminated")?;
        self.0 = rest;
        Ok(text)
    }

    fn truth(&mut self) -> Result<bool, String> {
        self.0 = self.0.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.0.strip_prefix(word) {
                self.0 = rest;
                return Ok(value);
            }
        }
        Err("`fortran_order` in the header is neither True nor False".into())
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        self.expect('(')?;
        let (inside, rest) = self.0.split_once(')').ok_or("the shape in the header is not terminated")?;
        self.0 = rest;
        inside
            .split(',')
            .map(|word| word.trim().trim_end_matches('L'))
            .filter(|word| !word.is_empty())
            .map(|word| word.parse().map_err(|_| format!("the shape in the header contains {word:?}")))
            .collect()
    }
}

/// Binary format of a number.
#[derive(Debug, Clone, Copy)]
struct Scalar {
    kind: u8,
    size: usize,
    big_endian: bool,
}

impl Scalar {
    fn parse(descr: &str) -> Result<Self, String> {
        let refused = || {
            format!("type {descr:?} is not supported; save int8 to int64, uint8 to uint64, bool, float32 or float64")
        };
        let (order, kind) = match descr.as_bytes() {
            [order @ (b'<' | b'>' | b'|' | b'='), kind @ ..] => (*order, kind),
            kind => (b'=', kind),
        };
        let (kind, size) = match kind {
            b"b1" => (b'u', 1),
            [kind @ (b'i' | b'u'), size @ (b'1' | b'2' | b'4' | b'8')] => (*kind, size - b'0'),
            [b'f', size @ (b'4' | b'8')] => (b'f', size - b'0'),
            _ => return Err(refused()),
        };
        Ok(Self { kind, size: size.into(), big_endian: order == b'>' })
    }

    fn value(self, bytes: &[u8]) -> f64 {
        let mut little = [0; 8];
        for (to, place) in little.iter_mut().zip(0..bytes.len()) {
            let from = if self.big_endian { bytes.len() - 1 - place } else { place };
            *to = bytes[from];
        }
        let bits = u64::from_le_bytes(little);
        // Sign extension: shifts the sign of a shorter number to the top and back.
        let unused = 64 - 8 * self.size as u32;
        match (self.kind, self.size) {
            (b'f', 4) => f32::from_bits(bits as u32).into(),
            (b'f', _) => f64::from_bits(bits),
            (b'i', _) => ((bits << unused) as i64 >> unused) as f64,
            _ => bits as f64,
        }
    }
}

/// A file with rows of `columns` numbers, or with one dimension if `columns` is `None`.
pub fn npy_f32(values: &[f32], columns: Option<usize>) -> Vec<u8> {
    let data = values.iter().flat_map(|value| value.to_le_bytes());
    encode("<f4", values.len(), columns, data)
}

/// A file with one integer for each vertex.
pub fn npy_i64(values: &[i64]) -> Vec<u8> {
    let data = values.iter().flat_map(|value| value.to_le_bytes());
    encode("<i8", values.len(), None, data)
}

fn encode(descr: &str, count: usize, columns: Option<usize>, data: impl Iterator<Item = u8>) -> Vec<u8> {
    let shape = match columns {
        Some(columns) => format!("({}, {columns})", count / columns.max(1)),
        None => format!("({count},)"),
    };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // The data begin at a multiple of 64 bytes, and the header ends with a newline.
    let before = MAGIC.len() + 4;
    while !(before + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = [&MAGIC[..], &[1, 0]].concat();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &[version, 0]].concat();
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn header(descr: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}   \n")
    }

    #[test]
    fn every_scalar_type_is_read_in_both_byte_orders() {
        let cases: [(&str, &[u8], f64); 12] = [
            ("|i1", &[0xfe], -2.0),
            ("|u1", &[0xfe], 254.0),
            ("|b1", &[1], 1.0),
            ("<i2", &[0xfe, 0xff], -2.0),
            (">i2", &[0x01, 0x02], 258.0),
            ("<u2", &[0xfe, 0xff], 65534.0),
            ("<i4", &(-70000i32).to_le_bytes(), -70000.0),
            (">u4", &70000u32.to_be_bytes(), 70000.0),
            ("<i8", &(-5i64).to_le_bytes(), -5.0),
            (">i8", &(-5i64).to_be_bytes(), -5.0),
            (">f4", &1.5f32.to_be_bytes(), 1.5),
            ("<f8", &0.1f64.to_le_bytes(), 0.1),
        ];
        for version in [1, 2, 3] {
            for (descr, data, value) in cases {
                let table = read(&file(version, &header(descr, "(1,)"), data)).unwrap();
                assert_eq!(table.values, [value], "{descr}");
            }
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = npy_f32(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], Some(3));
        let table = read(&bytes).unwrap();
        assert_eq!((table.rows(), table.columns), (2, 3));
        assert_eq!(table.values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!((bytes.len() - 6 * 4) % 64, 0);
        assert_eq!(read(&npy_i64(&[-1, 7])).unwrap().values, [-1.0, 7.0]);
        assert_eq!(read(&npy_i64(&[])).unwrap().rows(), 0);
    }

    #[test]
    fn what_is_not_read_is_refused_with_a_reason() {
        let fortran = header("<f4", "(2, 2)").replace("False", "True");
        let huge = header("<f8", "(18446744073709551615, 8)");
        for (bytes, reason) in [
            (file(1, &header("<f4", "(2, 2)"), &[0; 12]), "12 bytes"),
            (file(1, &huge, &[0; 12]), "18446744073709551615"),
            (file(1, &fortran, &[0; 16]), "Fortran"),
            (file(1, &header("<c8", "(1,)"), &[0; 8]), "\"<c8\""),
            (file(1, &header("<f2", "(1,)"), &[0; 2]), "\"<f2\""),
            (file(1, &header("<f4", "(1, 1, 1)"), &[0; 4]), "3 dimensions"),
            (file(1, &header("<f4", "(-1,)"), &[0; 4]), "\"-1\""),
            (file(4, &header("<f4", "(1,)"), &[0; 4]), "version 4"),
            (file(1, "{'descr': [('a', '<f4')], }", &[]), "fields"),
            (file(1, "{'descr': '<f4'}", &[]), "`shape`"),
            (b"\x93NUMPY\x01".to_vec(), ""),
            (b"PK".to_vec(), ".npy"),
        ] {
            let said = read(&bytes).unwrap_err();
            assert!(said.contains(reason), "{said}");
        }
    }
}
