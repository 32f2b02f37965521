//! One surface in the formats that programs of medicine and engineering write, for the tests of the
//! readers and as seeds of the fuzz test.
//!
//! The surface has four points: a triangle 0 1 2 and a quad 0 1 3 2.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Coordinates of the points.
pub const POINTS: [[f32; 3]; 4] = [[0.0, 0.0, 0.0], [1.5, 0.0, 0.0], [0.0, 2.5, 0.25], [1.5, 2.5, -1.0]];
/// Labels of the points.
pub const LABELS: [i64; 4] = [3, -1, 70_000, 3];
/// A vector at each point.
pub const FLOW: [f64; 12] = [0.5, 1.0, 1.5, -2.0, 0.0, 0.25, 7.0, 8.0, 9.0, 0.1, 0.2, 0.3];

pub fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Numbers as bytes of either order.
macro_rules! bytes {
    ($values:expr, $big_endian:expr) => {
        $values
            .iter()
            .flat_map(|value| if $big_endian { value.to_be_bytes().to_vec() } else { value.to_le_bytes().to_vec() })
            .collect::<Vec<u8>>()
    };
}

/// Where the arrays of a VTP file are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    Ascii,
    Inline,
    AppendedRaw,
    AppendedBase64,
}

/// Storage of a VTP file.
#[derive(Debug, Clone, Copy)]
pub struct Vtp {
    pub place: Place,
    pub compressed: bool,
    pub wide_sizes: bool,
    pub big_endian: bool,
}

impl Vtp {
    /// Every combination.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for place in [Place::Ascii, Place::Inline, Place::AppendedRaw, Place::AppendedBase64] {
            for flags in 0..8 {
                all.push(Self {
                    place,
                    compressed: flags & 1 > 0,
                    wide_sizes: flags & 2 > 0,
                    big_endian: flags & 4 > 0,
                });
            }
        }
        all
    }

    fn header(self, sizes: &[usize]) -> Vec<u8> {
        match self.wide_sizes {
            true => bytes!(sizes.iter().map(|&s| s as u64).collect::<Vec<_>>(), self.big_endian),
            false => bytes!(sizes.iter().map(|&s| s as u32).collect::<Vec<_>>(), self.big_endian),
        }
    }

    /// Header and data of an array, encoded together or apart as VTK does it.
    fn stored(self, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
        if !self.compressed {
            return (Vec::new(), [self.header(&[data.len()]), data.to_vec()].concat());
        }
        let block = 16;
        let blocks: Vec<Vec<u8>> = data.chunks(block).map(deflate).collect();
        let mut sizes = vec![blocks.len(), block, data.len() % block];
        sizes.extend(blocks.iter().map(Vec::len));
        (self.header(&sizes), blocks.concat())
    }

    /// The file, with a vertex cell, the two faces and a strip of the four points.
    pub fn file(self) -> Vec<u8> {
        let mut appended: Vec<u8> = Vec::new();
        let mut array = |attributes: &str, text: String, data: Vec<u8>| {
            let (header, data) = self.stored(&data);
            match self.place {
                Place::Ascii => {
                    format!("<DataArray {attributes} format=\"ascii\">\n{text}\n</DataArray>\n")
                }
                Place::Inline => {
                    let text = base64(&header) + &base64(&data);
                    format!("<DataArray {attributes} format=\"binary\">\n  {text}\n</DataArray>\n")
                }
                Place::AppendedRaw | Place::AppendedBase64 => {
                    let offset = appended.len();
                    if self.place == Place::AppendedRaw {
                        appended.extend([header, data].concat());
                    } else {
                        appended.extend((base64(&header) + &base64(&data)).into_bytes());
                    }
                    format!("<DataArray {attributes} format=\"appended\" offset=\"{offset}\"/>\n")
                }
            }
        };
        let text = |values: &[f64]| {
            let words: Vec<String> = values.iter().map(f64::to_string).collect();
            words.join(" ")
        };
        let big = self.big_endian;
        let integers = |values: &[i64]| {
            let words: Vec<f64> = values.iter().map(|&v| v as f64).collect();
            (text(&words), bytes!(values, big))
        };
        let mut body = String::from("<PointData Scalars=\"part id\">\n");
        let (words, data) = integers(&LABELS);
        body += &array("type=\"Int64\" Name=\"part id\"", words, data);
        body += &array("type=\"Float64\" Name=\"flow\" NumberOfComponents=\"3\"", text(&FLOW), bytes!(FLOW, big));
        body += "</PointData>\n<CellData>\n";
        let cells = [9.5_f32, 1.0, 2.0, 3.0];
        body += &array("type=\"Float32\" Name=\"q\"", text(&cells.map(f64::from)), bytes!(cells, big));
        body += "</CellData>\n<Points>\n";
        let flat = POINTS.as_flattened();
        let words: Vec<f64> = flat.iter().map(|&v| v.into()).collect();
        body += &array("type=\"Float32\" Name=\"Points\" NumberOfComponents=\"3\"", text(&words), bytes!(flat, big));
        body += "</Points>\n";
        for (section, points, ends) in
            [("Verts", &[3][..], &[1][..]), ("Strips", &[0, 1, 2, 3], &[4]), ("Polys", &[0, 1, 2, 0, 1, 3, 2], &[3, 7])]
        {
            body += &format!("<{section}>\n");
            let (words, data) = integers(points);
            body += &array("type=\"Int64\" Name=\"connectivity\"", words, data);
            let (words, data) = integers(ends);
            body += &array("type=\"Int64\" Name=\"offsets\"", words, data);
            body += &format!("</{section}>\n");
        }
        let order = if big { "BigEndian" } else { "LittleEndian" };
        let sizes = if self.wide_sizes { "UInt64" } else { "UInt32" };
        let compressor = if self.compressed { " compressor=\"vtkZLibDataCompressor\"" } else { "" };
        let mut file = format!(
            "<?xml version=\"1.0\"?>\n<VTKFile type=\"PolyData\" version=\"1.0\" byte_order=\"{order}\" \
             header_type=\"{sizes}\"{compressor}>\n<PolyData>\n<Piece NumberOfPoints=\"4\" NumberOfVerts=\"1\" \
             NumberOfLines=\"0\" NumberOfStrips=\"1\" NumberOfPolys=\"2\">\n{body}</Piece>\n</PolyData>\n"
        )
        .into_bytes();
        if !appended.is_empty() {
            let encoding = if self.place == Place::AppendedRaw { "raw" } else { "base64" };
            file.extend(format!("<AppendedData encoding=\"{encoding}\">\n _").into_bytes());
            file.extend(appended);
            file.extend(b"\n</AppendedData>\n");
        }
        file.extend(b"</VTKFile>\n");
        file
    }
}

/// A legacy VTK file with the same content as [`Vtp`].
pub fn vtk(binary: bool, with_offsets: bool, grid: bool) -> Vec<u8> {
    let version = if with_offsets { "5.1" } else { "3.0" };
    let kind = if binary { "BINARY" } else { "ASCII" };
    let set = if grid { "UNSTRUCTURED_GRID" } else { "POLYDATA" };
    let mut file = format!("# vtk DataFile Version {version}\ntitle\n{kind}\nDATASET {set}\n").into_bytes();
    macro_rules! section {
        ($head:expr, $values:expr) => {{
            file.extend(format!("{}\n", $head).into_bytes());
            if binary {
                file.extend(bytes!($values, true));
            } else {
                let words: Vec<String> = $values.iter().map(|v| v.to_string()).collect();
                file.extend(words.join(" ").into_bytes());
            }
            file.push(b'\n');
        }};
    }
    section!("POINTS 4 float", POINTS.as_flattened());
    let lists: &[(&str, &[&[i32]])] = match grid {
        true => &[("CELLS", &[&[3], &[0, 1, 2], &[0, 1, 3, 2], &[0, 1, 2, 3]])],
        false => {
            &[("VERTICES", &[&[3]]), ("POLYGONS", &[&[0, 1, 2], &[0, 1, 3, 2]]), ("TRIANGLE_STRIPS", &[&[0, 1, 2, 3]])]
        }
    };
    for (name, cells) in lists {
        let points: Vec<i32> = cells.concat();
        if with_offsets {
            let mut offsets = vec![0_i64];
            for cell in *cells {
                offsets.push(offsets[offsets.len() - 1] + cell.len() as i64);
            }
            file.extend(format!("{name} {} {}\n", offsets.len(), points.len()).into_bytes());
            section!("OFFSETS vtktypeint64", offsets);
            let points: Vec<i64> = points.iter().map(|&p| p.into()).collect();
            section!("CONNECTIVITY vtktypeint64", points);
        } else {
            let counted: Vec<i32> = cells.iter().flat_map(|cell| [&[cell.len() as i32], *cell].concat()).collect();
            section!(format!("{name} {} {}", cells.len(), counted.len()), counted);
        }
    }
    if grid {
        section!("CELL_TYPES 4", [1_i32, 5, 7, 6]);
    }
    file.extend(b"CELL_DATA 4\n");
    section!("SCALARS q float\nLOOKUP_TABLE default", [9.5_f32, 1.0, 2.0, 3.0]);
    file.extend(b"POINT_DATA 4\nFIELD FieldData 1\n");
    section!("part%20id 1 4 long", LABELS);
    file.extend(b"METADATA\nINFORMATION 0\n\n");
    section!("VECTORS flow double", FLOW);
    file
}

/// A GIFTI file with points, triangles and labels. `encoding` is that of the standard.
pub fn gifti(encoding: &str, big_endian: bool, surface: bool) -> Vec<u8> {
    let endian = if big_endian { "BigEndian" } else { "LittleEndian" };
    let array = |intent: &str, kind: &str, shape: &str, text: String, data: Vec<u8>| {
        let data = match encoding {
            "ASCII" => text,
            "Base64Binary" => base64(&data),
            _ => base64(&deflate(&data)),
        };
        format!(
            "<DataArray Intent=\"NIFTI_INTENT_{intent}\" DataType=\"NIFTI_TYPE_{kind}\" \
             ArrayIndexingOrder=\"RowMajorOrder\" {shape} Encoding=\"{encoding}\" Endian=\"{endian}\" \
             ExternalFileName=\"\" ExternalFileOffset=\"\">\n<MetaData><MD><Name><![CDATA[Name]]></Name>\
             <Value><![CDATA[{}]]></Value></MD></MetaData>\n<Data>{data}</Data>\n</DataArray>\n",
            if intent == "LABEL" { "my parts" } else { "" },
        )
    };
    let words = |values: &[f64]| {
        let words: Vec<String> = values.iter().map(f64::to_string).collect();
        words.join(" ")
    };
    let mut body = String::new();
    if surface {
        let flat = POINTS.as_flattened();
        let text: Vec<f64> = flat.iter().map(|&v| v.into()).collect();
        let shape = "Dimensionality=\"2\" Dim0=\"4\" Dim1=\"3\"";
        body += &array("POINTSET", "FLOAT32", shape, words(&text), bytes!(flat, big_endian));
        let shape = "Dimensionality=\"2\" Dim0=\"2\" Dim1=\"3\"";
        let corners = [0_i32, 1, 2, 1, 3, 2];
        let text = words(&corners.map(f64::from));
        body += &array("TRIANGLE", "INT32", shape, text, bytes!(corners, big_endian));
    }
    let labels = LABELS.map(|label| label as i32);
    let shape = "Dimensionality=\"1\" Dim0=\"4\"";
    let text = words(&labels.map(f64::from));
    body += &array("LABEL", "INT32", shape, text, bytes!(labels, big_endian));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE GIFTI SYSTEM \"gifti.dtd\">\n\
         <GIFTI Version=\"1.0\" NumberOfDataArrays=\"3\">\n<MetaData/>\n<LabelTable>\n\
         <Label Key=\"3\" Red=\"1\"><![CDATA[gyrus]]></Label>\n<Label Key=\"70000\">a &amp; b</Label>\n\
         </LabelTable>\n{body}</GIFTI>\n"
    )
    .into_bytes()
}

/// Kinds of FreeSurfer surfaces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Brain {
    Triangles,
    Quads,
    OldQuads,
}

/// A FreeSurfer surface: triangles 0 1 2 and 1 3 2, or the quad 0 1 3 2.
pub fn freesurfer(kind: Brain) -> Vec<u8> {
    let three = |value: u32| value.to_be_bytes()[1..].to_vec();
    let floats = bytes!(POINTS.as_flattened(), true);
    match kind {
        Brain::Triangles => [
            &b"\xff\xff\xfecreated by hand\n\n"[..],
            &bytes!([4_i32, 2], true),
            &floats,
            &bytes!([0_i32, 1, 2, 1, 3, 2], true),
        ]
        .concat(),
        Brain::Quads | Brain::OldQuads => {
            let old = kind == Brain::OldQuads;
            let hundredths: Vec<i16> = POINTS.as_flattened().iter().map(|&v| (v * 100.0) as i16).collect();
            let mut file = vec![0xff, 0xff, if old { 0xff } else { 0xfd }];
            file.extend([three(4), three(1)].concat());
            file.extend(if old { bytes!(hundredths, true) } else { floats });
            file.extend([0, 1, 3, 2].map(three).concat());
            file
        }
    }
}

/// A FreeSurfer annotation of four vertices: entries 1, 0, none and 1 of the table.
pub fn annot(old_table: bool) -> Vec<u8> {
    let mut file = bytes!([4_i32], true);
    let (first, second) = (0x0019_0519_i32, 0x00a0_647d_i32);
    for (vertex, colour) in [(0, second), (1, first), (3, second), (2, 0)] {
        file.extend(bytes!([vertex, colour], true));
    }
    let text = |text: &str| [&bytes!([text.len() as i32 + 1], true)[..], text.as_bytes(), b"\0"].concat();
    if old_table {
        file.extend(bytes!([1_i32, 2], true));
        file.extend(text("table.txt"));
    } else {
        file.extend(bytes!([1_i32, -2, 2], true));
        file.extend(text("table.txt"));
        file.extend(bytes!([2_i32], true));
    }
    for (place, name, colour) in [(0_i32, "unknown", first), (1, "gyrus", second)] {
        if !old_table {
            file.extend(bytes!([place], true));
        }
        file.extend(text(name));
        let [r, g, b, _] = colour.to_le_bytes();
        file.extend(bytes!([i32::from(r), g.into(), b.into(), 0], true));
    }
    file
}

/// Values of four vertices in the newer FreeSurfer format.
pub fn curv() -> Vec<u8> {
    let mut file = vec![0xff; 3];
    file.extend(bytes!([4_i32, 2, 1], true));
    file.extend(bytes!([0.5_f32, -1.0, 2.0, 0.25], true));
    file
}

/// A Gmsh file, with tags that are not consecutive, a line, and data of nodes and elements.
pub fn gmsh(version: &str, binary: bool) -> Vec<u8> {
    let is_4 = version == "4.1";
    let mut file = format!("$MeshFormat\n{version} {} 8\n", u8::from(binary)).into_bytes();
    if binary {
        file.extend(bytes!([1_i32], false));
        file.push(b'\n');
    }
    file.extend(b"$EndMeshFormat\n");
    // Numbers of one line: integers, sizes and coordinates.
    enum Number {
        Int(i32),
        Size(u64),
        Double(f64),
    }
    use Number::{Double, Int, Size};
    let tag = |tag: u64| if is_4 { Size(tag) } else { Int(tag as i32) };
    fn push(file: &mut Vec<u8>, binary: bool, numbers: &[Number]) {
        for number in numbers {
            match (number, binary) {
                (Int(value), true) => file.extend(value.to_le_bytes()),
                (Size(value), true) => file.extend(value.to_le_bytes()),
                (Double(value), true) => file.extend(value.to_le_bytes()),
                (Int(value), false) => file.extend(format!("{value} ").into_bytes()),
                (Size(value), false) => file.extend(format!("{value} ").into_bytes()),
                (Double(value), false) => file.extend(format!("{value} ").into_bytes()),
            }
        }
        if !binary {
            file.push(b'\n');
        }
    }
    let tags = [10_u64, 20, 30, 40];
    let point = |at: usize| POINTS[at].map(|v| Double(v.into()));
    if is_4 {
        file.extend(b"$Entities\n");
        push(&mut file, binary, &[Size(0), Size(0), Size(1), Size(0)]);
        let mut surface = vec![Int(5)];
        surface.extend([0.0; 6].map(Double));
        surface.extend([Size(1), Int(77), Size(0)]);
        push(&mut file, binary, &surface);
        file.extend(b"\n$EndEntities\n$Nodes\n");
        push(&mut file, binary, &[Size(1), Size(4), Size(10), Size(40)]);
        push(&mut file, binary, &[Int(2), Int(5), Int(0), Size(4)]);
        for node in tags {
            push(&mut file, binary, &[Size(node)]);
        }
        for at in 0..4 {
            push(&mut file, binary, &point(at));
        }
        file.extend(b"\n$EndNodes\n$Elements\n");
        push(&mut file, binary, &[Size(3), Size(3), Size(1), Size(3)]);
        for (dimension, kind, nodes) in [(1, 1, &[10_u64, 20][..]), (2, 2, &[10, 20, 30]), (2, 3, &[10, 20, 40, 30])] {
            push(&mut file, binary, &[Int(dimension), Int(5), Int(kind), Size(1)]);
            let mut element = vec![Size(kind as u64)];
            element.extend(nodes.iter().map(|&node| Size(node)));
            push(&mut file, binary, &element);
        }
    } else {
        file.extend(b"$Nodes\n4\n");
        for (at, node) in tags.into_iter().enumerate() {
            let [x, y, z] = point(at);
            push(&mut file, binary, &[tag(node), x, y, z]);
        }
        file.extend(b"\n$EndNodes\n$Elements\n3\n");
        for (kind, nodes) in [(1, &[10, 20][..]), (2, &[10, 20, 30]), (3, &[10, 20, 40, 30])] {
            let mut element = match binary {
                true => vec![Int(kind), Int(1), Int(2), Int(kind), Int(77), Int(5)],
                false => vec![Int(kind), Int(kind), Int(2), Int(77), Int(5)],
            };
            element.extend(nodes.iter().map(|&node| Int(node)));
            push(&mut file, binary, &element);
        }
    }
    file.extend(b"\n$EndElements\n");
    for (section, name, rows) in [
        ("NodeData", "heat", &[(40, 4.0), (10, 1.0), (20, 2.0), (30, 3.0)][..]),
        ("ElementData", "q", &[(2, 0.5), (3, 0.75), (1, 9.0)]),
    ] {
        let head = format!("${section}\n1\n\"{name}\"\n1\n0.0\n3\n0\n1\n{}\n", rows.len());
        file.extend(head.into_bytes());
        for &(tag, value) in rows {
            push(&mut file, binary, &[Int(tag), Double(value)]);
        }
        file.extend(format!("\n$End{section}\n").into_bytes());
    }
    file
}

/// A glTF document with a buffer given by `buffer`: positions, 16-bit indices, labels and colours.
pub fn gltf(buffer: &str) -> String {
    format!(
        r#"{{"asset":{{"version":"2.0"}},"scene":0,"scenes":[{{"nodes":[0]}}],
"nodes":[{{"children":[1],"translation":[10,0,0]}},{{"mesh":0,"scale":[1,1,-2]}}],
"meshes":[{{"primitives":[{{"attributes":{{"POSITION":0,"_label":2,"COLOR_0":3,"TEXCOORD_0":9}},"indices":1}},
{{"attributes":{{"POSITION":0,"_label":2,"COLOR_0":3}},"indices":1,"mode":5}},{{"attributes":{{"POSITION":0}},"mode":1}}]}}],
"accessors":[{{"bufferView":0,"componentType":5126,"count":4,"type":"VEC3"}},
{{"bufferView":1,"componentType":5123,"count":6,"type":"SCALAR"}},
{{"bufferView":2,"componentType":5121,"count":4,"type":"SCALAR"}},
{{"bufferView":2,"byteOffset":1,"componentType":5121,"normalized":true,"count":4,"type":"VEC3"}}],
"bufferViews":[{{"buffer":0,"byteLength":48}},{{"buffer":0,"byteOffset":48,"byteLength":12}},
{{"buffer":0,"byteOffset":60,"byteLength":16,"byteStride":4}}],"buffers":[{buffer}]}}"#
    )
}

/// The buffer of [`gltf`].
pub fn gltf_buffer() -> Vec<u8> {
    let mut data = bytes!(POINTS.as_flattened(), false);
    data.extend(bytes!([0_u16, 1, 2, 1, 3, 2], false));
    for vertex in 0..4 {
        data.extend([vertex + 5, 255, vertex, 10 * vertex]);
    }
    data
}

/// The document and its buffer in one file.
pub fn glb() -> Vec<u8> {
    let buffer = gltf_buffer();
    let mut json = gltf(&format!("{{\"byteLength\":{}}}", buffer.len())).into_bytes();
    json.resize(json.len().next_multiple_of(4), b' ');
    let total = 12 + 8 + json.len() + 8 + buffer.len();
    let mut file = b"glTF".to_vec();
    file.extend(bytes!([2_u32, total as u32, json.len() as u32], false));
    file.extend(b"JSON");
    file.extend(&json);
    file.extend(bytes!([buffer.len() as u32], false));
    file.extend(b"BIN\0");
    file.extend(buffer);
    file
}
