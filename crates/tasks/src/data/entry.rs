//! Binary format of prepared meshes.
//!
//! A sequence of sections, each preceded by its length: corners and weights of the sources of a remeshed mesh, empty
//! for others; areas and features; offsets, corners, areas and origins of faces or edges if the output is for them;
//! masses, bases and eigenvalues if there are eigenvectors; the arrays of implicit diffusion if they are needed; the
//! number of sparse maps and the arrays of each if they are needed; then for each level the gauge graph as a
//! safetensors file. Each level except the finest adds its vertices, the cluster of each vertex of the previous level,
//! and the transports to the clusters.

use super::preparation::{Preparation, Prepared};
use crate::Element;
use crate::elements::Elements;
use gemcnn_mesh::remesh::SurfacePoint;
use gemcnn_mesh::surface::HeatArrays;
use gemcnn_mesh::{Clusters, GaugeGraph, Hierarchy, Level};
use gemcnn_nn::{HeatBatch, PatchArrays, PatchBatch, SparseMap, SpectraBatch};
use std::sync::Arc;

/// Format version. Increment when the layout or the meaning of an entry changes.
pub(crate) const ENTRY_VERSION: u32 = 8;

/// A prepared mesh, and where it comes from if it was remeshed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub prepared: Prepared,
    /// Places of the vertices on the mesh of the file; empty if it was not remeshed.
    pub sources: Vec<SurfacePoint>,
    /// Faces or edges of the mesh of the file, if the output is for them; otherwise empty.
    pub origins: Vec<u32>,
}

/// Encodes a prepared mesh. `None` if a graph cannot be encoded, which does not happen for valid graphs.
pub(crate) fn encode(entry: &Entry) -> Option<Vec<u8>> {
    let Entry { prepared, sources, origins } = entry;
    let mut bytes = Vec::new();
    let mut section = |content: &[u8]| {
        bytes.extend((content.len() as u64).to_le_bytes());
        bytes.extend(content);
    };
    let corners: Vec<[u32; 3]> = sources.iter().map(|source| source.corners).collect();
    let weights: Vec<[f64; 3]> = sources.iter().map(|source| source.weights).collect();
    section(bytemuck::cast_slice(&corners));
    section(bytemuck::cast_slice(&weights));
    section(bytemuck::cast_slice(&prepared.areas));
    section(bytemuck::cast_slice(&prepared.features));
    if let Some(elements) = &prepared.elements {
        let (offsets, corners) = elements.incidence.arrays().entries();
        section(bytemuck::cast_slice(offsets));
        section(bytemuck::cast_slice(corners));
        section(bytemuck::cast_slice(&elements.areas));
        section(bytemuck::cast_slice(origins));
    }
    if let Some(spectra) = &prepared.spectra {
        let arrays = spectra.arrays();
        section(bytemuck::cast_slice(arrays.mass));
        section(bytemuck::cast_slice(arrays.bases));
        section(bytemuck::cast_slice(arrays.eigenvalues));
    }
    for arrays in prepared.heat.iter().flat_map(|heat| heat.parts()) {
        for numbers in [&arrays.mass, &arrays.weights, &arrays.transport, &arrays.copies, &arrays.gradient] {
            section(bytemuck::cast_slice(numbers));
        }
        for indices in [
            &arrays.offsets,
            &arrays.neighbours,
            &arrays.representatives,
            &arrays.gradient_offsets,
            &arrays.gradient_neighbours,
        ] {
            section(bytemuck::cast_slice(indices));
        }
    }
    for arrays in prepared.patches.iter().flat_map(|batch| batch.parts()) {
        section(bytemuck::cast_slice(&[arrays.maps.len() as u64]));
        for map in &arrays.maps {
            section(bytemuck::cast_slice(&map.offsets));
            section(bytemuck::cast_slice(&map.columns));
            section(bytemuck::cast_slice(&map.weights));
            section(bytemuck::cast_slice(&map.angles));
        }
    }
    match &prepared.hierarchy {
        None => section(&prepared.graph.to_safetensors().ok()?),
        Some(hierarchy) => {
            for level in hierarchy.levels() {
                section(&level.graph.to_safetensors().ok()?);
                if let Some(clusters) = &level.clusters {
                    section(bytemuck::cast_slice(&level.vertices));
                    section(bytemuck::cast_slice(clusters.cluster_of()));
                    section(bytemuck::cast_slice(clusters.transport()));
                }
            }
        }
    }
    Some(bytes)
}

/// Decodes a prepared mesh. `None` if the bytes are not a mesh that was prepared in this way.
pub(crate) fn decode(bytes: &[u8], preparation: &Preparation) -> Option<Entry> {
    let mut sections = Sections(bytes);
    let (corners, weights): (Vec<[u32; 3]>, Vec<[f64; 3]>) = (sections.numbers()?, sections.numbers()?);
    let sources: Vec<SurfacePoint> =
        (corners.iter().zip(&weights)).map(|(&corners, &weights)| SurfacePoint { corners, weights }).collect();
    let areas: Vec<f32> = sections.numbers()?;
    let features: Vec<f32> = sections.numbers()?;
    let mut origins: Vec<u32> = Vec::new();
    let elements = match preparation.per {
        Element::Vertex | Element::Mesh => None,
        Element::Face | Element::Edge => {
            let (offsets, corners): (Vec<u32>, Vec<u32>) = (sections.numbers()?, sections.numbers()?);
            let element_areas: Vec<f32> = sections.numbers()?;
            origins = sections.numbers()?;
            let parts = [&offsets[..], &corners];
            Some(Elements::from_parts(areas.len(), parts, element_areas).ok()?)
        }
    };
    let spectra = match preparation.columns() {
        [] => None,
        columns => {
            let (mass, bases) = (sections.numbers()?, sections.numbers()?);
            let eigenvalues = sections.numbers()?;
            let spectra = SpectraBatch::from_parts(columns.to_vec(), mass, bases, eigenvalues);
            Some(Arc::new(spectra.ok()?))
        }
    };
    let heat = match preparation.implicit {
        false => None,
        true => {
            let arrays = HeatArrays {
                mass: sections.numbers()?,
                weights: sections.numbers()?,
                transport: sections.numbers()?,
                copies: sections.numbers()?,
                gradient: sections.numbers()?,
                offsets: sections.numbers()?,
                neighbours: sections.numbers()?,
                representatives: sections.numbers()?,
                gradient_offsets: sections.numbers()?,
                gradient_neighbours: sections.numbers()?,
            };
            Some(Arc::new(HeatBatch::new([Arc::new(arrays)]).ok()?))
        }
    };
    let maps = match &preparation.patches {
        None => None,
        Some(_) => {
            let count: Vec<u64> = sections.numbers()?;
            let maps = (0..*count.first()?).map(|_| {
                Some(SparseMap {
                    offsets: sections.numbers()?,
                    columns: sections.numbers()?,
                    weights: sections.numbers()?,
                    angles: sections.numbers()?,
                })
            });
            Some(maps.collect::<Option<Vec<SparseMap>>>()?)
        }
    };
    let width = preparation.features.kind().dimension();
    let graph = GaugeGraph::from_safetensors(sections.next()?).ok()?;
    let vertices = graph.vertex_count();
    let has_sources = !corners.is_empty() || !weights.is_empty();
    if has_sources && (corners.len() != vertices || weights.len() != vertices) {
        return None;
    }
    let expected = match &elements {
        Some(elements) if has_sources => elements.areas.len(),
        _ => 0,
    };
    if origins.len() != expected {
        return None;
    }
    if features.len() != vertices * width || areas.len() != vertices {
        return None;
    }
    if spectra.as_ref().is_some_and(|s| s.vertex_count() != vertices) {
        return None;
    }
    if heat.as_ref().is_some_and(|h| h.vertex_count() != vertices) {
        return None;
    }
    let patches = match maps {
        None => None,
        Some(maps) => {
            let arrays = Arc::new(PatchArrays { vertices, maps });
            Some(Arc::new(PatchBatch::new([arrays]).ok()?))
        }
    };
    if preparation.hierarchy.is_none() {
        let prepared =
            Prepared { graph: Arc::new(graph), hierarchy: None, spectra, heat, elements, patches, areas, features };
        let entry = Entry { prepared, sources, origins };
        return sections.0.is_empty().then_some(entry);
    }
    let mut levels = vec![Level { graph, vertices: (0..vertices as u32).collect(), clusters: None }];
    while !sections.0.is_empty() {
        let graph = GaugeGraph::from_safetensors(sections.next()?).ok()?;
        let vertices: Vec<u32> = sections.numbers()?;
        let clusters = Clusters::new(vertices.len(), sections.numbers()?, sections.numbers()?);
        levels.push(Level { graph, vertices, clusters: Some(clusters.ok()?) });
    }
    let graph = Arc::new(levels.first()?.graph.clone());
    let prepared = Prepared {
        graph,
        hierarchy: Some(Arc::new(Hierarchy::from_levels(levels).ok()?)),
        spectra,
        heat,
        elements,
        patches,
        areas,
        features,
    };
    Some(Entry { prepared, sources, origins })
}

/// The remaining sections.
struct Sections<'a>(&'a [u8]);

impl<'a> Sections<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (section, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(section)
    }

    fn numbers<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(&mut self) -> Option<Vec<T>> {
        let bytes = self.next()?;
        bytes.len().is_multiple_of(size_of::<T>()).then(|| bytemuck::pod_collect_to_vec(bytes))
    }
}
