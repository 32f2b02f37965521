//! Errors of gauge geometry.

/// Reason why a vertex of a face has no normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormalTrouble {
    /// All faces around the vertex have zero area.
    DegenerateFaces,
    /// The normals of the faces around the vertex add up to zero.
    CancellingFaces,
}

impl std::fmt::Display for NormalTrouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::DegenerateFaces => "all its faces have zero area",
            Self::CancellingFaces => "the normals of its faces cancel",
        })
    }
}

/// Error of the functions that compute or validate gauge geometry.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GeometryError {
    /// Vertices that faces use have no tangent plane.
    #[error("{} no tangent plane: {}; {}", plural(*.count), list(.examples, *.count), advice(.examples))]
    NoTangentPlane {
        /// Number of such vertices.
        count: usize,
        /// The first few of them, with the reason.
        examples: Vec<(u32, NormalTrouble)>,
    },
    /// The number of entries differs from the number of vertices.
    #[error("{given} {what} given for {vertices} vertices; give one per vertex")]
    WrongLength {
        /// Kind of entry.
        what: &'static str,
        /// Number of entries given.
        given: usize,
        /// Number of vertices.
        vertices: usize,
    },
    /// An angle, radius or frame is not finite.
    #[error("{what} {index} is not finite")]
    NotFinite {
        /// Kind of entry.
        what: &'static str,
        /// Index of the entry.
        index: usize,
    },
    /// A reference neighbour is not a neighbour of its vertex.
    #[error("vertex {vertex}: the reference {reference} is not one of its neighbours")]
    NotANeighbour {
        /// The vertex.
        vertex: usize,
        /// Its reference neighbour.
        reference: u32,
    },
    /// The edge to a reference neighbour is zero or parallel to the normal.
    #[error(
        "vertex {vertex}: its edge to the reference neighbour {reference} has no direction in the tangent plane; choose another reference"
    )]
    ReferenceWithoutDirection {
        /// The vertex.
        vertex: usize,
        /// Its reference neighbour.
        reference: u32,
    },
    /// A direction is zero, not finite or parallel to the normal.
    #[error("vertex {vertex}: the direction of its first frame axis has no component in the tangent plane")]
    NoTangentDirection {
        /// The vertex.
        vertex: usize,
    },
    /// A neighbourhood radius is negative, NaN or infinite.
    #[error("the neighbourhood radius is {radius}; it must be finite and at least 0")]
    BadRadius {
        /// The invalid radius.
        radius: f64,
    },
    /// There are more directed edges than 32-bit positions can address.
    #[error("{edges} directed edges exceed 32-bit positions; use a smaller radius or neighbour limit")]
    TooManyEdges {
        /// Number of directed edges.
        edges: usize,
    },
    /// Arrays do not describe a symmetric graph.
    #[error("not a gauge graph: {problem}")]
    BadGraph {
        /// The violated condition and its location.
        problem: String,
    },
}

fn plural(count: usize) -> String {
    if count == 1 { "1 vertex has".into() } else { format!("{count} vertices have") }
}

fn list(examples: &[(u32, NormalTrouble)], count: usize) -> String {
    let mut text =
        examples.iter().map(|(vertex, trouble)| format!("vertex {vertex} ({trouble})")).collect::<Vec<_>>().join(", ");
    if count > examples.len() {
        text.push_str(&format!(" and {} more", count - examples.len()));
    }
    text
}

fn advice(examples: &[(u32, NormalTrouble)]) -> &'static str {
    if examples.iter().any(|(_, trouble)| *trouble == NormalTrouble::DegenerateFaces) {
        "drop degenerate faces and the vertices that only they use"
    } else {
        "orient the faces consistently, or split the vertices where sheets touch or fold back"
    }
}
