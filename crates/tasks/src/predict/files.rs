//! Prediction files: meshes with labels, values, vectors and colours; arrays; pictures.

use super::{MAX_PROBABILITIES, Prediction, colours};
use crate::data::{Classes, npy_f32, npy_i64, vectors};
use crate::elements::edges;
use crate::layout::RESULTS_MARK;
use crate::train::TrainedModel;
use crate::{Element, Result, TaskError};
use gemcnn_mesh::{
    AttributeValues, DVec3, Frame, Mesh, MeshReport, SharedFolder, VertexAttribute, WriteOptions, write_atomically,
    write_mesh_with_faces,
};
use gemcnn_view::plot::Key;
use gemcnn_view::render::{Arrow, Paint, RenderOptions, Up, View, label_colour, render_painted};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest number of arrows in a picture; more would overlap.
const MAX_ARROWS: usize = 1500;
const ARROW_COLOUR: [u8; 3] = [40, 40, 40];

/// Options of pictures of predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pictures {
    /// Axis that points up (default: inferred from each mesh).
    pub up: Option<Up>,
}

/// Largest number of classes of a legend.
const MAX_NAMES: usize = 64;

/// Writes predictions to a directory. Each file is written completely or not at all, and replaces one of the same
/// name.
#[derive(Debug, Clone)]
pub struct PredictionFiles {
    directory: PathBuf,
    classes: Option<Classes>,
    /// Correspondence: colours of the template vertices.
    template: Option<Vec<[u8; 3]>>,
    /// Options of pictures; `None` for no pictures.
    pictures: Option<Pictures>,
    _folder: Arc<SharedFolder>,
}

impl PredictionFiles {
    /// Creates the directory. An existing one must be empty or contain prediction results; incomplete files of killed
    /// processes are removed from it. In correspondence, a vertex
    /// has the colour of the predicted template point, if the model has its template.
    ///
    /// # Errors
    /// A directory that cannot be created, or that contains other files, which results could replace.
    pub fn new(directory: &Path, model: &TrainedModel, pictures: Option<Pictures>) -> Result<Self> {
        std::fs::create_dir_all(directory).map_err(TaskError::file(directory))?;
        let mark = mark(directory)?;
        let folder = SharedFolder::open(directory, &mark).map_err(TaskError::file(&mark))?;
        Ok(Self {
            directory: directory.into(),
            classes: model.classes.clone(),
            template: model.template.as_ref().map(colours::template_colours),
            pictures,
            _folder: Arc::new(folder),
        })
    }

    /// Writes `NAME.ply`, `NAME.npy` and `NAME.png` for a mesh with its frames, and returns their paths. Properties of
    /// the mesh are those of vertices or faces. Labels of edges are in `NAME.eseg` instead. Writes nothing for a
    /// prediction of the whole mesh. With `probabilities` of all classes, row after row, the mesh has them and the
    /// largest one (`confidence`) as properties, colours are paler where the model is less sure, and
    /// `NAME.probabilities.npy` is written too.
    ///
    /// # Errors
    /// A file that cannot be written, a prediction for another mesh, or values of orders above 1, which depend on the
    /// frames.
    pub fn write(
        &self,
        name: &str,
        mesh: &Mesh,
        frames: &[Frame],
        prediction: &Prediction,
        probabilities: Option<&[f32]>,
    ) -> Result<Vec<PathBuf>> {
        let (per, rows) = match prediction {
            Prediction::MeshClass { .. } => (Element::Mesh, 1),
            Prediction::Classes { per, classes } => (*per, classes.len()),
            Prediction::Values { per, kind, values } => (*per, values.len() / kind.dimension().max(1)),
        };
        let expected = per.count(mesh);
        if rows != expected || frames.len() != mesh.vertex_count() {
            let [_, elements] = per.words();
            let problem = format!("the prediction is for {rows} {elements}, but the mesh has {expected}");
            return Err(TaskError::setting(name, problem));
        }
        let (mut attributes, array) = match prediction {
            _ if per == Element::Mesh => return Ok(Vec::new()),
            Prediction::MeshClass { .. } => return Ok(Vec::new()),
            Prediction::Classes { classes, .. } => self.labels(classes),
            Prediction::Values { kind, values, .. } => {
                if kind.highest_order() > 1 {
                    let problem = format!("values of type {kind} cannot be written to files");
                    return Err(TaskError::setting(name, problem));
                }
                values_and_vectors(kind, values, frames)
            }
        };
        let template = self.template.as_deref();
        let (mut colours, range) = colours::of_prediction(prediction, template, frames);
        let shares = probabilities.map(|all| (all, all.len() / rows.max(1)));
        if let Some((all, classes)) = shares.filter(|(_, classes)| *classes > 0) {
            let confidences: Vec<f32> =
                (all.chunks_exact(classes)).map(|row| row.iter().copied().fold(0.0, f32::max)).collect();
            colours::fade(&mut colours, &confidences, classes);
            attributes.extend(self.shares(all, classes));
            let confidence = AttributeValues::F32(confidences);
            attributes.push(VertexAttribute::new("confidence", confidence));
        }
        attributes.extend(colours::attributes(&colours));
        let (of_vertices, of_faces) = match per {
            Element::Face => (Vec::new(), attributes),
            Element::Edge => Default::default(),
            Element::Vertex | Element::Mesh => (attributes, Vec::new()),
        };
        let path = |ending: &str| self.directory.join(format!("{name}.{ending}"));
        let mut paths = vec![path("ply"), path("npy")];
        let options = WriteOptions::default();
        write_mesh_with_faces(&paths[0], mesh, &of_vertices, &of_faces, &options)?;
        write_atomically(&paths[1], |file| file.write_all(&array)).map_err(TaskError::file(&paths[1]))?;
        if let (Element::Edge, Prediction::Classes { classes, .. }) = (per, prediction) {
            let path = path("eseg");
            write_atomically(&path, |file| {
                (classes.iter()).try_for_each(|&class| writeln!(file, "{}", self.label(class)))
            })
            .map_err(TaskError::file(&path))?;
            paths.push(path);
        }
        if let Some((all, classes)) = shares {
            let path = path("probabilities.npy");
            let array = npy_f32(all, Some(classes));
            write_atomically(&path, |file| file.write_all(&array)).map_err(TaskError::file(&path))?;
            paths.push(path);
        }
        if let Some(Pictures { up }) = self.pictures {
            let options = RenderOptions {
                view: View::orbit(30.0, 20.0, up.unwrap_or_else(|| Up::of(mesh))),
                ..RenderOptions::default()
            };
            let arrows = arrows(prediction, mesh, frames);
            let on_sides;
            let paint = match (per, prediction) {
                (Element::Face, _) => Paint::Faces(&colours),
                (Element::Edge, _) => {
                    on_sides = of_sides(mesh, &colours);
                    Paint::Sides(&on_sides)
                }
                // The colours of a correspondence are those of a smooth map.
                (_, Prediction::Classes { classes, .. }) if self.template.is_none() => {
                    Paint::Classes { classes, colours: &colours }
                }
                _ => Paint::Smooth(&colours),
            };
            let mut picture = render_painted(mesh, paint, &arrows, &options)
                .map_err(|error| TaskError::setting(name, error.to_string()))?;
            if let Some(key) = self.key(prediction, range) {
                picture = key.beside(&picture);
            }
            let path = path("png");
            write_atomically(&path, |file| file.write_all(&picture.encode_png())).map_err(TaskError::file(&path))?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// The key of a picture: the classes in it, or the range of its values.
    fn key(&self, prediction: &Prediction, range: Option<[f64; 2]>) -> Option<Key> {
        if let Some([low, high]) = range {
            let is_finite = low.is_finite() && high.is_finite();
            return is_finite.then_some(Key::Range { low, high });
        }
        let (Prediction::Classes { classes, .. }, None) = (prediction, &self.template) else { return None };
        let mut found = classes.clone();
        found.sort_unstable();
        found.dedup();
        let name = |&class: &u32| match &self.classes {
            Some(all) => all.name(class as usize),
            None => class.to_string(),
        };
        let row = |class: &u32| (name(class), label_colour(*class));
        (found.len() <= MAX_NAMES).then(|| Key::Classes(found.iter().map(row).collect()))
    }

    /// Label of a class in files.
    fn label(&self, class: u32) -> i64 {
        match &self.classes {
            Some(all) => all.label(class as usize),
            None => class.into(),
        }
    }

    /// The probability of each class as an attribute, if the classes are not too many.
    fn shares(&self, probabilities: &[f32], classes: usize) -> Vec<VertexAttribute> {
        if classes > MAX_PROBABILITIES {
            return Vec::new();
        }
        let share = |class: usize| {
            let column = probabilities.iter().skip(class).step_by(classes);
            let column = AttributeValues::F32(column.copied().collect());
            let name = format!("probability_{}", self.label(class as u32));
            VertexAttribute::new(name, column)
        };
        (0..classes).map(share).collect()
    }

    /// Labels as an attribute and as an array.
    fn labels(&self, classes: &[u32]) -> (Vec<VertexAttribute>, Vec<u8>) {
        let labels: Vec<i64> = classes.iter().map(|&class| self.label(class)).collect();
        let short: Result<Vec<i32>, _> = labels.iter().map(|&label| label.try_into()).collect();
        let column = match short {
            Ok(short) => AttributeValues::I32(short),
            Err(_) => AttributeValues::F64(labels.iter().map(|&label| label as f64).collect()),
        };
        let columns = vec![VertexAttribute::new("label", column)];
        (columns, npy_i64(&labels))
    }
}

/// True if a directory holds prediction results.
pub fn holds_results(directory: &Path) -> bool {
    directory.join(RESULTS_MARK).exists()
}

/// Marks an empty directory as one of prediction results. Returns the mark.
fn mark(directory: &Path) -> Result<PathBuf> {
    let mark = directory.join(RESULTS_MARK);
    if mark.exists() {
        return Ok(mark);
    }
    for entry in std::fs::read_dir(directory).map_err(TaskError::file(directory))? {
        let name = entry.map_err(TaskError::file(directory))?.file_name();
        if !name.to_string_lossy().starts_with('.') {
            let problem = "the directory contains files that are not prediction results and could be replaced; choose another \
                 directory";
            return Err(TaskError::at(directory, problem));
        }
    }
    std::fs::write(&mark, "Prediction results: files in this directory may be replaced.\n")
        .map_err(TaskError::file(&mark))?;
    Ok(mark)
}

/// Scalars, then vectors in space, as vertex attributes and as an array of the same columns.
fn values_and_vectors(
    kind: &gemcnn_nn::FeatureType,
    values: &[f32],
    frames: &[Frame],
) -> (Vec<VertexAttribute>, Vec<u8>) {
    let (scalars, vectors) = (kind.multiplicity(0), kind.multiplicity(1));
    let number = |count: usize, index: usize| match count {
        1 => String::new(),
        _ => index.to_string(),
    };
    let mut columns: Vec<(String, Vec<f32>)> = Vec::new();
    let rows = values.chunks_exact(kind.dimension().max(1));
    for scalar in 0..scalars {
        let column = rows.clone().map(|row| row[scalar]).collect();
        columns.push((format!("value{}", number(scalars, scalar)), column));
    }
    let in_space = vectors::in_space(frames, &colours::order_one(kind, values));
    for vector in 0..vectors {
        for (axis, letter) in ["x", "y", "z"].into_iter().enumerate() {
            let of_vertices = in_space.iter().skip(vector).step_by(vectors);
            let column = of_vertices.map(|v| v[axis] as f32).collect();
            columns.push((format!("v{letter}{}", number(vectors, vector)), column));
        }
    }
    let width = columns.len();
    let flat: Vec<f32> = (0..rows.len()).flat_map(|row| columns.iter().map(move |(_, column)| column[row])).collect();
    let array = npy_f32(&flat, (width > 1).then_some(width));
    let column = |(name, values)| VertexAttribute::new(name, AttributeValues::F32(values));
    (columns.into_iter().map(column).collect(), array)
}

/// The colour of the edge of each side of the faces, at the corner where the side starts.
fn of_sides(mesh: &Mesh, colours: &[[u8; 3]]) -> Vec<[u8; 3]> {
    let numbers: HashMap<[u32; 2], &[u8; 3]> = edges(mesh).into_iter().zip(colours).collect();
    let of_face = |corners: &[u32]| {
        let next = corners.iter().cycle().skip(1);
        let colour = |(a, b): (&u32, &u32)| numbers.get(&[*a.min(b), *a.max(b)]);
        let sides = corners.iter().zip(next).map(colour);
        sides.map(|colour| colour.map_or([255; 3], |&&colour| colour)).collect::<Vec<_>>()
    };
    mesh.faces().iter().flat_map(of_face).collect()
}

/// Arrows of the first vector of each vertex, or of some vertices if there are many. The longest one has the length
/// of the spacing between arrows.
fn arrows(prediction: &Prediction, mesh: &Mesh, frames: &[Frame]) -> Vec<Arrow> {
    let Prediction::Values { kind, values, .. } = prediction else { return Vec::new() };
    let count = kind.multiplicity(1);
    if count == 0 {
        return Vec::new();
    }
    let vectors = vectors::in_space(frames, &colours::order_one(kind, values));
    let vectors: Vec<DVec3> = vectors.into_iter().step_by(count).collect();
    let every = vectors.len().div_ceil(MAX_ARROWS).max(1);
    let shown = vectors.len().div_ceil(every).max(1);
    let spacing = (MeshReport::new(mesh).area / shown as f64).sqrt();
    let longest = vectors.iter().map(|v| v.length()).fold(0.0, f64::max);
    if longest == 0.0 {
        return Vec::new();
    }
    let arrow = |(&from, vector): (&DVec3, &DVec3)| Arrow {
        from,
        to: from + *vector * (spacing / longest),
        colour: ARROW_COLOUR,
    };
    let pairs = mesh.vertices().iter().zip(&vectors);
    pairs.step_by(every).map(arrow).collect()
}
