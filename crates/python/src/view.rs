//! Interactive pages.

use crate::arrays::values;
use crate::errors;
use crate::mesh::Mesh;
use crate::threads::work;
use gemcnn_mesh::{GaugeGraph, GeometryOptions};
use gemcnn_view::page::{ClassTable, Element, Field, Page, PageMesh, Role, Values};
use gemcnn_view::render::{Up, label_colour};
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

/// Name, true for values of faces, values, and the table of labels.
type FieldParts<'py> = (String, bool, Bound<'py, PyAny>, Option<usize>);

/// The values of an array: labels (uint32), numbers (float32) or vectors (float64 `[n, 3]`).
fn field_values(name: &str, array: &Bound<'_, PyAny>, table: Option<usize>) -> PyResult<Values> {
    if let (Ok(classes), Some(table)) = (array.extract::<PyReadonlyArray1<'_, u32>>(), table) {
        let classes = values(name, &classes)?.to_vec();
        return Ok(Values::Labels { table, classes });
    }
    if let Ok(numbers) = array.extract::<PyReadonlyArray1<'_, f32>>() {
        return Ok(Values::Numbers(values(name, &numbers)?.to_vec()));
    }
    if let Ok(vectors) = array.extract::<PyReadonlyArray2<'_, f64>>()
        && vectors.as_array().ncols() == 3
    {
        let rows = values(name, &vectors)?;
        return Ok(Values::Vectors(bytemuck::cast_slice(rows).to_vec()));
    }
    Err(errors::mesh(format!("`{name}` must be numbers or labels [n], or vectors [n, 3]")))
}

/// The HTML of a page of meshes, each with its name and fields. `tables` are the classes of labels: their names, and
/// numbers of their colours.
#[pyfunction]
fn page(
    py: Python<'_>,
    title: String,
    z_up: bool,
    frames: bool,
    tables: Vec<Vec<(String, u32)>>,
    meshes: Vec<(String, Bound<'_, Mesh>, Vec<FieldParts<'_>>)>,
) -> PyResult<String> {
    let mut page = Page::new(title);
    page.up = if z_up { Up::Z } else { Up::Y };
    for table in tables {
        let (names, numbers): (Vec<String>, Vec<u32>) = table.into_iter().unzip();
        let colours = numbers.into_iter().map(label_colour).collect();
        page.classes.push(ClassTable { names, colours });
    }
    for (name, mesh, parts) in meshes {
        let mut shown = PageMesh::new(name, mesh.get().0.clone());
        for (name, on_faces, array, table) in parts {
            let on = if on_faces { Element::Face } else { Element::Vertex };
            let role = match name.as_str() {
                "truth" => Some(Role::Truth),
                "prediction" => Some(Role::Prediction),
                _ => None,
            };
            let values = field_values(&name, &array, table)?;
            shown.fields.push(Field { role, ..Field::new(name, on, values) });
        }
        page.meshes.push(shown);
    }
    let html = work(py, || {
        if frames {
            let options = GeometryOptions { estimate_normals: true, ..Default::default() };
            for shown in &mut page.meshes {
                // A mesh without a tangent plane somewhere is shown without frames.
                let graph = GaugeGraph::new(&shown.mesh, &options).ok();
                shown.frames = graph.map(|graph| graph.frames().to_vec());
            }
        }
        page.to_html()
    })?;
    html.map_err(errors::mesh)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(page, module)?)
}
