//! Pages of mesh files and prediction results.

use super::titled;
use crate::failure::Failure;
use crate::mesh;
use gemcnn_mesh::{AttributeValues, DVec3, GaugeGraph, GeometryOptions, MeshFile, VertexAttribute};
use gemcnn_tasks::page::MAX_FRAMES;
use gemcnn_view::page::{ClassTable, Element, Field, Page, PageMesh, Role, Values};
use gemcnn_view::render::label_colour;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Integers with more distinct values are numbers and not labels.
const MAX_LABELS: usize = 256;
/// Properties that are no labels.
const CHANNELS: [&str; 4] = ["red", "green", "blue", "alpha"];
/// The property of predicted labels, by `gemcnn predict`.
const LABEL: &str = "label";

/// The page of mesh files.
pub(super) fn page(paths: &[PathBuf]) -> Result<Page, Failure> {
    let files = paths.iter().map(|path| mesh::read(path));
    let files: Vec<MeshFile> = files.collect::<Result<_, _>>()?;
    let names = names(paths);
    let mut page = titled(&names);
    let tables = label_tables(&files);
    let places: BTreeMap<&str, usize> = tables.keys().map(String::as_str).zip(0..).collect();
    page.classes = tables.values().map(|labels| class_table(labels)).collect();
    let mut framed = true;
    for ((name, path), file) in names.into_iter().zip(paths).zip(files) {
        let mut fields = Vec::new();
        for (on, columns) in [(Element::Vertex, &file.attributes), (Element::Face, &file.face_attributes)] {
            let labels = |column: &VertexAttribute| {
                let values = tables.get(&*column.name)?;
                let class = |value: i64| values.binary_search(&value).unwrap_or_default() as u32;
                Some(Values::Labels {
                    table: *places.get(&*column.name)?,
                    classes: integers(&column.values)?.map(class).collect(),
                })
            };
            for mut field in columns_to_fields(on, columns, &labels) {
                // Names are unique within a mesh.
                if fields.iter().any(|other: &Field| other.name == field.name) {
                    field.name += " (faces)";
                }
                fields.push(field);
            }
        }
        if is_prediction(path) {
            mark_predictions(&mut fields);
        }
        let is_small = file.mesh.vertex_count() <= MAX_FRAMES;
        framed &= is_small;
        let options = GeometryOptions { estimate_normals: true, ..Default::default() };
        let graph = (is_small).then(|| GaugeGraph::new(&file.mesh, &options).ok());
        page.meshes.push(PageMesh {
            frames: graph.flatten().map(|graph| graph.frames().to_vec()),
            fields,
            ..PageMesh::new(name, file.mesh)
        });
    }
    if !framed {
        let note = "Frames of meshes with more than 200,000 vertices are left out.";
        page.notes.push(note.into());
    }
    Ok(page)
}

/// File names, or paths where file names are not unique.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let short = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into());
    let short: Vec<String> = paths.iter().filter_map(|path| short(path)).collect();
    let distinct: BTreeSet<&String> = short.iter().collect();
    if distinct.len() == paths.len() { short } else { paths.iter().map(|p| p.display().to_string()).collect() }
}

/// The integers of a column; `None` for other numbers.
fn integers(values: &AttributeValues) -> Option<impl Iterator<Item = i64>> {
    let is_float = matches!(values, AttributeValues::F32(_) | AttributeValues::F64(_));
    (!is_float).then(|| values.iter_f64().map(|value| value as i64))
}

/// The distinct labels of each property of integers, over all files. Properties with many values have none.
fn label_tables(files: &[MeshFile]) -> BTreeMap<String, Vec<i64>> {
    let mut tables: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
    let mut others: BTreeSet<&str> = BTreeSet::new();
    for file in files {
        let columns = file.attributes.iter().chain(&file.face_attributes);
        for column in columns.filter(|column| !CHANNELS.contains(&&*column.name)) {
            match integers(&column.values) {
                Some(values) => {
                    let table = tables.entry(&column.name).or_default();
                    if table.len() <= MAX_LABELS {
                        table.extend(values);
                    }
                }
                None => {
                    others.insert(&column.name);
                }
            }
        }
    }
    tables.retain(|name, labels| labels.len() <= MAX_LABELS && !others.contains(name));
    let sorted = |(name, labels): (&str, BTreeSet<i64>)| (name.to_owned(), labels.into_iter().collect());
    tables.into_iter().map(sorted).collect()
}

fn class_table(labels: &[i64]) -> ClassTable {
    ClassTable {
        names: labels.iter().map(i64::to_string).collect(),
        colours: labels.iter().map(|&label| label_colour(label as u32)).collect(),
    }
}

/// Fields of the columns of a file: colours and vectors take three columns each.
fn columns_to_fields(
    on: Element,
    columns: &[VertexAttribute],
    labels: &dyn Fn(&VertexAttribute) -> Option<Values>,
) -> Vec<Field> {
    let find = |name: &str| columns.iter().find(|column| column.name == name);
    let mut fields = Vec::new();
    let mut used: Vec<&str> = Vec::new();
    for column in columns {
        let name = column.name.as_str();
        if used.contains(&name) || name == "alpha" {
            continue;
        }
        let colours = (name == "red").then(|| [Some(column), find("green"), find("blue")]);
        if let Some([Some(red), Some(green), Some(blue)]) = colours
            && let [AttributeValues::U8(r), AttributeValues::U8(g), AttributeValues::U8(b)] =
                [&red.values, &green.values, &blue.values]
        {
            let colours = r.iter().zip(g).zip(b).map(|((&r, &g), &b)| [r, g, b]);
            used.extend(["green", "blue"]);
            fields.push(Field::new("colours", on, Values::Colours(colours.collect())));
            continue;
        }
        if let Some([x, y, z]) = vector(name, find) {
            used.extend([y.name.as_str(), &z.name]);
            let component = |column: &VertexAttribute| -> Vec<f64> { column.values.iter_f64().collect() };
            let (x, y, z) = (component(x), component(y), component(z));
            let vectors = x.iter().zip(&y).zip(&z);
            let vectors = vectors.map(|((&x, &y), &z)| DVec3::new(x, y, z));
            let short = match name {
                "nx" => "normals".into(),
                name => format!("vectors{}", &name[2..]),
            };
            fields.push(Field::new(short, on, Values::Vectors(vectors.collect())));
            continue;
        }
        let values =
            labels(column).unwrap_or_else(|| Values::Numbers(column.values.iter_f64().map(|v| v as f32).collect()));
        fields.push(Field::new(name, on, values));
    }
    fields
}

/// The three columns of a vector, if this is the name of its first: `nx`, `vx`, or `vx0` and so on.
fn vector<'a>(name: &str, find: impl Fn(&str) -> Option<&'a VertexAttribute>) -> Option<[&'a VertexAttribute; 3]> {
    let (letter, number) = match (name.strip_prefix("vx"), name) {
        (Some(number), _) => ('v', number),
        (None, "nx") => ('n', ""),
        _ => return None,
    };
    let of = |axis: char| find(&format!("{letter}{axis}{number}"));
    Some([of('x')?, of('y')?, of('z')?])
}

/// True for a file that `gemcnn predict` wrote.
fn is_prediction(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    gemcnn_tasks::predict::holds_results(folder)
}

/// Labels, values and vectors of a prediction have that role. Many different labels are points of a template.
fn mark_predictions(fields: &mut [Field]) {
    for field in fields {
        field.role = match (&field.values, field.name.as_str()) {
            (Values::Numbers(_), LABEL) => Some(Role::Point),
            (Values::Labels { .. }, LABEL) => Some(Role::Prediction),
            (Values::Vectors(_), "vectors") => Some(Role::Prediction),
            (Values::Numbers(_), name) if name.starts_with("value") => Some(Role::Prediction),
            _ => field.role,
        };
    }
}
