//! Writing of PLY files.

use std::io::{self, Write};

use super::PlyEncoding;
use crate::VertexAttribute;
use crate::attribute::with_values;
use crate::io::format::Content;
use crate::io::scalar::Value;

/// Appends a value in an encoding. Text is the shortest representation that parses to the same
/// number, and a space.
fn append(value: impl Value, row: &mut Vec<u8>, encoding: PlyEncoding) -> io::Result<()> {
    match encoding {
        PlyEncoding::Ascii => return write!(row, "{value:?} "),
        PlyEncoding::LittleEndian => value.append_to(row, true),
        PlyEncoding::BigEndian => value.append_to(row, false),
    }
    Ok(())
}

/// Writes coordinates as `double` and attributes, which must be checked, in their own types.
pub(super) fn write(file: &Content, out: &mut dyn Write) -> io::Result<()> {
    let Content { mesh, attributes, face_attributes, options } = *file;
    let encoding = options.ply;
    let longest = mesh.faces().iter().map(<[u32]>::len).max().unwrap_or(0);
    // Most programs expect `uchar` and `int`; larger types are used only if necessary.
    let short_lists = longest <= usize::from(u8::MAX);
    let length_type = if short_lists { "uchar" } else { "uint" };
    let small_indices = mesh.vertex_count() <= i32::MAX as usize;
    let index_type = if small_indices { "int" } else { "uint" };
    writeln!(out, "ply\nformat {} 1.0", encoding.name())?;
    writeln!(out, "element vertex {}", mesh.vertex_count())?;
    for axis in ["x", "y", "z"] {
        writeln!(out, "property double {axis}")?;
    }
    for VertexAttribute { name, values } in attributes {
        writeln!(out, "property {} {name}", values.ply_type())?;
    }
    writeln!(out, "element face {}", mesh.face_count())?;
    writeln!(out, "property list {length_type} {index_type} vertex_indices")?;
    for VertexAttribute { name, values } in face_attributes {
        writeln!(out, "property {} {name}", values.ply_type())?;
    }
    writeln!(out, "end_header")?;

    let mut row = Vec::new();
    let mut finish = |row: &mut Vec<u8>| {
        if encoding == PlyEncoding::Ascii {
            row.pop();
            row.push(b'\n');
        }
        out.write_all(row)?;
        row.clear();
        io::Result::Ok(())
    };
    for (vertex, position) in mesh.vertices().iter().enumerate() {
        for coordinate in position.to_array() {
            append(coordinate, &mut row, encoding)?;
        }
        for attribute in attributes {
            with_values!(&attribute.values, values =>append(values[vertex], &mut row, encoding)?);
        }
        finish(&mut row)?;
    }
    for (face_index, face) in mesh.faces().iter().enumerate() {
        if short_lists {
            append(face.len() as u8, &mut row, encoding)?;
        } else {
            append(face.len() as u32, &mut row, encoding)?;
        }
        for vertex in face {
            // `int` and `uint` have the same bits here.
            append(*vertex, &mut row, encoding)?;
        }
        for attribute in face_attributes {
            with_values!(&attribute.values, values => append(values[face_index], &mut row, encoding)?);
        }
        finish(&mut row)?;
    }
    Ok(())
}
