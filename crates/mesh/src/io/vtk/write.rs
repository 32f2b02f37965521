//! Writing of VTP files.

use std::io::{self, Write};

use quick_xml::escape::escape;

use crate::attribute::with_values;
use crate::io::base64;
use crate::io::fields::{Group, groups};
use crate::io::format::Content;
use crate::io::scalar::{Naming, Scalar, Value};

/// Writes a `PolyData` file with arrays in Base64. Columns of a vector, normal or colour become one
/// array.
pub(super) fn write(file: &Content, out: &mut dyn Write) -> io::Result<()> {
    let Content { mesh, attributes, face_attributes, .. } = *file;
    writeln!(
        out,
        "<?xml version=\"1.0\"?>\n<VTKFile type=\"PolyData\" version=\"1.0\" byte_order=\"LittleEndian\" \
         header_type=\"UInt64\">\n<PolyData>\n<Piece NumberOfPoints=\"{}\" NumberOfVerts=\"0\" NumberOfLines=\"0\" \
         NumberOfStrips=\"0\" NumberOfPolys=\"{}\">",
        mesh.vertex_count(),
        mesh.face_count()
    )?;
    for (section, columns) in [("PointData", attributes), ("CellData", face_attributes)] {
        writeln!(out, "<{section}>")?;
        for group in groups(columns) {
            write_group(&group, out)?;
        }
        writeln!(out, "</{section}>")?;
    }
    writeln!(out, "<Points>")?;
    let coordinates = mesh.vertices().iter().flat_map(|position| position.to_array());
    write_array("Points", " NumberOfComponents=\"3\"", coordinates, out)?;
    writeln!(out, "</Points>\n<Polys>")?;
    let faces = mesh.faces();
    if i32::try_from(faces.corners().len()).is_ok() {
        let corners = faces.corners().iter().map(|&corner| corner as i32);
        write_array("connectivity", "", corners, out)?;
        let ends = faces.offsets().iter().skip(1).map(|&end| end as i32);
        write_array("offsets", "", ends, out)?;
    } else {
        let corners = faces.corners().iter().map(|&corner| i64::from(corner));
        write_array("connectivity", "", corners, out)?;
        let ends = faces.offsets().iter().skip(1).map(|&end| i64::from(end));
        write_array("offsets", "", ends, out)?;
    }
    writeln!(out, "</Polys>\n</Piece>\n</PolyData>\n</VTKFile>")
}

fn write_group(group: &Group, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = group.columns.first() else { return Ok(()) };
    let mut further = String::new();
    if group.columns.len() > 1 {
        further = format!(" NumberOfComponents=\"{}\"", group.columns.len());
        for (place, column) in group.columns.iter().enumerate() {
            let name = escape(column.name.as_str());
            further += &format!(" ComponentName{place}=\"{name}\"");
        }
    }
    let rows = first.values.len();
    let mut bytes = Vec::with_capacity(8 * rows * group.columns.len());
    for row in 0..rows {
        for column in group.columns {
            with_values!(&column.values, values => values[row].append_to(&mut bytes, true));
        }
    }
    write_bytes(first.values.scalar(), &group.name, &further, &bytes, out)
}

fn write_array<T: Value>(
    name: &str,
    further: &str,
    values: impl Iterator<Item = T>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    values.for_each(|value| value.append_to(&mut bytes, true));
    write_bytes(T::SCALAR, name, further, &bytes, out)
}

fn write_bytes(scalar: Scalar, name: &str, further: &str, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let (kind, name) = (scalar.name(Naming::VtkXml), escape(name));
    writeln!(out, "<DataArray type=\"{kind}\" Name=\"{name}\"{further} format=\"binary\">")?;
    let mut data = Vec::with_capacity(8 + bytes.len());
    (bytes.len() as u64).append_to(&mut data, true);
    data.extend_from_slice(bytes);
    // Whole groups of three bytes, so that the text is the same as in one piece.
    for part in data.chunks(3 << 16) {
        out.write_all(base64::encode(part).as_bytes())?;
    }
    writeln!(out, "\n</DataArray>")
}
