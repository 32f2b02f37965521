//! The mesh type: vertices in f64 and polygonal faces, validated at construction.

use glam::DVec3;

/// Error of [`Mesh::new`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MeshError {
    /// A coordinate is NaN or infinite.
    #[error("vertex {vertex} has a coordinate that is not finite: ({:?}, {:?}, {:?})", .position.x, .position.y, .position.z)]
    NotFinite {
        /// Index of the vertex, from 0.
        vertex: usize,
        /// Its position.
        position: DVec3,
    },
    /// A face refers to a vertex that does not exist.
    #[error("face {face} refers to vertex {index}, but there are only {vertices} vertices (indices start at 0)")]
    IndexOutOfRange {
        /// Index of the face, from 0.
        face: usize,
        /// The invalid vertex index.
        index: u32,
        /// Number of vertices.
        vertices: usize,
    },
    /// A face has fewer than three corners.
    #[error("face {face} has {corners} corner(s); a face needs at least 3")]
    ShortFace {
        /// Index of the face, from 0.
        face: usize,
        /// Number of corners.
        corners: usize,
    },
    /// More vertices or corners than a 32-bit index can address.
    #[error("{count} {what}: 32-bit indices can address at most {}", u32::MAX)]
    TooMany {
        /// Kind of item: vertices or face corners.
        what: &'static str,
        /// Number of items.
        count: usize,
    },
}

/// A list of polygons: one array of corners and the offset of each face in it.
///
/// ```
/// use gemcnn_mesh::Faces;
/// let mut faces = Faces::new();
/// faces.push(&[0, 1, 2]);
/// faces.push(&[2, 1, 3, 4]);
/// assert_eq!(faces.len(), 2);
/// assert_eq!(faces.get(1), [2, 1, 3, 4]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faces {
    /// Start of each face in `corners`, followed by the length of `corners`: `len + 1` entries.
    offsets: Vec<u32>,
    /// Vertex index of every corner.
    corners: Vec<u32>,
}

impl Default for Faces {
    fn default() -> Self {
        Self::new()
    }
}

impl Faces {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::with_capacity(0, 0)
    }

    /// Creates an empty list with capacity for `faces` faces with `corners` corners in total.
    pub fn with_capacity(faces: usize, corners: usize) -> Self {
        let mut offsets = Vec::with_capacity(faces + 1);
        offsets.push(0);
        Self { offsets, corners: Vec::with_capacity(corners) }
    }

    /// Appends one polygon.
    pub fn push(&mut self, corners: &[u32]) {
        self.corners.extend_from_slice(corners);
        self.close_face();
    }

    /// Appends one corner to the current face. [`close_face`](Self::close_face) completes the face.
    pub fn push_corner(&mut self, vertex: u32) {
        self.corners.push(vertex);
    }

    /// Completes the face that consists of the corners pushed since the previous face.
    pub fn close_face(&mut self) {
        // The offset saturates above u32::MAX; `Mesh::new` then rejects the list.
        self.offsets.push(u32::try_from(self.corners.len()).unwrap_or(u32::MAX));
    }

    /// Number of faces.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// True if there are no faces.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The corners of face `face`.
    ///
    /// # Panics
    /// If there is no such face.
    pub fn get(&self, face: usize) -> &[u32] {
        &self.corners[self.offsets[face] as usize..self.offsets[face + 1] as usize]
    }

    /// All faces in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u32]> + Clone {
        self.offsets.windows(2).map(|bounds| &self.corners[bounds[0] as usize..bounds[1] as usize])
    }

    /// Vertex index of every corner, in face order.
    pub fn corners(&self) -> &[u32] {
        &self.corners
    }

    /// Start of each face in [`corners`](Self::corners), followed by the length of that array.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }
}

impl<F: AsRef<[u32]>> FromIterator<F> for Faces {
    fn from_iter<I: IntoIterator<Item = F>>(faces: I) -> Self {
        let mut list = Self::new();
        for face in faces {
            list.push(face.as_ref());
        }
        list
    }
}

/// A polygon mesh: vertices in R^3 and faces with three or more corners.
///
/// Every face index is in range, every coordinate is finite and every face has at least three
/// corners. There are no other guarantees: faces may be degenerate, more than two faces may share
/// an edge, and vertices may be unused. [`MeshReport`](crate::MeshReport) counts such defects.
///
/// ```
/// use gemcnn_mesh::{DVec3, Mesh};
/// let square = Mesh::new(
///     vec![DVec3::ZERO, DVec3::X, DVec3::X + DVec3::Y, DVec3::Y],
///     [[0, 1, 2, 3]].iter().collect(),
/// )?;
/// assert_eq!(square.face_count(), 1);
/// # Ok::<(), gemcnn_mesh::MeshError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Mesh {
    vertices: Vec<DVec3>,
    faces: Faces,
}

impl Mesh {
    /// Creates a mesh from vertices and faces and validates them.
    ///
    /// # Errors
    /// A coordinate is not finite, an index is out of range, a face has fewer than three corners,
    /// or there are more vertices or corners than 32-bit indices can address.
    pub fn new(vertices: Vec<DVec3>, faces: Faces) -> Result<Self, MeshError> {
        for (what, count) in [("vertices", vertices.len()), ("face corners", faces.corners.len())] {
            if count >= u32::MAX as usize {
                return Err(MeshError::TooMany { what, count });
            }
        }
        if let Some(vertex) = vertices.iter().position(|position| !position.is_finite()) {
            return Err(MeshError::NotFinite { vertex, position: vertices[vertex] });
        }
        for (face, corners) in faces.iter().enumerate() {
            if corners.len() < 3 {
                return Err(MeshError::ShortFace { face, corners: corners.len() });
            }
            if let Some(&index) = corners.iter().find(|&&v| v as usize >= vertices.len()) {
                return Err(MeshError::IndexOutOfRange { face, index, vertices: vertices.len() });
            }
        }
        Ok(Self { vertices, faces })
    }

    /// Position of every vertex.
    pub fn vertices(&self) -> &[DVec3] {
        &self.vertices
    }

    /// The faces.
    pub fn faces(&self) -> &Faces {
        &self.faces
    }

    /// The corners of one face.
    ///
    /// # Panics
    /// If there is no such face.
    pub fn face(&self, face: usize) -> &[u32] {
        self.faces.get(face)
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.vertices.len()
    }

    /// Number of faces.
    pub fn face_count(&self) -> usize {
        self.faces.len()
    }

    /// Positions of the corners of one face.
    ///
    /// # Panics
    /// If there is no such face.
    pub fn face_positions(&self, face: usize) -> impl ExactSizeIterator<Item = DVec3> + Clone + '_ {
        self.face(face).iter().map(|&v| self.vertices[v as usize])
    }

    /// The least and the largest coordinates of the vertices; `None` without vertices.
    pub fn bounds(&self) -> Option<[DVec3; 2]> {
        let low = self.vertices.iter().copied().reduce(DVec3::min)?;
        let high = self.vertices.iter().copied().reduce(DVec3::max)?;
        Some([low, high])
    }

    /// Several meshes as one, in their order, each moved by a shift.
    ///
    /// # Errors
    /// A coordinate that is not finite, or more vertices than a face can refer to.
    pub fn side_by_side<'a>(meshes: impl IntoIterator<Item = (&'a Self, DVec3)>) -> Result<Self, MeshError> {
        let (mut vertices, mut faces) = (Vec::new(), Faces::new());
        for (mesh, shift) in meshes {
            let first = vertices.len() as u32;
            vertices.extend(mesh.vertices.iter().map(|&vertex| vertex + shift));
            for face in mesh.faces.iter() {
                face.iter().for_each(|corner| faces.push_corner(corner + first));
                faces.close_face();
            }
        }
        Self::new(vertices, faces)
    }

    /// The mesh with every vertex position mapped by `place`. Faces and vertex order do not change.
    ///
    /// # Errors
    /// `place` returns a coordinate that is not finite.
    pub fn map_vertices(&self, place: impl FnMut(DVec3) -> DVec3) -> Result<Self, MeshError> {
        Self::new(self.vertices.iter().copied().map(place).collect(), self.faces.clone())
    }

    /// The same vertices with every face the other way round.
    pub fn with_reversed_faces(mut self) -> Self {
        for pair in self.faces.offsets.windows(2) {
            let corners = pair[0] as usize..pair[1] as usize;
            self.faces.corners[corners].reverse();
        }
        self
    }

    /// Splits the mesh into its vertices and faces.
    pub fn into_parts(self) -> (Vec<DVec3>, Faces) {
        (self.vertices, self.faces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corners() -> Vec<DVec3> {
        vec![DVec3::ZERO, DVec3::X, DVec3::Y]
    }

    #[test]
    fn bad_parts_are_refused_with_their_place() {
        let mut bad = corners();
        bad[1].y = f64::NAN;
        assert!(matches!(Mesh::new(bad, Faces::new()), Err(MeshError::NotFinite { vertex: 1, .. })));
        let faces: Faces = [vec![0, 1, 2], vec![0, 1, 3]].iter().collect();
        assert_eq!(Mesh::new(corners(), faces), Err(MeshError::IndexOutOfRange { face: 1, index: 3, vertices: 3 }));
        let faces: Faces = [vec![0, 1, 2], vec![0, 1]].iter().collect();
        assert_eq!(Mesh::new(corners(), faces), Err(MeshError::ShortFace { face: 1, corners: 2 }));
    }

    #[test]
    fn polygons_of_any_size_keep_their_corners() {
        let mut vertices = corners();
        vertices.extend([DVec3::Z, DVec3::ONE]);
        let lists = [vec![0, 1, 2], vec![4, 3, 2, 1, 0], vec![1, 2, 3, 4]];
        let mesh = Mesh::new(vertices, lists.iter().collect()).unwrap();
        assert_eq!(mesh.faces().iter().collect::<Vec<_>>(), lists);
        assert_eq!(mesh.face(1), lists[1]);
        assert_eq!(mesh.face_positions(2).next(), Some(DVec3::X));
    }
}
