//! Interactive pages: one HTML file with meshes, fields on them and the report of a training run.
//!
//! The page needs nothing but a browser with WebGL 2. It makes no request, so it works offline and from disk. All
//! text from files is shown as text.
//!
//! ```
//! use gemcnn_mesh::shapes::icosphere;
//! use gemcnn_view::page::{Element, Field, Page, PageMesh, Values};
//! let mesh = icosphere(2)?;
//! let heights = mesh.vertices().iter().map(|point| point.z as f32).collect();
//! let mut page = Page::new("A sphere");
//! page.meshes.push(PageMesh {
//!     fields: vec![Field::new("height", Element::Vertex, Values::Numbers(heights))],
//!     ..PageMesh::new("sphere", mesh)
//! });
//! let html = page.to_html()?;
//! assert!(html.starts_with("<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod decimation;
mod encoding;
mod html;
mod report;

pub use encoding::Encoded;
pub use report::{Confusion, Curve, Progress, Ranked, Report, Series};

use crate::render::{Up, label_colour};
use gemcnn_mesh::remesh::RemeshError;
use gemcnn_mesh::{Frame, Mesh};
use glam::DVec3;

/// Default limit of the vertices of a mesh; larger ones are simplified.
pub const MAX_VERTICES: usize = 1_000_000;
/// Label of a vertex or face without a known class.
pub const UNKNOWN: u32 = u32::MAX;

/// An interactive page.
#[derive(Debug, Clone)]
pub struct Page {
    /// Title of the page.
    pub title: String,
    /// Axis that points up.
    pub up: Up,
    /// Meshes, shown side by side.
    pub meshes: Vec<PageMesh>,
    /// Tables of classes that label fields refer to.
    pub classes: Vec<ClassTable>,
    /// Report of a training run, shown beside the meshes.
    pub report: Option<Report>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// Limit of the vertices of a mesh (default [`MAX_VERTICES`]). Larger ones are simplified, and the page says so.
    pub most_vertices: usize,
    /// True for a page that asks its server for news. False for a page that makes no request.
    pub live: bool,
    /// Model for meshes that are dropped on the page.
    pub model: Option<PageModel>,
}

/// A trained model in a page, which predicts in the browser.
#[derive(Debug, Clone)]
pub struct PageModel {
    /// The program: WebAssembly with the functions of `crates/wasm`, as a raw deflate stream.
    pub program: Vec<u8>,
    /// Bytes of the model file.
    pub file: Vec<u8>,
    /// Bytes of the mesh file of the template of a correspondence.
    pub template: Option<Vec<u8>>,
}

impl Page {
    /// A page without meshes.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            up: Up::Y,
            meshes: Vec::new(),
            classes: Vec::new(),
            report: None,
            notes: Vec::new(),
            most_vertices: MAX_VERTICES,
            live: false,
            model: None,
        }
    }

    /// The HTML of the page.
    ///
    /// # Errors
    /// See [`encode`](Self::encode).
    pub fn to_html(&self) -> Result<String, PageError> {
        Ok(html::write(&self.encode()?, self.model.as_ref()))
    }
}

/// A mesh of a page.
#[derive(Debug, Clone)]
pub struct PageMesh {
    /// Name.
    pub name: String,
    /// The mesh.
    pub mesh: Mesh,
    /// Tangent frame of each vertex, if they are to be shown.
    pub frames: Option<Vec<Frame>>,
    /// Values at vertices and faces.
    pub fields: Vec<Field>,
    /// Facts about the mesh, as name and value.
    pub facts: Vec<(String, String)>,
}

impl PageMesh {
    /// A mesh without fields.
    pub fn new(name: impl Into<String>, mesh: Mesh) -> Self {
        Self { name: name.into(), mesh, frames: None, fields: Vec::new(), facts: Vec::new() }
    }
}

/// What a field has values at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// Vertices.
    Vertex,
    /// Faces.
    Face,
}

/// Meaning of a field, beyond its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Labels or values that a model should predict.
    Truth,
    /// Labels or values that a model predicts.
    Prediction,
    /// Size of the error of the prediction; 0 is perfect.
    Error,
    /// Probability of the class with this index.
    Probability(usize),
    /// Corresponding point: equal numbers on different meshes are the same point.
    Point,
    /// Input feature of a model.
    Feature,
}

/// A field: a value at each vertex or face.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name. Fields of the same name on different meshes share colours and range.
    pub name: String,
    /// What the values belong to.
    pub on: Element,
    /// Meaning.
    pub role: Option<Role>,
    /// One value for each vertex or face.
    pub values: Values,
}

impl Field {
    /// A field without a role.
    pub fn new(name: impl Into<String>, on: Element, values: Values) -> Self {
        Self { name: name.into(), on, role: None, values }
    }

    /// The same field with a role.
    pub fn with_role(mut self, role: Role) -> Self {
        self.role = Some(role);
        self
    }
}

/// Values of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Numbers, shown by a colour map. Numbers that are not finite are missing values.
    Numbers(Vec<f32>),
    /// Classes, shown by a palette.
    Labels {
        /// Index into [`Page::classes`].
        table: usize,
        /// Class of each element, or [`UNKNOWN`].
        classes: Vec<u32>,
    },
    /// sRGB colours, shown as they are.
    Colours(Vec<[u8; 3]>),
    /// Vectors in space, shown as arrows and by their length.
    Vectors(Vec<DVec3>),
}

impl Values {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(values) => values.len(),
            Self::Labels { classes, .. } => classes.len(),
            Self::Colours(values) => values.len(),
            Self::Vectors(values) => values.len(),
        }
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Names and colours of classes.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ClassTable {
    /// Name of each class.
    pub names: Vec<String>,
    /// sRGB colour of each class.
    pub colours: Vec<[u8; 3]>,
}

impl ClassTable {
    /// Classes with the colours of the palette.
    pub fn new(names: Vec<String>) -> Self {
        let colours = (0..names.len() as u32).map(label_colour).collect();
        Self { names, colours }
    }
}

/// Reasons why a page cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A field has another number of values than the mesh has vertices or faces.
    #[error("{mesh}: `{what}` has {found} values, but the mesh has {wanted} {on}; give one for each")]
    Length {
        /// Name of the mesh.
        mesh: String,
        /// Name of the field, or `frames`.
        what: String,
        /// Number of values.
        found: usize,
        /// Number of elements.
        wanted: usize,
        /// Plural name of the elements.
        on: &'static str,
    },
    /// A label field refers to a table or class that does not exist.
    #[error("{mesh}: `{field}` has a class that is not in the tables of the page; add its name")]
    UnknownClass {
        /// Name of the mesh.
        mesh: String,
        /// Name of the field.
        field: String,
    },
    /// A large mesh that cannot be simplified.
    #[error("{mesh}: cannot be simplified for the page: {source}")]
    Simplification {
        /// Name of the mesh.
        mesh: String,
        /// The reason.
        source: RemeshError,
    },
}
