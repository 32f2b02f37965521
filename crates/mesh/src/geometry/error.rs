//! Why a mesh, or a choice about it, has no gauge geometry.

/// Why a vertex that is used by faces has no normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormalTrouble {
    /// Every face around it has zero area.
    DegenerateFaces,
    /// The normals of the faces around it add up to zero.
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

/// Why gauge geometry could not be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GeometryError {
    /// Vertices that faces use, but that have no tangent plane.
    #[error("{} no tangent plane: {}; {}", plural(*.count), list(.examples, *.count), advice(.examples))]
    NoTangentPlane {
        /// How many such vertices there are.
        count: usize,
        /// The first few of them, with the reason.
        examples: Vec<(u32, NormalTrouble)>,
    },
    /// One entry for each vertex was expected.
    #[error("{given} {what} were given for {vertices} vertices; give one for each")]
    WrongLength {
        /// What the entries are.
        what: &'static str,
        /// How many were given.
        given: usize,
        /// How many vertices there are.
        vertices: usize,
    },
    /// An angle, radius or frame that is not finite.
    #[error("{what} {index} is not finite")]
    NotFinite {
        /// What the entry is.
        what: &'static str,
        /// Its index.
        index: usize,
    },
    /// A reference neighbour that is none.
    #[error("vertex {vertex}: the reference {reference} is not one of its neighbours")]
    NotANeighbour {
        /// The vertex.
        vertex: usize,
        /// The reference that was given for it.
        reference: u32,
    },
    /// A reference neighbour straight above or below the vertex, or on top of it.
    #[error(
        "vertex {vertex}: its edge to the reference neighbour {reference} has no direction in the tangent plane; choose another reference"
    )]
    ReferenceWithoutDirection {
        /// The vertex.
        vertex: usize,
        /// The reference that was given for it.
        reference: u32,
    },
    /// A direction that is zero, not finite or along the normal.
    #[error(
        "vertex {vertex}: the direction given for its first frame axis has no part in the tangent plane"
    )]
    NoTangentDirection {
        /// The vertex.
        vertex: usize,
    },
    /// A neighbourhood radius that is negative, NaN or infinite.
    #[error("the neighbourhood radius must be finite and not negative, not {radius}")]
    BadRadius {
        /// The radius that was given.
        radius: f64,
    },
    /// More directed edges than 32-bit positions can address.
    #[error(
        "{edges} directed edges are more than 32-bit positions can address; use a smaller radius or neighbour limit"
    )]
    TooManyEdges {
        /// How many there would be.
        edges: usize,
    },
    /// Arrays that do not describe a symmetric graph.
    #[error("not a gauge graph: {problem}")]
    BadGraph {
        /// What is wrong, and where.
        problem: String,
    },
}

fn plural(count: usize) -> String {
    if count == 1 {
        "1 vertex has".into()
    } else {
        format!("{count} vertices have")
    }
}

fn list(examples: &[(u32, NormalTrouble)], count: usize) -> String {
    let mut text = examples
        .iter()
        .map(|(vertex, trouble)| format!("vertex {vertex} ({trouble})"))
        .collect::<Vec<_>>()
        .join(", ");
    if count > examples.len() {
        text.push_str(&format!(" and {} more", count - examples.len()));
    }
    text
}

fn advice(examples: &[(u32, NormalTrouble)]) -> &'static str {
    if examples
        .iter()
        .any(|(_, trouble)| *trouble == NormalTrouble::DegenerateFaces)
    {
        "drop degenerate faces and the vertices that only they use"
    } else {
        "orient the faces alike, or split the vertices where sheets touch or fold back"
    }
}
