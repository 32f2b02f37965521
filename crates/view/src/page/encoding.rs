//! The data of a page: a description in JSON, and a block of numbers for each mesh.

use super::block::{Block, Column};
use super::decimation::decimated;
use super::{Element, Page, PageError, PageMesh, Report, Role, UNKNOWN, Values};
use crate::render::{Up, colour_map, diverging_map};
use gemcnn_mesh::{Frame, Mesh, triangulate, vector_area};
use glam::{DVec2, DVec3, Vec2Swizzles};
use serde::Serialize;

/// Format version. Increment when the layout or the meaning of an entry changes.
const VERSION: u32 = 1;
/// Positions are rounded to this fraction of a short edge.
const EDGE_FRACTION: f64 = 1.0 / 256.0;
/// Short edges: this share of all edges is shorter.
const SHORT: f64 = 0.01;
/// Largest and smallest numbers of steps over the extent of a mesh.
const STEPS: (f64, f64) = (16_777_216.0, 4096.0);
/// Steps over the range of a field.
const LEVELS: f64 = 65_534.0;
/// Largest integer that single precision represents with all smaller ones.
const EXACT: f64 = 16_777_216.0;
/// Missing value of a field.
const MISSING: i32 = -1;
/// Entries of the tables of colour maps.
const SHADES: u32 = 256;

/// The data of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    /// Title of the page, as text.
    pub title: String,
    /// Description as JSON, safe within a `script` element.
    pub description: String,
    /// A block in base64 for each mesh.
    pub blocks: Vec<String>,
}

#[derive(Serialize)]
struct Description<'a> {
    version: u32,
    generator: &'static str,
    title: &'a str,
    up: &'static str,
    live: bool,
    notes: &'a [String],
    classes: &'a [super::ClassTable],
    report: &'a Option<Report>,
    maps: Maps,
    meshes: Vec<MeshEntry>,
}

#[derive(Serialize)]
struct Maps {
    sequential: Vec<[u8; 3]>,
    diverging: Vec<[u8; 3]>,
}

#[derive(Serialize)]
struct MeshEntry {
    name: String,
    facts: Vec<(String, String)>,
    vertices: usize,
    faces: usize,
    triangles: usize,
    /// Meshes with the same number have the same faces: equal vertices correspond.
    registration: usize,
    low: [f64; 3],
    step: f64,
    positions: [Column; 3],
    corners: Column,
    /// For each corner, 1 if the side to the next corner is an edge of the mesh. `None` if all are.
    edges: Option<Column>,
    /// Face of each triangle; `None` if every face is a triangle.
    face: Option<Column>,
    /// Normal and first axis, in octahedral coordinates.
    frames: Option<[Column; 4]>,
    fields: Vec<FieldEntry>,
}

#[derive(Serialize)]
struct FieldEntry {
    name: String,
    on: Element,
    role: Option<Role>,
    kind: &'static str,
    table: Option<usize>,
    low: f64,
    step: f64,
    columns: Vec<Column>,
}

impl Page {
    /// The data of the page.
    ///
    /// # Errors
    /// A field or frames of another length than the mesh, a class without a name, or a large mesh that cannot be
    /// simplified.
    pub fn encode(&self) -> Result<Encoded, PageError> {
        let mut meshes = Vec::new();
        let mut blocks = Vec::new();
        let mut kinds: Vec<&Mesh> = Vec::new();
        for mesh in &self.meshes {
            self.check(mesh)?;
            let registration = match kinds.iter().position(|other| {
                other.vertex_count() == mesh.mesh.vertex_count() && other.faces() == mesh.mesh.faces()
            }) {
                Some(kind) => kind,
                None => {
                    kinds.push(&mesh.mesh);
                    kinds.len() - 1
                }
            };
            let small = decimated(mesh, self.most_vertices)?;
            // Simplified meshes have faces of their own.
            let registration = match small {
                Some(_) => self.meshes.len() + meshes.len(),
                None => registration,
            };
            let mut block = Block::default();
            meshes.push(entry(small.as_ref().unwrap_or(mesh), registration, &mut block));
            blocks.push(block.finish());
        }
        let table = |map: fn(f64) -> [u8; 3]| {
            let shade = |i| map(f64::from(i) / f64::from(SHADES - 1));
            (0..SHADES).map(shade).collect()
        };
        let description = Description {
            version: VERSION,
            generator: concat!("gemcnn ", env!("CARGO_PKG_VERSION")),
            title: &self.title,
            up: match self.up {
                Up::Y => "y",
                Up::Z => "z",
            },
            live: self.live,
            notes: &self.notes,
            classes: &self.classes,
            report: &self.report,
            maps: Maps { sequential: table(colour_map), diverging: table(diverging_map) },
            meshes,
        };
        Ok(Encoded { title: self.title.clone(), description: script_json(&description), blocks })
    }

    fn check(&self, mesh: &PageMesh) -> Result<(), PageError> {
        let vertices = mesh.mesh.vertex_count();
        let fields = mesh.fields.iter().map(|field| {
            let (wanted, on) = match field.on {
                Element::Vertex => (vertices, "vertices"),
                Element::Face => (mesh.mesh.face_count(), "faces"),
            };
            (field.name.as_str(), field.values.len(), wanted, on)
        });
        let frames = mesh.frames.as_ref().map(Vec::len);
        let frames = frames.map(|count| ("frames", count, vertices, "vertices"));
        if let Some((what, found, wanted, on)) = fields.chain(frames).find(|f| f.1 != f.2) {
            return Err(PageError::Length { mesh: mesh.name.clone(), what: what.into(), found, wanted, on });
        }
        for field in &mesh.fields {
            let Values::Labels { table, classes } = &field.values else { continue };
            let count = self.classes.get(*table).map_or(0, |t| t.names.len());
            if (classes.iter()).any(|&class| class != UNKNOWN && class as usize >= count) {
                return Err(PageError::UnknownClass { mesh: mesh.name.clone(), field: field.name.clone() });
            }
        }
        Ok(())
    }
}

/// JSON that neither ends nor changes the script element around it, and is valid in JavaScript.
pub(super) fn script_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("the description has only text keys");
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                safe.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => safe.push(letter),
        }
    }
    safe
}

fn entry(mesh: &PageMesh, registration: usize, block: &mut Block) -> MeshEntry {
    let points = mesh.mesh.vertices();
    let [low, high] = mesh.mesh.bounds().unwrap_or_default();
    // Half of each bound first, because the difference of large numbers can overflow.
    let extent = 2.0 * (0.5 * high - 0.5 * low).max_element();
    let step = position_step(&mesh.mesh, extent);
    let positions = std::array::from_fn(|axis| {
        let place = |point: &DVec3| ((point[axis] - low[axis]) / step).round() as i32;
        block.push(points.iter().map(place))
    });
    let triangles = Triangles::new(&mesh.mesh);
    let numbers = |values: &[u32]| -> Vec<i32> { values.iter().map(|&v| v as i32).collect() };
    let corners = block.push(numbers(&triangles.corners).into_iter());
    let polygons = triangles.polygons.then(|| {
        let edges = block.push(triangles.edges.iter().map(|&edge| i32::from(edge)));
        (edges, block.push(numbers(&triangles.face).into_iter()))
    });
    MeshEntry {
        name: mesh.name.clone(),
        facts: mesh.facts.clone(),
        vertices: points.len(),
        faces: mesh.mesh.face_count(),
        triangles: triangles.face.len(),
        registration,
        low: low.to_array(),
        step,
        positions,
        corners,
        edges: polygons.map(|(edges, _)| edges),
        face: polygons.map(|(_, face)| face),
        frames: mesh.frames.as_deref().map(|f| frame_columns(f, block)),
        fields: mesh.fields.iter().map(|f| field_entry(f, block)).collect(),
    }
}

/// The grid of positions: fine compared with short edges, and never too fine for its numbers.
fn position_step(mesh: &Mesh, extent: f64) -> f64 {
    let sides = mesh.faces().iter().flat_map(|corners| {
        let next = corners.iter().cycle().skip(1);
        corners.iter().zip(next).map(|(&a, &b)| [a, b])
    });
    let points = mesh.vertices();
    let length = |[a, b]: [u32; 2]| points[a as usize].distance(points[b as usize]);
    let mut lengths: Vec<f64> = sides.map(length).filter(|&length| length > 0.0).collect();
    let place = (SHORT * lengths.len() as f64) as usize;
    let short = if lengths.is_empty() { extent } else { *lengths.select_nth_unstable_by(place, f64::total_cmp).1 };
    let step = (EDGE_FRACTION * short).clamp(extent / STEPS.0, extent / STEPS.1);
    if step > 0.0 && step.is_finite() { step } else { 1.0 }
}

/// The triangles of all faces.
struct Triangles {
    corners: Vec<u32>,
    edges: Vec<bool>,
    face: Vec<u32>,
    /// True if a face has more than three corners.
    polygons: bool,
}

impl Triangles {
    fn new(mesh: &Mesh) -> Self {
        let mut all = Self {
            corners: Vec::with_capacity(3 * mesh.face_count()),
            edges: Vec::new(),
            face: Vec::new(),
            polygons: false,
        };
        let mut cuts = Vec::new();
        for (face, corners) in mesh.faces().iter().enumerate() {
            let sides = corners.len();
            if sides == 3 {
                cuts.clear();
                cuts.push([0, 1, 2]);
            } else {
                all.polygons = true;
                let places: Vec<DVec3> = mesh.face_positions(face).collect();
                triangulate(&places, vector_area(places.iter().copied()), &mut cuts);
            }
            for cut in &cuts {
                for (place, next) in [(0, 1), (1, 2), (2, 0)] {
                    all.corners.push(corners[cut[place]]);
                    all.edges.push((cut[place] + 1) % sides == cut[next]);
                }
                all.face.push(face as u32);
            }
        }
        all
    }
}

fn frame_columns(frames: &[Frame], block: &mut Block) -> [Column; 4] {
    let flat: Vec<[DVec2; 2]> = frames.iter().map(|frame| [octahedral(frame.normal), octahedral(frame.e1)]).collect();
    std::array::from_fn(|column| {
        let number = |pair: &[DVec2; 2]| (32_767.0 * pair[column / 2][column % 2]).round() as i32;
        block.push(flat.iter().map(number))
    })
}

/// A unit vector as a point of the square from -1 to 1: an octahedron, unfolded.
fn octahedral(vector: DVec3) -> DVec2 {
    let vector = vector / (vector.x.abs() + vector.y.abs() + vector.z.abs()).max(f64::MIN_POSITIVE);
    let flat = DVec2::new(vector.x, vector.y);
    if vector.z < 0.0 { (1.0 - flat.yx().abs()) * DVec2::ONE.copysign(flat) } else { flat }
}

fn field_entry(field: &super::Field, block: &mut Block) -> FieldEntry {
    let (mut low, mut step, mut table) = (0.0, 1.0, None);
    let (kind, columns) = match &field.values {
        Values::Numbers(numbers) => {
            (low, step) = number_grid(numbers);
            let number = |&value: &f32| match value.is_finite() {
                true => ((f64::from(value) - low) / step).round() as i32,
                false => MISSING,
            };
            ("numbers", vec![block.push(numbers.iter().map(number))])
        }
        Values::Labels { table: at, classes } => {
            table = Some(*at);
            let class = |&class: &u32| class as i32;
            ("labels", vec![block.push(classes.iter().map(class))])
        }
        Values::Colours(colours) => {
            let channel = |c: usize| colours.iter().map(move |colour| i32::from(colour[c]));
            let columns = [0, 1, 2].map(|c| block.push(channel(c)));
            ("colours", columns.into())
        }
        Values::Vectors(vectors) => {
            let finite = vectors.iter().filter(|v| v.is_finite());
            let largest = finite.map(|v| v.abs().max_element()).fold(0.0, f64::max);
            step = if largest > 0.0 { 2.0 * largest / LEVELS } else { 1.0 };
            // Vectors that are not finite are drawn as zero.
            let component = |axis: usize| {
                let number = move |v: &DVec3| (v[axis] / step).round() as i32;
                vectors.iter().map(number)
            };
            let columns = [0, 1, 2].map(|axis| block.push(component(axis)));
            ("vectors", columns.into())
        }
    };
    FieldEntry { name: field.name.clone(), on: field.on, role: field.role, kind, table, low, step, columns }
}

/// Lowest number and step. Integers are exact; other numbers have 65,535 levels between the lowest and the highest.
fn number_grid(numbers: &[f32]) -> (f64, f64) {
    let finite = numbers.iter().map(|&v| f64::from(v));
    let finite = finite.filter(|v| v.is_finite());
    let low = finite.clone().fold(f64::INFINITY, f64::min);
    let high = finite.clone().fold(f64::NEG_INFINITY, f64::max);
    if low > high {
        return (0.0, 1.0);
    }
    let span = high - low;
    let whole = span < EXACT && finite.clone().all(|v| v.fract() == 0.0);
    match (whole, span > 0.0) {
        (true, _) | (false, false) => (low, 1.0),
        (false, true) => (low, span / LEVELS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octahedral_coordinates_are_those_of_the_vector() {
        for vector in [DVec3::X, DVec3::NEG_Z, DVec3::new(-0.48, 0.6, -0.64), DVec3::new(0.6, -0.64, 0.48)] {
            let flat = octahedral(vector);
            let z = 1.0 - flat.x.abs() - flat.y.abs();
            let fold = DVec2::splat((-z).max(0.0));
            let xy = flat - fold * DVec2::ONE.copysign(flat);
            let back = DVec3::new(xy.x, xy.y, z).normalize();
            assert!((back - vector).length() < 1e-12, "{vector} {back}");
        }
    }

    #[test]
    fn integers_are_exact_and_numbers_have_many_levels() {
        assert_eq!(number_grid(&[3.0, f32::NAN, -2.0]), (-2.0, 1.0));
        assert_eq!(number_grid(&[0.5, 0.5]), (0.5, 1.0));
        assert_eq!(number_grid(&[f32::INFINITY]), (0.0, 1.0));
        let (low, step) = number_grid(&[0.0, 0.5, 1.0]);
        assert_eq!((low, step * LEVELS), (0.0, 1.0));
    }
}
