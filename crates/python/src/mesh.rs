//! Meshes: files, report, repair, remeshing, geodesics.

use crate::arrays::{borrowed, owned, values};
use crate::errors;
use crate::threads::work;
use gemcnn_mesh::remesh::{RemeshKind, Remeshed, remesh};
use gemcnn_mesh::{
    AttributeValues, DVec3, Faces, GeodesicSolver, MeshReport, Repair, VertexAttribute, WriteOptions, read_mesh,
    repair, triangulate, vector_area, vertex_areas, write_mesh,
};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::PathBuf;

/// A mesh; it never changes.
#[pyclass(frozen, module = "gemcnn._gemcnn")]
pub struct Mesh(pub gemcnn_mesh::Mesh);

#[pymethods]
impl Mesh {
    #[new]
    fn new(
        py: Python<'_>,
        vertices: PyReadonlyArray2<'_, f64>,
        corners: PyReadonlyArray1<'_, u32>,
        offsets: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        let rows = values("vertices", &vertices)?;
        if vertices.as_array().ncols() != 3 {
            return Err(errors::mesh("vertices must have shape [V, 3]"));
        }
        let (corners, offsets) = (values("corners", &corners)?, values("offsets", &offsets)?);
        if offsets.first() != Some(&0)
            || offsets.last().map(|&last| last as usize) != Some(corners.len())
            || !offsets.is_sorted()
        {
            return Err(errors::mesh(format!(
                "face offsets must rise from 0 to the number of corners, {}",
                corners.len()
            )));
        }
        let mesh = work(py, || {
            let mut faces = Faces::with_capacity(offsets.len() - 1, corners.len());
            for face in offsets.windows(2) {
                faces.push(&corners[face[0] as usize..face[1] as usize]);
            }
            gemcnn_mesh::Mesh::new(bytemuck::cast_slice(rows).to_vec(), faces)
        })?;
        mesh.map(Self).map_err(errors::mesh)
    }

    fn vertices<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let vertices = slf.get().0.vertices();
        borrowed(slf, bytemuck::cast_slice(vertices), (vertices.len(), 3))
    }

    fn corners<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let corners = slf.get().0.faces().corners();
        borrowed(slf, corners, corners.len())
    }

    fn offsets<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let offsets = slf.get().0.faces().offsets();
        borrowed(slf, offsets, offsets.len())
    }

    /// The report as JSON, with the verdict and the suggested repairs.
    fn report(&self, py: Python<'_>) -> PyResult<(String, bool, Vec<String>)> {
        let report = work(py, || MeshReport::new(&self.0))?;
        let json = serde_json::to_string(&report).map_err(errors::mesh)?;
        let repairs = report.suggested_repairs();
        let words = repairs.iter().map(Repair::to_string).collect();
        Ok((json, report.is_sound(), words))
    }

    /// The repaired mesh, the original vertex of each vertex, the vertex of each original one (-1 if it was dropped),
    /// and for each step its name and the numbers of changed and of all items.
    #[expect(clippy::type_complexity, reason = "a tuple for Python")]
    fn repair<'py>(
        &self,
        py: Python<'py>,
        words: Vec<String>,
    ) -> PyResult<(Self, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<i64>>, Vec<(String, usize, usize)>)> {
        let parsed: Result<Vec<Repair>, _> = words.iter().map(|word| word.parse()).collect();
        let parsed = parsed.map_err(errors::mesh)?;
        let done = work(py, || repair(&self.0, &parsed))?.map_err(errors::mesh)?;
        let map = done.vertex_map.iter();
        let map = map.map(|vertex| vertex.map_or(-1, i64::from)).collect();
        let steps = done.steps.iter();
        let steps = steps.map(|step| (step.repair.to_string(), step.changed, step.total));
        let steps = steps.collect();
        Ok((Self(done.mesh), PyArray1::from_vec(py, done.vertex_origin), PyArray1::from_vec(py, map), steps))
    }

    fn triangulated(&self, py: Python<'_>) -> PyResult<Self> {
        let mesh = work(py, || {
            let (mut faces, mut triangles) = (Faces::new(), Vec::new());
            for face in 0..self.0.face_count() {
                let positions: Vec<DVec3> = self.0.face_positions(face).collect();
                let corners = self.0.face(face);
                let area = vector_area(positions.iter().copied());
                triangulate(&positions, area, &mut triangles);
                for triangle in &triangles {
                    faces.push(&triangle.map(|corner| corners[corner]));
                }
            }
            gemcnn_mesh::Mesh::new(self.0.vertices().to_vec(), faces)
        })?;
        mesh.map(Self).map_err(errors::mesh)
    }

    fn areas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        Ok(PyArray1::from_vec(py, work(py, || vertex_areas(&self.0))?))
    }

    /// Distances along the surface from each of the vertices, `[sources, V]`.
    fn geodesics<'py>(&self, py: Python<'py>, sources: Vec<usize>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let distances = work(py, || GeodesicSolver::new(&self.0)?.distances_from_each(&sources))?;
        let rows = distances.map_err(errors::geometry)?.concat();
        owned(py, rows, (sources.len(), self.0.vertex_count()))
    }

    /// The mesh in another meshing, and for each of its vertices three original ones with their weights.
    #[expect(clippy::type_complexity, reason = "a tuple for Python")]
    fn remesh<'py>(
        &self,
        py: Python<'py>,
        settings: &str,
        seed: u64,
    ) -> PyResult<(Self, Bound<'py, PyArray2<u32>>, Bound<'py, PyArray2<f64>>)> {
        let kind: RemeshKind = serde_json::from_str(settings).map_err(errors::mesh)?;
        let done = work(py, || remesh(&self.0, &kind, seed))?;
        let Remeshed { mesh, sources } = done.map_err(errors::mesh)?;
        let corners = sources.iter().flat_map(|source| source.corners).collect();
        let weights = sources.iter().flat_map(|source| source.weights).collect();
        Ok((Self(mesh), owned(py, corners, (sources.len(), 3))?, owned(py, weights, (sources.len(), 3))?))
    }

    /// Writes the mesh with values at its vertices.
    fn write(&self, py: Python<'_>, path: PathBuf, attributes: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut columns = Vec::with_capacity(attributes.len());
        for (name, column) in attributes {
            let name: String = name.extract()?;
            let values = column_values(&name, &column)?;
            if values.len() != self.0.vertex_count() {
                return Err(errors::mesh(format!(
                    "`{name}` has {} values for {} vertices",
                    values.len(),
                    self.0.vertex_count()
                )));
            }
            columns.push(VertexAttribute::new(name, values));
        }
        let options = WriteOptions::default();
        work(py, || write_mesh(path, &self.0, &columns, &options))?.map_err(errors::file)
    }
}

/// Evaluates `$body` for each type of a column.
macro_rules! for_columns {
    ($macro:ident) => {
        $macro! {
            I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, F32 f32, F64 f64
        }
    };
}

fn column_values(name: &str, column: &Bound<'_, PyAny>) -> PyResult<AttributeValues> {
    macro_rules! take {
        ($($variant:ident $kind:ty),*) => {
            $(if let Ok(array) = column.cast::<PyArray1<$kind>>() {
                return Ok(AttributeValues::$variant(array.to_vec()?));
            })*
        };
    }
    for_columns!(take);
    Err(errors::mesh(format!("`{name}` must be a one-dimensional array of 8, 16 or 32-bit integers or of floats")))
}

fn columns<'py>(py: Python<'py>, columns: Vec<VertexAttribute>) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    for column in columns {
        macro_rules! give {
            ($($variant:ident $kind:ty),*) => {
                match column.values {
                    $(AttributeValues::$variant(values) => {
                        found.set_item(column.name, PyArray1::from_vec(py, values))?;
                    })*
                }
            };
        }
        for_columns!(give);
    }
    Ok(found)
}

/// The mesh of a file, the values at its vertices and faces, notes, and the format.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple for Python")]
fn read<'py>(
    py: Python<'py>,
    path: PathBuf,
) -> PyResult<(Mesh, Bound<'py, PyDict>, Bound<'py, PyDict>, Bound<'py, PyList>, String)> {
    let file = work(py, || read_mesh(path))?.map_err(errors::file)?;
    Ok((
        Mesh(file.mesh),
        columns(py, file.attributes)?,
        columns(py, file.face_attributes)?,
        PyList::new(py, file.notes)?,
        file.format.to_string(),
    ))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Mesh>()?;
    module.add_function(wrap_pyfunction!(read, module)?)
}
