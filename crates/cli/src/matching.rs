//! `gemcnn match`: maps between meshes.

use crate::device::DeviceArgs;
use crate::failure::{Failure, NO_MESHES};
use crate::mesh;
use crate::output::{count, print, print_on, say, write_file};
use crate::predict::lies_in;
use crate::progress;
use clap::Args;
use gemcnn_matching::{Evidence, Match, MatchError, Matcher, Shape, Verdict};
use gemcnn_mesh::remesh::SurfacePoint;
use gemcnn_mesh::{
    AttributeValues, DVec3, Mesh, MeshFile, VertexAttribute, WriteOptions, stored_in, vector_name, write_mesh,
};
use gemcnn_nn::{Device, ProductMode, Workspace};
use gemcnn_tasks::data::{csv_cell, mesh_files, npy_f32, npy_i64};
use gemcnn_tasks::predict::{UniqueNames, template_colours};
use gemcnn_tasks::train::TrainedModel;
use gemcnn_view::page::{Element, Field, Page, PageMesh, Role, Values};
use gemcnn_view::render::{RenderOptions, Up, View, render};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Name of the property with the confidence of each vertex.
const CONFIDENCE: &str = "confidence";
/// Name of the table of many matches.
const TABLE: &str = "matches.csv";
/// Integers up to here are exact in single precision.
const EXACT: usize = 1 << 24;

/// Options of `gemcnn match`.
#[derive(Debug, Args)]
pub struct MatchArgs {
    /// A mesh, or a folder of meshes.
    #[arg(value_name = "A")]
    a: PathBuf,

    /// Another mesh, or a folder of meshes if A is a mesh.
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Output file (.npy, .csv or .txt): for each vertex of A the vertex of B. For a folder, a directory with NAME.npy
    /// and NAME.ply for each mesh and the table matches.csv.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// Write points of faces instead of vertices: three vertices of B and their barycentric weights in each row.
    #[arg(long, requires = "output")]
    precise: bool,

    /// Write the functional map: a matrix that maps coefficients of eigenfunctions of B to those of A.
    #[arg(long, value_name = "OUT.npy")]
    functional_map: Option<PathBuf>,

    /// Carry these properties of the vertices of B to A, separated by commas: labels, numbers, texture coordinates, vectors
    /// (`flow` for flow_x, flow_y and flow_z), or `colour`.
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    transfer: Vec<String>,

    /// Write A with the carried properties and the confidence of each vertex: .ply, .vtp or .glb.
    #[arg(long, value_name = "OUT.ply")]
    mesh: Option<PathBuf>,

    /// Draw both meshes, with the same colour at points that correspond.
    #[arg(long, value_name = "OUT.png")]
    picture: Option<PathBuf>,

    /// Write a map that means nothing all the same.
    #[arg(long)]
    force: bool,

    /// Print measures and notes as JSON.
    #[arg(long)]
    json: bool,

    /// Model for other surfaces than human bodies: the directory of `gemcnn train matching`, or a model file [default: the
    /// bundled model bodies-match]
    #[arg(long, value_name = "RUN")]
    model: Option<PathBuf>,

    #[command(flatten)]
    device: DeviceArgs,
}

/// A mesh file, and what is matched of it.
struct Side {
    path: PathBuf,
    file: MeshFile,
    shape: Shape,
}

impl Side {
    fn new(path: &Path, file: MeshFile, shape: Result<Shape, MatchError>) -> Result<Self, Failure> {
        let shape = shape.map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), file, shape })
    }
}

impl MatchArgs {
    pub fn run(self) -> Result<(), Failure> {
        let matcher = match &self.model {
            None => Matcher::of_bodies().map_err(Failure::input)?,
            Some(run) => Matcher::new(TrainedModel::read(run).map_err(Failure::input)?).map_err(Failure::at(run))?,
        };
        let device = self.device.open_quietly(ProductMode::default())?;
        let mut session = Session { matcher, workspace: Workspace::new(device) };
        match (self.a.is_dir(), self.b.is_dir()) {
            (false, false) => self.pair(&mut session),
            (true, true) => Err(Failure::usage("only one of A and B can be a folder")),
            _ => self.many(&mut session),
        }
    }

    /// Matches two meshes.
    fn pair(&self, session: &mut Session) -> Result<(), Failure> {
        if self.output.is_none() && self.functional_map.is_none() && self.mesh.is_none() && self.picture.is_none() {
            if !self.transfer.is_empty() {
                return Err(Failure::usage("--transfer needs --mesh OUT.ply, the mesh with the carried fields"));
            }
            say("note: no output was asked for, such as -o map.npy");
        }
        let encode = self.output.as_deref().map(Encoding::of).transpose()?;
        if let Some(path) = &self.mesh
            && !stored_in(path).is_some_and(|stores| stores.vertex_attributes)
        {
            return Err(Failure::usage(format!(
                "{}: write a .ply, .vtp or .glb file, which has fields",
                path.display()
            )));
        }
        let [a, b] = session.open_both([&self.a, &self.b])?;
        let columns = wanted(&b, &self.transfer)?;
        let found = progress::during("matching", || Match::new(&a.shape, &b.shape)).map_err(Failure::input)?;
        self.report(&a, &b, &found)?;
        if found.evidence.verdict() == Verdict::Meaningless && !self.force {
            let models = match self.model {
                None => "the model is for human bodies, and other surfaces need their own (--model)",
                Some(_) => "the model may be for other surfaces",
            };
            return Err(Failure::input(format!(
                "this map means nothing; nothing was written (--force writes it); {models}"
            )));
        }
        if let (Some(path), Some(encoding)) = (&self.output, encode) {
            write_file(path, &encoding.encode(&found, self.precise, b.file.mesh.vertex_count())?)?;
        }
        if let Some(path) = &self.functional_map {
            let map = &found.functional_map;
            write_file(path, &npy_f32(&map.values, Some(map.size)))?;
        }
        if let Some(path) = &self.mesh {
            write_fields(path, &a, &found, &columns)?;
        }
        if let Some(path) = &self.picture {
            write_file(path, &progress::during("drawing", || picture(&a.file.mesh, &b.file.mesh, &found))?)?;
        }
        Ok(())
    }

    /// Matches each mesh of a folder with the other one.
    fn many(&self, session: &mut Session) -> Result<(), Failure> {
        let Some(folder) = &self.output else {
            return Err(Failure::usage("a folder needs -o DIR, a directory for the results"));
        };
        if self.functional_map.is_some() || self.mesh.is_some() || self.picture.is_some() || self.precise {
            return Err(Failure::usage("--precise, --functional-map, --mesh and --picture are for two meshes"));
        }
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::input(format!("{}: cannot make the directory: {error}", folder.display())))?;
        let (one, many) = if self.a.is_dir() { (&self.b, &self.a) } else { (&self.a, &self.b) };
        let one = session.open(one)?;
        let paths = mesh_files(many).map_err(Failure::input)?;
        if let Some(path) = paths.iter().find(|path| lies_in(path, folder)) {
            let problem = "results could replace meshes; choose another directory";
            return Err(Failure::usage(format!("{} is in {}: {problem}", path.display(), folder.display())));
        }
        let mut names = UniqueNames::default();
        let mut table = String::from("a,b,verdict,bijectivity,agreement,reversed,torn,likeness\n");
        let mut bad = 0;
        for path in paths {
            let other = match session.open(&path) {
                Ok(other) => other,
                Err(failure) => {
                    failure.report();
                    bad += 1;
                    continue;
                }
            };
            let name = names.of(&path);
            let (a, b) = if self.a.is_dir() { (&other, &one) } else { (&one, &other) };
            let columns = wanted(b, &self.transfer)?;
            let found = Match::new(&a.shape, &b.shape).map_err(Failure::input)?;
            self.report(a, b, &found)?;
            let verdict = found.evidence.verdict();
            let cells = [a, b].map(|side| csv_cell(&side.path.display().to_string()));
            let Evidence { bijectivity, agreement, reversed, torn, likeness, .. } = found.evidence;
            let measures = [bijectivity, agreement, reversed, torn, likeness].map(|value| format!(",{value:.4}"));
            table += &format!("{},{},{verdict}{}\n", cells[0], cells[1], measures.concat());
            if verdict == Verdict::Meaningless && !self.force {
                bad += 1;
                continue;
            }
            let map = Encoding::Npy.encode(&found, false, b.file.mesh.vertex_count())?;
            write_file(&folder.join(format!("{name}.npy")), &map)?;
            write_fields(&folder.join(format!("{name}.ply")), a, &found, &columns)?;
        }
        if table.lines().count() == 1 && bad == 0 {
            return Err(Failure::at(many)(NO_MESHES));
        }
        write_file(&folder.join(TABLE), table.as_bytes())?;
        if bad > 0 { Err(Failure::Reported) } else { Ok(()) }
    }

    /// Says what was matched and how sure that is.
    fn report(&self, a: &Side, b: &Side, found: &Match) -> Result<(), Failure> {
        let evidence = &found.evidence;
        if self.json {
            let notes = |side: &Side| side.shape.notes().iter().map(ToString::to_string).collect::<Vec<_>>();
            let doubts: Vec<String> = evidence.doubts().iter().map(ToString::to_string).collect();
            let report = json!({
                "a": { "file": a.path, "vertices": a.file.mesh.vertex_count(), "notes": notes(a) },
                "b": { "file": b.path, "vertices": b.file.mesh.vertex_count(), "notes": notes(b) },
                "verdict": evidence.verdict(),
                "doubts": doubts,
                "evidence": evidence,
            });
            return print_on(&format!("{report}\n"));
        }
        for side in [a, b] {
            for note in side.shape.notes() {
                say(format_args!("note: {}: {note}", side.path.display()));
            }
        }
        for doubt in evidence.doubts() {
            say(format_args!("warning: {doubt}"));
        }
        let vertices = |side: &Side| count(side.file.mesh.vertex_count(), "vertex", "vertices");
        print(&format!(
            "{} ({}) to {} ({}): {}\n",
            a.path.display(),
            vertices(a),
            b.path.display(),
            vertices(b),
            evidence.summary()
        ))
    }
}

/// A matcher with its workspace.
struct Session {
    matcher: Matcher,
    workspace: Workspace<f32>,
}

impl Session {
    fn open(&mut self, path: &Path) -> Result<Side, Failure> {
        let file = mesh::read(path)?;
        let what = format!("preparing {}", path.display());
        let shape = progress::during(&what, || self.matcher.shape(&mut self.workspace, &file.mesh));
        Side::new(path, file, shape)
    }

    fn open_both(&mut self, [a, b]: [&Path; 2]) -> Result<[Side; 2], Failure> {
        let (first, second) = (mesh::read(a)?, mesh::read(b)?);
        let meshes = [&first.mesh, &second.mesh];
        let [on_a, on_b] =
            progress::during("preparing both meshes", || self.matcher.shapes(&mut self.workspace, meshes));
        Ok([Side::new(a, first, on_a)?, Side::new(b, second, on_b)?])
    }
}

/// Format of a map.
#[derive(Clone, Copy)]
enum Encoding {
    Npy,
    Csv,
    Txt,
}

impl Encoding {
    fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().unwrap_or_default().to_string_lossy().to_lowercase().as_str() {
            "npy" => Ok(Self::Npy),
            "csv" => Ok(Self::Csv),
            "txt" => Ok(Self::Txt),
            _ => Err(Failure::usage(format!(
                "{}: the file name of a map must end in .npy, .csv or .txt",
                path.display()
            ))),
        }
    }

    /// A row for each vertex of A.
    fn encode(self, found: &Match, precise: bool, targets: usize) -> Result<Vec<u8>, Failure> {
        let separator = if matches!(self, Self::Csv) { "," } else { " " };
        let row = |point: &SurfacePoint| {
            let corners = point.corners.iter().map(u32::to_string);
            let cells: Vec<String> = corners.chain(point.weights.iter().map(|weight| format!("{weight:.7}"))).collect();
            cells.join(separator) + "\n"
        };
        match (self, precise) {
            (Self::Npy, false) => {
                Ok(npy_i64(&found.vertices().iter().map(|&vertex| vertex.into()).collect::<Vec<i64>>()))
            }
            (Self::Npy, true) if targets > EXACT => {
                Err(Failure::usage(format!("a .npy file holds points of up to {EXACT} vertices; write a .csv file")))
            }
            (Self::Npy, true) => {
                let corners = |point: &SurfacePoint| point.corners.map(|corner| corner as f32);
                let weights = |point: &SurfacePoint| point.weights.map(|weight| weight as f32);
                let rows = found.forward.iter().flat_map(|point| corners(point).into_iter().chain(weights(point)));
                Ok(npy_f32(&rows.collect::<Vec<_>>(), Some(6)))
            }
            (_, false) => Ok(found.vertices().iter().map(|vertex| format!("{vertex}\n")).collect::<String>().into()),
            (_, true) => Ok(found.forward.iter().map(row).collect::<String>().into()),
        }
    }
}

/// The columns of some fields of B.
fn wanted(b: &Side, names: &[String]) -> Result<Vec<VertexAttribute>, Failure> {
    let columns = &b.file.attributes;
    let mut found = Vec::new();
    for name in names {
        let before = found.len();
        let vector =
            columns.array_windows().find(|[x, y, z]| vector_name([&x.name, &y.name, &z.name]).as_ref() == Some(name));
        match (name.as_str(), vector) {
            ("colour" | "color", _) => {
                let is_colour = |column: &&VertexAttribute| ["red", "green", "blue", "alpha"].contains(&&*column.name);
                found.extend(columns.iter().filter(is_colour).cloned());
            }
            (_, Some(vector)) => found.extend_from_slice(vector),
            _ => found.extend(columns.iter().filter(|column| column.name == *name).cloned()),
        }
        if found.len() == before {
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            let available = if names.is_empty() { "none".into() } else { names.join(", ") };
            let file = b.path.display();
            return Err(Failure::input(format!("{file} has no vertex property `{name}`; available: {available}")));
        }
    }
    Ok(found)
}

/// Writes A with carried fields and the confidence.
fn write_fields(path: &Path, a: &Side, found: &Match, columns: &[VertexAttribute]) -> Result<(), Failure> {
    let mut fields = found.transfer(columns);
    fields.retain(|field| field.name != CONFIDENCE);
    fields.push(VertexAttribute::new(CONFIDENCE, AttributeValues::F32(found.confidence.clone())));
    write_mesh(path, &a.file.mesh, &fields, &WriteOptions::default()).map_err(Failure::input)
}

/// Links two meshes of a page: points that correspond have the same colour, and are marked together.
pub fn link(page: &mut Page) -> Result<(), Failure> {
    let [a, b] = &mut page.meshes[..] else { return Err(Failure::usage("--match needs two meshes")) };
    let matcher = Matcher::of_bodies().map_err(Failure::input)?;
    let mut workspace = Workspace::new(Device::Cpu);
    let [on_a, on_b] = matcher.shapes(&mut workspace, [&a.mesh, &b.mesh]);
    let refused = |mesh: &PageMesh, error: MatchError| Failure::input(format!("{}: {error}", mesh.name));
    let on_a = on_a.map_err(|error| refused(a, error))?;
    let on_b = on_b.map_err(|error| refused(b, error))?;
    let found = progress::during("matching", || Match::new(&on_a, &on_b)).map_err(Failure::input)?;
    for doubt in found.evidence.doubts() {
        say(format_args!("warning: {doubt}"));
    }
    page.notes.push(format!("The map: {}.", found.evidence.summary()));
    let colours = template_colours(&b.mesh);
    let own = 0..b.mesh.vertex_count() as u32;
    for (mesh, points, colours) in
        [(a, found.vertices(), carried_colours(&found, &colours)), (b, own.collect(), colours)]
    {
        let points = Values::Numbers(points.iter().map(|&point| point as f32).collect());
        let fields = [
            Field::new("matching colours", Element::Vertex, Values::Colours(colours)),
            Field::new("matching point", Element::Vertex, points).with_role(Role::Point),
        ];
        mesh.fields.splice(0..0, fields);
    }
    Ok(())
}

/// Colours of the vertices of B for those of A.
fn carried_colours(found: &Match, colours: &[[u8; 3]]) -> Vec<[u8; 3]> {
    let mixed = |point: &SurfacePoint| {
        let corners = point.corners.map(|corner| colours[corner as usize]);
        std::array::from_fn(|channel| {
            let terms = corners.iter().zip(&point.weights).map(|(corner, weight)| weight * f64::from(corner[channel]));
            terms.sum::<f64>().round() as u8
        })
    };
    found.forward.iter().map(mixed).collect()
}

/// Both meshes beside each other. Colours are places on B.
fn picture(a: &Mesh, b: &Mesh, found: &Match) -> Result<Vec<u8>, Failure> {
    let (a, b) = (standing(a)?, standing(b)?);
    let on_b = template_colours(&b);
    let mut colours = carried_colours(found, &on_b);
    colours.extend(on_b);
    let size = |mesh: &Mesh| mesh.bounds().map_or(DVec3::ZERO, |[low, high]| high - low);
    let gap = DVec3::X * 0.6 * (size(&a).x + size(&b).x);
    let both = Mesh::side_by_side([(&a, DVec3::ZERO), (&b, gap)]).map_err(Failure::input)?;
    let options = RenderOptions { view: View::orbit(0.0, 10.0, Up::Y), ..Default::default() };
    Ok(render(&both, Some(&colours), &[], &options).map_err(Failure::input)?.encode_png())
}

/// The mesh with its feet at the origin, height 1 and +y up.
fn standing(mesh: &Mesh) -> Result<Mesh, Failure> {
    let up = Up::of(mesh);
    let turned = mesh.map_vertices(|point| match up {
        Up::Y => point,
        Up::Z => DVec3::new(point.x, point.z, -point.y),
    });
    let turned = turned.map_err(Failure::input)?;
    let [low, high] = turned.bounds().unwrap_or_default();
    let height = (high - low).max_element().max(f64::MIN_POSITIVE);
    let middle = (0.5 * (low + high)).with_y(low.y);
    turned.map_vertices(|point| (point - middle) / height).map_err(Failure::input)
}
