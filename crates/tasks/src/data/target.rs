//! Targets of meshes, from properties of mesh files, target files, tables, or vertex indices.

use super::classes::Classes;
use super::content::Content;
use super::description::Column;
use super::meshes::Item;
use super::source::TargetSource;
use super::table::{NumberTable, TextTable, Words};
use super::{npy, vectors};
use crate::{DataError, Element, Result, TaskError};
use gemcnn_mesh::remesh::{SurfacePoint, carry_labels, carry_values};
use gemcnn_mesh::{DVec3, Frame, ValueFile, VertexAttribute};
use gemcnn_nn::{FeatureType, IGNORE, Target};
use glam::DMat3;
use rayon::prelude::*;
use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Largest integer up to which all are exact in f64.
const LARGEST_LABEL: f64 = 9_007_199_254_740_992.0;

/// The columns of a file with values of vertices.
fn value_table(file: &ValueFile) -> NumberTable {
    let columns = &file.attributes;
    let rows = columns.first().map_or(0, |column| column.values.len());
    NumberTable {
        header: columns.iter().map(|column| column.name.clone()).collect(),
        columns: columns.len(),
        values: (0..rows).flat_map(|row| columns.iter().map(move |column| column.values.to_f64(row))).collect(),
    }
}

/// What is learned: classes, `None` until they are known, or columns of values.
pub(crate) type Learned = Target<Option<Classes>, ValueColumns>;

/// The columns of values in regression.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueColumns {
    /// Type of a row.
    pub kind: FeatureType,
    /// Names in their order, or empty.
    pub names: Vec<String>,
    /// True if each three columns of a file are a vector in space.
    pub vectors: bool,
}

impl ValueColumns {
    /// A number of columns of a file.
    pub fn of(count: usize, names: Vec<String>, vectors: bool) -> Self {
        let kind = if vectors { FeatureType::new(&[0, count / 3]) } else { FeatureType::scalars(count) };
        Self { kind, names, vectors }
    }

    /// Number of columns of a file.
    pub fn count(&self) -> usize {
        if self.vectors { self.kind.dimension() / 2 * 3 } else { self.kind.dimension() }
    }
}

/// Reads the targets of meshes.
#[derive(Debug, Clone)]
pub(crate) struct TargetReader {
    pub source: TargetSource,
    pub learned: Learned,
    /// What a row of a target belongs to.
    pub per: Element,
    /// Names of classes and their labels, for text files.
    pub class_names: Vec<(String, i64)>,
    /// Numbers that mean "unknown", besides the label -1.
    pub unknown: Vec<i64>,
}

/// Where the rows of a remeshed mesh come from; both are empty if it was not remeshed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sources<'a> {
    /// Places of the vertices on the mesh of the file.
    pub vertices: &'a [SurfacePoint],
    /// For targets of faces or edges, those of the mesh of the file.
    pub elements: &'a [u32],
}

/// Labels of the elements of a mesh; `None` if unknown.
pub(crate) type Labels = Vec<Option<i64>>;

impl TargetReader {
    /// A reader of targets of vertices.
    pub fn new(source: TargetSource, learned: Learned) -> Self {
        Self { source, learned, per: Element::Vertex, class_names: Vec::new(), unknown: Vec::new() }
    }

    /// Target of a mesh with given vertex frames, after a motion (rotation or reflection) and a remeshing of the mesh.
    /// `vertices` is the number of vertices of the mesh. Only [vectors](Self::has_vectors) need frames.
    pub fn read(
        &self,
        item: &Item,
        content: &Content,
        (vertices, frames): (usize, &[Frame]),
        (motion, sources): (Option<DMat3>, Sources<'_>),
    ) -> Result<Target> {
        let is_remeshed = !sources.vertices.is_empty();
        let vertices = if is_remeshed { content.mesh()?.vertex_count() } else { vertices };
        let carries = is_remeshed && self.per != Element::Mesh;
        self.given(item, content, vertices)?.try_map(
            |labels| {
                let classes = self.classes_of(item, &labels)?;
                Ok(match self.per {
                    _ if !carries => classes,
                    Element::Vertex => carry_labels(sources.vertices, &classes),
                    _ => sources.elements.iter().map(|&row| classes[row as usize]).collect(),
                })
            },
            |NumberTable { columns, values, .. }| {
                let values = match self.per {
                    _ if !carries => values,
                    Element::Vertex => carry_values(sources.vertices, columns, &values),
                    _ => {
                        let row = |&row: &u32| &values[row as usize * columns..][..columns];
                        sources.elements.iter().flat_map(row).copied().collect()
                    }
                };
                Ok(self.in_frames(&values, frames, motion))
            },
        )
    }

    /// The target of a mesh as its files give it.
    pub fn given(&self, item: &Item, content: &Content, vertices: usize) -> Result<Target<Labels, NumberTable>> {
        let learned = self.learned.as_ref();
        learned.try_map(|_| self.labels(item, content, vertices), |_| self.values(item, content, vertices))
    }

    /// Takes the words in the files of meshes as names of classes. Numbers among them are labels; words have the
    /// smallest labels that are free. Changes nothing if there are hardly any words.
    pub fn name_classes(&mut self, items: &[&Item]) {
        let TargetSource::Files { columns, .. } = &self.source else { return };
        let read = |item: &&Item| {
            let path = self.source.file(item).filter(|path| TextTable::has_name(path))?;
            let bytes = gemcnn_mesh::read_file(&path).ok()?;
            TextTable::parse(&path, &bytes).ok()?.words(columns)
        };
        let found: Vec<Words> = items.par_iter().filter_map(read).collect();
        let (mut words, mut integers, [mut count, mut numbers]) = (BTreeSet::new(), BTreeSet::new(), [0, 0]);
        for Words { words: own, count: of_words, integers: labels, numbers: of_numbers, .. } in &found {
            words.extend(own.iter().cloned());
            integers.extend(labels.iter().copied());
            count += of_words;
            numbers += of_numbers;
        }
        // A word in one file may be a mistake.
        if count == 0 || count * 20 < numbers {
            return;
        }
        let first: BTreeSet<&Option<String>> = found.iter().map(|words| &words.first).collect();
        let is_header = first.len() == 1 && first.iter().all(|word| word.as_ref().is_some_and(|w| !words.contains(w)));
        if !is_header {
            words.extend(found.iter().filter_map(|words| words.first.clone()));
        }
        integers.retain(|label| *label != -1 && !self.unknown.contains(label));
        let mut free = (0..).filter(|label| !integers.contains(label) && !self.unknown.contains(label));
        let words: Vec<(String, i64)> = words.into_iter().filter_map(|word| Some((word, free.next()?))).collect();
        let numbers = integers.iter().map(|&label| (label.to_string(), label));
        let mut names: Vec<(String, i64)> = numbers.chain(words).collect();
        names.sort_by_key(|(_, label)| *label);
        self.class_names = names;
    }

    /// The classes; `None` for values, and until they are known.
    pub fn classes(&self) -> Option<&Classes> {
        self.learned.as_ref().classes()?.as_ref()
    }

    /// True if values are vectors in space.
    pub fn has_vectors(&self) -> bool {
        self.learned.as_ref().values().is_some_and(|columns| columns.vectors)
    }

    /// Number of rows of the target of a mesh.
    fn rows(&self, content: &Content, vertices: usize) -> Result<usize> {
        Ok(match self.per {
            Element::Vertex => vertices,
            Element::Mesh => 1,
            per => per.count(content.mesh()?),
        })
    }

    /// Labels of the elements.
    fn labels(&self, item: &Item, content: &Content, vertices: usize) -> Result<Labels> {
        match self.source {
            TargetSource::VertexNumber => return Ok((0..vertices as i64).map(Some).collect()),
            TargetSource::Registered(ref labels) => {
                return Ok(labels.iter().map(|&label| Some(label.into())).collect());
            }
            TargetSource::WholeMesh => {
                let label = |&class: &u32| Some(self.classes()?.label(class as usize));
                return Ok(vec![item.target.as_ref().classes().and_then(label)]);
            }
            TargetSource::Property(_) | TargetSource::Files { .. } => {}
        }
        let table = self.table(item, content)?;
        if table.columns != 1 && table.rows() > 0 {
            return Err(
                self.refuse(item, format!("{} columns; select the column of labels with target.column", table.columns))
            );
        }
        let mut labels = Vec::with_capacity(table.values.len());
        for (row, &value) in table.values.iter().enumerate() {
            labels.push(self.label(value).ok_or_else(|| {
                let problem = match value.fract() == 0.0 {
                    true => "is too large: the largest label is 2^53",
                    false => "is not an integer",
                };
                self.refuse(item, format!("row {row}: {value} {problem}"))
            })?);
        }
        self.check_rows(item, content, (labels.len(), vertices))?;
        Ok(labels)
    }

    /// Fails unless a target has a row for each element.
    fn check_rows(&self, item: &Item, content: &Content, (rows, vertices): (usize, usize)) -> Result<()> {
        let expected = self.rows(content, vertices)?;
        if rows == expected {
            return Ok(());
        }
        let [_, elements] = self.per.words();
        let problem = match self.per {
            Element::Vertex => {
                let mesh = content.mesh()?;
                let (faces, edges) = (mesh.face_count(), Element::Edge.count(mesh));
                format!(
                    "{vertices} vertices, {faces} faces and {edges} edges; give a row for each vertex, face or edge"
                )
            }
            _ => format!("{expected} {elements}; give a row for each"),
        };
        let unit = if rows == 1 { "row" } else { "rows" };
        let header = if rows == expected + 1 { "; if the first row is a header, remove it" } else { "" };
        Err(self.refuse(item, format!("{rows} {unit}, but the mesh has {problem}{header}")))
    }

    /// The element that has as many rows as the targets of all these meshes; vertices if no target can be read.
    ///
    /// # Errors
    /// Several elements of the same number on every mesh.
    pub fn found_element<'i, 'c>(
        &self,
        meshes: impl Iterator<Item = (&'i Item, impl Borrow<Content<'c>>)>,
    ) -> Result<Element> {
        let mut possible = Vec::new();
        let mut first = None;
        for (item, content) in meshes {
            // Problems of single meshes are found again when their targets are read.
            let mut fitting = self.fitting(item, content.borrow()).unwrap_or_default();
            fitting.retain(|element| possible.is_empty() || possible.contains(element));
            match &fitting[..] {
                [] => continue,
                [one] => return Ok(*one),
                _ => possible = fitting,
            }
            first = first.or(Some(item));
        }
        match first {
            None => Ok(Element::Vertex),
            Some(item) => {
                let words: Vec<String> =
                    (possible.iter()).map(|element| format!("\"{}\"", element.words()[0])).collect();
                let problem = format!("its rows may be any of {}, which are as many: set target.per", words.join(", "));
                Err(self.refuse(item, problem))
            }
        }
    }

    /// The elements that the target of a mesh may be for.
    fn fitting(&self, item: &Item, content: &Content) -> Result<Vec<Element>> {
        if let TargetSource::Property(names) = &self.source {
            let has_all = |attributes: &[VertexAttribute]| {
                let has = |name: &String| attributes.iter().any(|a| a.name == *name);
                names.iter().all(has)
            };
            let mut elements = Vec::new();
            if has_all(content.attributes()?) {
                elements.push(Element::Vertex);
            } else if has_all(content.face_attributes()?) {
                elements.push(Element::Face);
            }
            return Ok(elements);
        }
        let rows = self.table(item, content)?.rows();
        let mesh = content.mesh()?;
        let mut elements = vec![Element::Vertex, Element::Face, Element::Edge];
        elements.retain(|element| element.count(mesh) == rows);
        Ok(elements)
    }

    /// Label of a value, `Some(None)` if it is unknown; `None` if the value is not a label.
    fn label(&self, value: f64) -> Option<Option<i64>> {
        if value.is_nan() {
            return Some(None);
        }
        if value.fract() != 0.0 || value.abs() > LARGEST_LABEL {
            return None;
        }
        let label = value as i64;
        let unknown = label == -1 || self.unknown.contains(&label);
        Some((!unknown).then_some(label))
    }

    /// Classes of labels.
    pub fn classes_of(&self, item: &Item, labels: &Labels) -> Result<Vec<u32>> {
        let Some(classes) = self.classes() else { return Ok(vec![IGNORE; labels.len()]) };
        let mut found = Vec::with_capacity(labels.len());
        let [element, _] = self.per.words();
        for (row, label) in labels.iter().enumerate() {
            found.push(match label {
                None => IGNORE,
                Some(label) => classes.class_of(*label).ok_or_else(|| {
                    let problem = match self.source {
                        TargetSource::VertexNumber => {
                            format!("{} vertices, but the template has {}", labels.len(), classes.count())
                        }
                        _ => format!(
                            "{element} {row}: label {label} is not one of {} (-1 means unknown)",
                            classes.allowed()
                        ),
                    };
                    self.refuse(item, problem)
                })?,
            });
        }
        if self.source == TargetSource::VertexNumber && labels.len() != classes.count() {
            return Err(
                self.refuse(item, format!("{} vertices, but the template has {}", labels.len(), classes.count()))
            );
        }
        Ok(found)
    }

    /// The classes that each edge may have by MeshCNN's soft labels: `NAME.seseg` next to `NAME.eseg`, or in the folder
    /// `sseg` next to `seg`, with a line for each edge and a weight for each class. `None` without such a file.
    pub fn soft_classes(&self, item: &Item, rows: usize) -> Result<Option<Vec<Vec<u32>>>> {
        let (Some(classes), Some(hard)) = (self.classes(), self.source.file(item)) else { return Ok(None) };
        if self.per != Element::Edge || hard.extension().is_none_or(|e| e != "eseg") {
            return Ok(None);
        }
        let beside = hard.with_extension("seseg");
        let name = beside.file_name().unwrap_or_default();
        let folder = hard.parent().filter(|folder| folder.ends_with("seg"));
        let in_folder = folder.map(|folder| folder.with_file_name("sseg").join(name));
        let ways = [Some(beside.clone()), in_folder];
        let Some(path) = ways.into_iter().flatten().find(|path| path.exists()) else { return Ok(None) };
        let bytes = gemcnn_mesh::read_file(&path).map_err(TaskError::file(&path))?;
        let table = TextTable::parse(&path, &bytes)?.numbers(&path, &HashMap::new())?;
        if table.rows() != rows {
            let problem = format!("{} lines, but the mesh has {rows} edges", table.rows());
            return Err(DataError::table(&path, None, problem).into());
        }
        // Columns are numbered from the first label, as labels are from 0 or 1.
        let class = |column: usize| classes.class_of(classes.label(0) + column as i64);
        let allowed = |row: &[f64]| {
            let columns = row.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
            columns.filter_map(|(column, _)| class(column)).collect()
        };
        Ok(Some(table.values.chunks(table.columns.max(1)).map(allowed).collect()))
    }

    /// Values of the elements; NaN if unknown.
    fn values(&self, item: &Item, content: &Content, vertices: usize) -> Result<NumberTable> {
        let mut table = self.table(item, content)?;
        for value in &mut table.values {
            if self.unknown.iter().any(|&unknown| unknown as f64 == *value) {
                *value = f64::NAN;
            }
        }
        self.check_rows(item, content, (table.rows(), vertices))?;
        let [element, _] = self.per.words();
        if self.has_vectors() && !table.columns.is_multiple_of(3) {
            return Err(self.refuse(item, format!("{} columns, but vectors need a multiple of 3", table.columns)));
        }
        // Values are learned in single precision.
        let too_large = |&value: &f64| !value.is_nan() && !(value as f32).is_finite();
        if let Some(at) = table.values.iter().position(too_large) {
            let row = at / table.columns.max(1);
            let problem = format!("{element} {row}: {:e} is too large for single precision", table.values[at]);
            return Err(self.refuse(item, problem));
        }
        // The values of a row are all known or all unknown.
        let partly = |row: &[f64]| {
            let unknown = row.iter().filter(|value| value.is_nan()).count();
            unknown > 0 && unknown < row.len()
        };
        if let Some(row) = table.values.chunks(table.columns.max(1)).position(partly) {
            return Err(self.refuse(
                item,
                format!("{element} {row}: some values are NaN or in `unknown`; all or none must be known"),
            ));
        }
        Ok(table)
    }

    /// Values in single precision, vectors as coefficients in the frames.
    fn in_frames(&self, values: &[f64], frames: &[Frame], motion: Option<DMat3>) -> Vec<f32> {
        if !self.has_vectors() {
            return values.iter().map(|&value| value as f32).collect();
        }
        let motion = motion.unwrap_or(DMat3::IDENTITY);
        let space: Vec<DVec3> = values.chunks_exact(3).map(|v| motion * DVec3::from_slice(v)).collect();
        vectors::in_frames(frames, &space)
    }

    /// The selected columns of the target of a mesh.
    fn table(&self, item: &Item, content: &Content) -> Result<NumberTable> {
        match &self.source {
            TargetSource::Property(names) => self.properties(item, content, names),
            TargetSource::WholeMesh => (item.target.clone().values())
                .ok_or_else(|| DataError::target(&item.name, "the table has no values for it").into()),
            source => {
                let path = source.file(item).unwrap_or_default();
                let columns = match source {
                    TargetSource::Files { columns, .. } => &columns[..],
                    _ => &[],
                };
                let bytes = gemcnn_mesh::read_file(&path).map_err(|error| match error.kind() {
                    std::io::ErrorKind::NotFound => {
                        let problem = format!(
                            "the target file {} does not exist; add it, or leave the mesh out of the splits",
                            path.display()
                        );
                        DataError::target(&item.name, problem)
                    }
                    _ => DataError::table(&path, None, error.to_string()),
                })?;
                let table = self.parse(&path, &bytes)?;
                Ok(select(&path, table, columns)?)
            }
        }
    }

    fn parse(&self, path: &Path, bytes: &[u8]) -> Result<NumberTable, DataError> {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        match extension.to_lowercase().as_str() {
            "npy" => npy::parse(path, bytes),
            _ if TextTable::has_name(path) => {
                let names: HashMap<&str, f64> =
                    self.class_names.iter().map(|(name, label)| (name.as_str(), *label as f64)).collect();
                TextTable::parse(path, bytes)?.numbers(path, &names)
            }
            "mat" => Err(DataError::table(
                path,
                None,
                "MATLAB files are not read; in MATLAB, write writematrix(labels, 'NAME.csv')",
            )),
            extension if extension == "gii" || gemcnn_mesh::has_value_name(path) => {
                let file = gemcnn_mesh::parse_values(path, bytes)
                    .map_err(|error| DataError::table(path, None, error.problem.to_string()))?;
                Ok(value_table(&file))
            }
            _ => Err(DataError::table(
                path,
                None,
                "unknown extension: targets are .npy, .csv, .txt, .seg, .eseg, .json, .annot, .gii or FreeSurfer files",
            )),
        }
    }

    /// Vertex or face properties of a mesh file as columns.
    fn properties(&self, item: &Item, content: &Content, names: &[String]) -> Result<NumberTable> {
        let (attributes, rows) = match self.per {
            Element::Face => (content.face_attributes()?, content.mesh()?.face_count()),
            _ => (content.attributes()?, content.mesh()?.vertex_count()),
        };
        let [element, _] = self.per.words();
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let found = attributes.iter().find(|a| a.name == *name);
            columns.push(found.ok_or_else(|| {
                let known: Vec<&str> = attributes.iter().map(|a| a.name.as_str()).collect();
                let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
                DataError::target(&item.name, format!("no {element} property `{name}`; its properties are {known}"))
            })?);
        }
        let row = |row| columns.iter().map(move |column| column.values.to_f64(row));
        Ok(NumberTable { header: names.to_vec(), columns: columns.len(), values: (0..rows).flat_map(row).collect() })
    }

    /// An error that names the target file, or the mesh.
    fn refuse(&self, item: &Item, problem: String) -> TaskError {
        match self.source.file(item) {
            Some(path) => DataError::table(path, None, problem).into(),
            None => DataError::target(&item.name, problem).into(),
        }
    }
}

/// The selected columns; all if the selection is empty.
fn select(path: &Path, table: NumberTable, columns: &[Column]) -> Result<NumberTable, DataError> {
    if columns.is_empty() {
        return Ok(table);
    }
    let mut places = Vec::with_capacity(columns.len());
    for column in columns {
        let place = match column {
            Column::Number(number) => (*number < table.columns).then_some(*number),
            Column::Name(name) => table.header.iter().position(|other| other == name),
        };
        places.push(place.ok_or_else(|| {
            let asked = match column {
                Column::Number(number) => number.to_string(),
                Column::Name(name) => name.clone(),
            };
            let there = match table.header.is_empty() {
                true => format!("{} columns without names, numbered from 0", table.columns),
                false => table.header.join(", "),
            };
            DataError::table(path, None, format!("there is no column `{asked}`; the file has {there}"))
        })?);
    }
    let rows = table.values.chunks_exact(table.columns.max(1));
    Ok(NumberTable {
        header: match table.header.is_empty() {
            true => Vec::new(),
            false => places.iter().map(|&p| table.header[p].clone()).collect(),
        },
        columns: places.len(),
        values: rows.flat_map(|row| places.iter().map(move |&place| row[place])).collect(),
    })
}
