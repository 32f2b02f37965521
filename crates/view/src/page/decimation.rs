//! Simplified versions of meshes that are too large for a page.

use super::{Element, Field, PageError, PageMesh, Values};
use gemcnn_mesh::remesh::{MeshSize, Remeshed, Simplify, carry_labels, carry_values, remesh};
use gemcnn_mesh::{DVec3, Frame};

/// Name of the field with the vertex of the original mesh.
const ORIGINAL: &str = "original vertex";

/// The mesh with at most about `most` vertices, its fields carried along; `None` if it is small enough. Values of
/// faces are left out.
pub(super) fn decimated(mesh: &PageMesh, most: usize) -> Result<Option<PageMesh>, PageError> {
    if mesh.mesh.vertex_count() <= most {
        return Ok(None);
    }
    let small = remesh(&mesh.mesh, &Simplify { size: MeshSize::Vertices(most) }, 0)
        .map_err(|source| PageError::Simplification { mesh: mesh.name.clone(), source })?;
    let nearest: Vec<u32> = small.sources.iter().map(|s| s.nearest_corner()).collect();
    let on_vertices = mesh.fields.iter().filter(|f| f.on == Element::Vertex);
    let mut fields: Vec<Field> =
        on_vertices.map(|field| Field { values: carried(&field.values, &small, &nearest), ..field.clone() }).collect();
    let original = nearest.iter().map(|&vertex| vertex as f32).collect();
    fields.push(Field::new(ORIGINAL, Element::Vertex, Values::Numbers(original)));
    let frames = mesh.frames.as_ref().map(|frames| {
        let frame = |&vertex: &u32| frames[vertex as usize];
        nearest.iter().map(frame).collect::<Vec<Frame>>()
    });
    let mut facts = mesh.facts.clone();
    facts.push((
        "Simplified".into(),
        format!("from {} to {} vertices for this page", mesh.mesh.vertex_count(), small.mesh.vertex_count()),
    ));
    Ok(Some(PageMesh { name: mesh.name.clone(), mesh: small.mesh, frames, fields, facts }))
}

fn carried(values: &Values, small: &Remeshed, nearest: &[u32]) -> Values {
    match values {
        Values::Numbers(numbers) => {
            let numbers: Vec<f64> = numbers.iter().map(|&value| value.into()).collect();
            let carried = carry_values(&small.sources, 1, &numbers);
            Values::Numbers(carried.into_iter().map(|value| value as f32).collect())
        }
        Values::Labels { table, classes } => {
            Values::Labels { table: *table, classes: carry_labels(&small.sources, classes) }
        }
        Values::Colours(colours) => Values::Colours(nearest.iter().map(|&v| colours[v as usize]).collect()),
        Values::Vectors(vectors) => {
            let flat: Vec<f64> = vectors.iter().flat_map(DVec3::to_array).collect();
            let carried = carry_values(&small.sources, 3, &flat);
            Values::Vectors(carried.chunks_exact(3).map(DVec3::from_slice).collect())
        }
    }
}
