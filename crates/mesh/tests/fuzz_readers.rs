//! Mutation fuzzing of every reader: whatever the bytes, reading ends without a panic, with a
//! one-line error or a sound mesh, and within memory in proportion to the file.
//!
//! `GEMCNN_FUZZ_INPUTS=1000000 cargo test -p gemcnn-mesh --test fuzz_readers -- --nocapture` reads that many inputs for
//! each format, or for the one in `GEMCNN_FUZZ_FORMAT` only. Every input is made from its number alone, so a failure is
//! repeated by running it again.

// A global allocator, which counts bytes, cannot be written without `unsafe`.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use gemcnn_mesh::{data_files, parse_mesh_file, parse_values};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[path = "suite/samples.rs"]
mod samples;

use samples::{Brain, Vtp};

/// Reading may take this many bytes for each byte of the file. The worst is a triangle strip of
/// one-byte indices, each of which makes a triangle of 16 bytes in vectors that grow by doubling.
const BYTES_PER_BYTE: usize = 64;
/// And this many more: hash tables, messages.
const FIXED_BYTES: usize = 2 << 10;
/// The same for formats with compressed arrays, of which 64 bytes for each byte of the file and
/// 1 MiB are inflated. The worst are points of one byte per coordinate, which take 8.
const INFLATED_BYTES_PER_BYTE: usize = 16 * 64;
const INFLATED_FIXED_BYTES: usize = 16 << 20;
/// A glTF scene may repeat meshes and values up to this many bytes, which are read in several types at once.
const REPEATED_BYTES: usize = 4 * (256 << 20);
/// Inputs for each format, unless the environment says otherwise.
const DEFAULT_INPUTS: u64 = 100_000;

/// The system's allocator, with the bytes that each thread has in use and their peak.
struct Counting;

thread_local! {
    // Signed, as one thread may free what another has allocated.
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let in_use = IN_USE.get() + bytes;
    IN_USE.set(in_use);
    PEAK.set(PEAK.get().max(in_use));
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new are there at once while bytes are moved.
        count(size as isize);
        count(-(layout.size() as isize));
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak of the bytes that this thread holds at any time of `work`, beyond those before.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = IN_USE.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get().abs_diff(before))
}

struct Format {
    extension: &'static str,
    seeds: Vec<Vec<u8>>,
}

/// True if arrays of the file may be compressed.
fn may_inflate(input: &[u8]) -> bool {
    let has = |word: &[u8]| input.windows(word.len()).any(|window| window == word);
    has(b"vtkZLibDataCompressor") || has(b"<GIFTI")
}

/// True if a glTF scene may have more data than the file: it has sparse values, or nodes that share a mesh.
fn may_repeat(input: &[u8]) -> bool {
    let count = |word: &[u8]| input.windows(word.len()).filter(|window| *window == word).count();
    count(b"\"sparse\"") > 0 || count(b"\"mesh\"") > 1
}

/// Memory that reading a file may take.
fn limit(input: &[u8]) -> usize {
    match may_inflate(input) {
        true => INFLATED_BYTES_PER_BYTE * input.len() + INFLATED_FIXED_BYTES,
        false if may_repeat(input) => BYTES_PER_BYTE * input.len() + REPEATED_BYTES,
        false => BYTES_PER_BYTE * (input.len() + samples::gltf_buffer().len()) + FIXED_BYTES,
    }
}

/// A folder with the file that glTF seeds refer to.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz_readers");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("data.bin"), samples::gltf_buffer()).unwrap();
    folder
});

fn formats() -> Vec<Format> {
    let fixture = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/meshes/trouble/");
        std::fs::read(format!("{folder}{name}")).unwrap()
    };
    let format = |extension, fixtures: &[&str], written: &[&[u8]]| Format {
        extension,
        seeds: written.iter().map(|seed| seed.to_vec()).chain(fixtures.iter().map(|name| fixture(name))).collect(),
    };
    let mut formats = vec![
        format(
            "obj",
            &["dodecahedron_poly.obj", "fan3.obj", "hourglass_ico.obj", "tet.obj", "triple_vierbein.obj"],
            &[
                b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n",
                b"f 1/1/1 2//2 3/3 \\\n -1\nv 0 0 0 1 0 0.5\nv 1 0 0 0 0 0\r\nv 0 1 0 1 1 1\rv 1e-3 .5 +7. 0 0 0\n",
                b"# c\nmtllib a.mtl\no \xe9\nvt 0 0\nvn 0 0 1\nv 0 0 0 1\nv 1 0 0\nv 0 1 0\ng a\ns 1\nf -1 -2 -3\nl 1 2\n",
                b"f 9 8 7\nf 1 2 3\nv 0 0 0\nv 1 0 0\nv 0 1 0\n",
            ],
        ),
        format(
            "ply",
            &["bob_small.ply"],
            &[
                b"ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\nproperty uchar red\n\
                  element face 1\nproperty list uchar int vertex_indices\nend_header\n0 0 0 1\n1 0 0 2\n0 1 0 3\n3 0 1 2\n",
                b"ply\r\nformat binary_little_endian 1.0\r\ncomment c\r\nelement vertex 3\r\nproperty char x\r\nproperty char y\r\n\
                  property uchar z\r\nproperty short label\r\nelement face 1\r\nproperty list uchar uchar vertex_index\r\nend_header\r\n\
                  \0\0\0\x01\x02\x01\0\0\x03\x04\0\x01\0\x05\x06\x03\0\x01\x02",
                b"ply\nformat binary_big_endian 1.0\nelement face 1\nproperty float q\nproperty list int int vertex_indices\n\
                  element tag 1\nproperty list ushort double d\nelement none 7\nelement vertex 3\nproperty uchar x\nproperty uchar y\n\
                  property uchar z\nproperty list uchar uchar links\nend_header\n\
                  \0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0\x02\0\x01\0\0\0\0\0\0\0\0\x01\x02\x03\x01\x09\x01\x02\x03\0\x01\x02\x03\0",
                b"ply\nformat binary_little_endian 1.0\nelement vertex 4\nproperty uchar x\nproperty uchar y\nproperty uchar z\n\
                  element tristrips 1\nproperty list uint char vertex_indices\nend_header\n\
                  \0\0\0\x01\0\0\0\x01\0\x01\x01\0\x09\0\0\0\0\x01\x02\x03\xff\x01\x02\x03\0",
                b"ply\rformat ascii 1.0\robj_info i\relement vertex 4\rproperty double x\rproperty int8 y\rproperty uint32 z\r\
                  element tristrip 1\rproperty list int32 int32 vertex_indices\rend_header\r0 0 0\r1 0 0\r0 1 0\r1 1 1\r7 0 1 2 3 -1 0 1\r",
            ],
        ),
        format(
            "off",
            &[],
            &[
                b"OFF\n4 2 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n4 0 1 2 3\n",
                b"COFF 3 1 0\n0 0 0 255 0 0 255\n1 0 0 0 255 0 255\n0 1 0 0 0 255 255\n3 0 1 2 0.5 0.5 0.5\n",
                b"# c\nSTCNOFF\n# c\n3 1 0\n0 0 0 9 9 9 1 0 0 7 7\n1 0 0 9 9 9 0 0.5 0 7 7\n0 1 0 9 9 9 0 0 1 7 7\n3 0 1 2\n",
                b"OFF3 1 0\r\n0 0 0\r\n1 0 0\r\n0 1 0\r\n3 0 1 2 # c\r\n",
                b"3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n",
                b"OFF BINARY\n\0\0\0\x03\0\0\0\x01",
                b"nOFF\n4\n1 0 0\n0 0 0 0\n",
            ],
        ),
        format(
            "stl",
            &["stl_box_ascii.stl", "stl_box_binary.stl"],
            &[
                b"solid a\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\nendsolid a\n",
                b"SOLID\rFACET\rOUTER LOOP\rVERTEX -0 0 0 VERTEX 1 0 0\rVERTEX 0 1e0 0\rENDLOOP ENDFACET\rENDSOLID\rsolid b\rendsolid",
                b"solid but binary                                                                \x01\0\0\0\
                  \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\x80\0\0",
            ],
        ),
    ];
    formats.extend(further_formats());
    formats
}

/// Formats whose seeds are made by code.
fn further_formats() -> Vec<Format> {
    let format = |extension, seeds: Vec<Vec<u8>>| Format { extension, seeds };
    let (compressed, plain): (Vec<Vtp>, Vec<Vtp>) = Vtp::all().into_iter().partition(|storage| storage.compressed);
    let vtp = |storages: &[Vtp]| storages.iter().map(|storage| storage.file()).collect();
    let kinds = [[false, false], [false, true], [true, false], [true, true]];
    let buffer = samples::base64(&samples::gltf_buffer());
    let embedded = samples::gltf(&format!("{{\"uri\":\"data:;base64,{buffer}\"}}"));
    let external = samples::gltf(r#"{"uri":"data.bin"}"#);
    let sparse = r#""sparse":{"count":1,"indices":{"bufferView":1,"componentType":5121},"values":{"bufferView":2}},"#;
    let sparse = external.replacen(r#"{"bufferView":2,"#, &format!("{{{sparse}"), 1);
    let scenes = external.replace(r#""scenes":["#, r#""scenes":[{"nodes":[1,0]},"#);
    vec![
        format("vtp", vtp(&plain)),
        format("zlib.vtp", vtp(&compressed)),
        format("vtk", kinds.iter().flat_map(|&[a, b]| [samples::vtk(a, b, false), samples::vtk(a, b, true)]).collect()),
        format(
            "gii",
            ["ASCII", "Base64Binary", "GZipBase64Binary"]
                .iter()
                .flat_map(|encoding| kinds.map(|[a, b]| samples::gifti(encoding, a, b)))
                .collect(),
        ),
        format("pial", [Brain::Triangles, Brain::Quads, Brain::OldQuads].map(samples::freesurfer).to_vec()),
        format("annot", vec![samples::annot(false), samples::annot(true), samples::curv()]),
        format("glb", vec![samples::glb()]),
        format("gltf", [embedded, external, sparse, scenes].map(String::into_bytes).to_vec()),
        format("msh", kinds.iter().map(|&[a, b]| samples::gmsh(if a { "2.2" } else { "4.1" }, b)).collect()),
    ]
}

/// Words that parsers have stumbled over.
const NASTY: &str = "-1 0 1 2 255 256 2147483648 4294967295 4294967296 353535235358 18446744073709551615 \
    -9223372036854775808 99999999999999999999999999 1e999 -1e-999 nan inf 0.5 0x10 1e - \\ # list uchar vertex";

fn mutate(input: &mut Vec<u8>, other: &[u8], rng: &mut ChaCha8Rng) {
    if input.is_empty() {
        input.extend_from_slice(other);
        return;
    }
    // Half of the changes go to the second half, lest headers get them all.
    let start = if rng.random() { input.len() / 2 } else { 0 };
    let at = rng.random_range(start..input.len());
    match rng.random_range(0..13) {
        0 | 1 => input[at] ^= 1 << rng.random_range(0..8),
        2 => input[at] = rng.random(),
        3 => input.insert(at, rng.random()),
        4 => {
            input.remove(at);
        }
        5 => input.truncate(at),
        6 => {
            let chunk = chunk(input, rng).to_vec();
            input.splice(at..at, chunk);
        }
        7 => {
            let chunk = chunk(other, rng).to_vec();
            input.splice(at..at, chunk);
        }
        8 => {
            let from = rng.random_range(0..=other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        9 | 10 => replace_word(input, at, rng),
        11 => {
            let line = line_around(input, at);
            input.drain(line);
        }
        _ => {
            let line = line_around(input, at);
            let copy = input[line.clone()].to_vec();
            let copies = copy.repeat(rng.random_range(1..=8));
            input.splice(line.end..line.end, copies);
        }
    }
}

fn chunk<'a>(bytes: &'a [u8], rng: &mut ChaCha8Rng) -> &'a [u8] {
    let start = rng.random_range(0..=bytes.len());
    let length = rng.random_range(0..=(bytes.len() - start).min(200));
    &bytes[start..start + length]
}

/// The run of bytes around `at` up to those that `ends` names.
fn run_around(bytes: &[u8], at: usize, ends: impl Fn(&u8) -> bool) -> std::ops::Range<usize> {
    let start = bytes[..at].iter().rposition(&ends).map_or(0, |p| p + 1);
    let end = bytes[at..].iter().position(&ends).map_or(bytes.len(), |p| at + p);
    start..end.max(start)
}

fn replace_word(input: &mut Vec<u8>, at: usize, rng: &mut ChaCha8Rng) {
    let word = run_around(input, at, u8::is_ascii_whitespace);
    let words: Vec<&str> = NASTY.split(' ').collect();
    let nasty = words.choose(rng).copied().unwrap_or_default();
    input.splice(word, nasty.bytes());
}

fn line_around(input: &[u8], at: usize) -> std::ops::Range<usize> {
    let line = run_around(input, at, |&b| b == b'\n' || b == b'\r');
    line.start..(line.end + 1).min(input.len())
}

/// Makes input `number` of a format.
fn make_input(format: &Format, all: &[Format], number: u64) -> (String, Vec<u8>) {
    let mut rng = ChaCha8Rng::seed_from_u64(number);
    let seed = |format: &Format, rng: &mut ChaCha8Rng| format.seeds.choose(rng).cloned().unwrap_or_default();
    let mut input = seed(format, &mut rng);
    for _ in 0..rng.random_range(1..=4) {
        let foreign = rng.random_range(0..8) == 0;
        let donor = all.choose(&mut rng).filter(|_| foreign).unwrap_or(format);
        let other = seed(donor, &mut rng);
        mutate(&mut input, &other, &mut rng);
    }
    let extension = if rng.random_range(0..8) == 0 { "mesh" } else { format.extension };
    (format!("input.{extension}"), input)
}

/// Reads one input and checks what comes back: whether it is a mesh or a file of values, and the
/// memory taken.
fn check(name: &str, input: &[u8]) -> (bool, usize) {
    let path = FOLDER.join(name);
    let (result, peak) = peak_of(|| parse_mesh_file(&path, input));
    let (values, values_peak) = peak_of(|| parse_values(&path, input));
    let (files, files_peak) = peak_of(|| data_files(&path, input));
    assert!(files.iter().all(|file| file.starts_with(&*FOLDER)));
    let peak = peak.max(values_peak).max(files_peak);
    let limit = limit(input);
    assert!(peak <= limit, "{peak} bytes for a file of {}", input.len());
    if let Ok(values) = &values {
        let rows = values.attributes[0].values.len();
        assert!(values.attributes.iter().all(|a| a.values.len() == rows));
    }
    match result {
        Ok(file) => {
            let vertices = file.mesh.vertex_count();
            assert!(file.attributes.iter().all(|a| a.values.len() == vertices));
            let faces = file.mesh.face_count();
            assert!(file.face_attributes.iter().all(|a| a.values.len() == faces));
            assert!(file.notes.iter().all(|note| !note.contains('\n') && note.len() < 400));
            (true, peak)
        }
        Err(_) if values.is_ok() => (true, peak),
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n') && message.contains("; "), "{message}");
            assert!(message.len() < 1000, "{message}");
            (false, peak)
        }
    }
}

/// Reads the seeds of a format, and inputs made from them.
fn read_inputs(format: &Format, all: &[Format], inputs: u64) {
    for seed in &format.seeds {
        let (is_valid, _) = check(&format!("seed.{}", format.extension), seed);
        // Some seeds of these are wrong on purpose.
        assert!(is_valid || ["obj", "off"].contains(&format.extension));
    }
    let mut meshes = 0;
    let mut worst = 0.0_f64;
    let mut inflated = 0;
    for number in 0..inputs {
        let (name, input) = make_input(format, all, number);
        let checked = catch_unwind(AssertUnwindSafe(|| check(&name, &input)));
        let Ok((is_mesh, peak)) = checked else {
            panic!("{} input {number} ({name}) failed: {:?}", format.extension, String::from_utf8_lossy(&input));
        };
        meshes += u64::from(is_mesh);
        if may_inflate(&input) || may_repeat(&input) {
            inflated = inflated.max(peak);
            continue;
        }
        let above = peak.saturating_sub(FIXED_BYTES) as f64;
        worst = worst.max(above / input.len().max(1) as f64);
    }
    println!(
        "{}: {inputs} inputs, {meshes} of them valid, at most {worst:.1} bytes per byte above {FIXED_BYTES}, \
         with compressed arrays or repeated meshes at most {inflated} bytes",
        format.extension
    );
    // Mutations that break everything would test only the first check of each reader.
    assert!(meshes > inputs / 100, "only {meshes} meshes");
}

#[test]
fn no_input_makes_a_reader_panic_or_use_too_much_memory() {
    let inputs = std::env::var("GEMCNN_FUZZ_INPUTS")
        .map(|count| count.parse().expect("GEMCNN_FUZZ_INPUTS is a number"))
        .unwrap_or(DEFAULT_INPUTS);
    let only = std::env::var("GEMCNN_FUZZ_FORMAT").ok();
    let formats = formats();
    let chosen = |format: &&Format| only.as_ref().is_none_or(|only| only == format.extension);
    assert!(formats.iter().any(|format| chosen(&format)), "no {only:?}");
    // Each thread counts its own memory.
    std::thread::scope(|scope| {
        for format in formats.iter().filter(chosen) {
            scope.spawn(|| read_inputs(format, &formats, inputs));
        }
    });
}

#[test]
fn the_worst_files_known_stay_within_the_limit() {
    let header = |count: usize, list: &str, length: usize| {
        format!(
            "ply\nformat binary_little_endian 1.0\nelement vertex {count}\nproperty uchar x\nproperty uchar y\n\
             property uchar z\nelement {list} {length}\nproperty list uint uchar vertex_indices\nend_header\n"
        )
        .into_bytes()
    };
    let mut strip = header(3, "tristrips", 1);
    strip.extend([0; 9]);
    strip.extend(300_000u32.to_le_bytes());
    strip.extend((0..300_000).map(|at| (at % 3) as u8));
    let mut points = header(200_000, "face", 0);
    points.extend([7; 600_000]);
    let properties: String = (0..20_000).map(|at| format!("property char p{at}\n")).collect();
    let wide = format!(
        "ply\nformat ascii 1.0\nelement vertex 0\nproperty char x\nproperty char y\nproperty char z\n{properties}end_header\n"
    );
    let elements: String = (0..50_000).map(|at| format!("element e{at} 0\n")).collect();
    let long = format!(
        "ply\nformat ascii 1.0\nelement vertex 0\nproperty char x\nproperty char y\nproperty char z\n{elements}end_header\n"
    );
    let mut triangles = vec![0; 80];
    triangles.extend(5_000u32.to_le_bytes());
    for at in 0..5_000u32 {
        triangles.extend([0; 12]);
        for corner in 0..9u32 {
            triangles.extend(((9 * at + corner) as f32).to_le_bytes());
        }
        triangles.extend([0; 2]);
    }
    let fields = "a 3 1 char\n123".repeat(20_000);
    let fields = format!(
        "# vtk DataFile Version 3.0\n\nBINARY\nDATASET POLYDATA\nPOINTS 1 char\n123\nPOINT_DATA 1\nFIELD f 20000\n{fields}"
    );
    let vtk = |points: &str, cells: &str| {
        format!("# vtk DataFile Version 3.0\n\nASCII\nDATASET POLYDATA\nPOINTS {points}\n{cells}\n").into_bytes()
    };
    let arrays = "<DataArray type=\"Int8\">0</DataArray>".repeat(20_000);
    let arrays = format!(
        "<VTKFile type=\"PolyData\"><Piece NumberOfPoints=\"1\"><PointData>{arrays}</PointData><Points>\
         <DataArray type=\"Int8\">0 0 0</DataArray></Points></Piece></VTKFile>"
    );
    let deep =
        "<VTKFile type=\"PolyData\">".to_owned() + &"<a>".repeat(100_000) + &"</a>".repeat(100_000) + "</VTKFile>";
    let nodes: Vec<String> = (1..=20_000).map(|node| format!("{{\"children\":[{node}]}}")).collect();
    let chain = format!("{{\"asset\":{{}},\"scenes\":[{{\"nodes\":[0]}}],\"nodes\":[{},{{}}]}}", nodes.join(","));
    let flat = format!(
        "{{\"asset\":{{}},\"scenes\":[{{\"nodes\":[{}0]}}],\"nodes\":[{}0],\"accessors\":[{}0]}}",
        "0,".repeat(50_000),
        "{},".repeat(50_000),
        "0,".repeat(50_000)
    );
    let nodes: String = (0..100_000).map(|tag| format!("{tag} 0 0 0\n")).collect();
    let nodes = format!("$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n100000\n{nodes}$EndNodes\n");
    for (name, content) in [
        ("fields.vtk", fields.into_bytes()),
        ("points.vtk", vtk("200000 char", &"0 ".repeat(600_000))),
        (
            "strip.vtk",
            vtk("3 char\n0 0 0 0 0 0 0 0 0", &format!("TRIANGLE_STRIPS 1 300001\n300000 {}", "0 1 2 ".repeat(100_000))),
        ),
        ("arrays.vtp", arrays.into_bytes()),
        ("deep.vtp", deep.into_bytes()),
        ("chain.gltf", chain.into_bytes()),
        ("flat.gltf", flat.into_bytes()),
        ("nodes.msh", nodes.into_bytes()),
        ("strip.ply", strip),
        ("points.ply", points),
        ("wide.ply", wide.into_bytes()),
        ("long.ply", long.into_bytes()),
        ("triangles.stl", triangles),
        ("points.obj", b"v 0 0 0\n".repeat(100_000)),
        ("colours.obj", b"v 0 0 0 0 0 0\n".repeat(100_000)),
        ("faces.obj", [&b"v 0 0 0\n"[..], &b"f 1 1 1\n".repeat(100_000)].concat()),
        ("joined.obj", [&b"v 0 0 0\nf "[..], &b"1\\\n".repeat(100_000), b"1 1 1\n"].concat()),
    ] {
        let (is_mesh, peak) = check(name, &content);
        println!("{name}: {:.1} bytes per byte", peak as f64 / content.len() as f64);
        assert!(is_mesh, "{name}");
    }
}
