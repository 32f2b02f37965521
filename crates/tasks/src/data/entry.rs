//! Binary format of prepared meshes.
//!
//! Holds what takes long to compute. The rest follows from the mesh, to the same bits.
//!
//! A sequence of sections, each preceded by its length: corners and weights of the sources of a remeshed mesh, empty
//! for others; vertices, starts of the faces and their corners; features; the gauge graph as a safetensors file, unless
//! it [follows from the mesh](Preparation::graph_follows); the sections of the faces or edges that the output is for;
//! those of every other [extra](super::ExtraSource), in the order of their settings; then for each coarser level its
//! graph, its vertices, the cluster of each vertex of the previous level, and the transports to the clusters.

use super::preparation::{Preparation, areas};
use crate::Sample;
use gemcnn_mesh::remesh::SurfacePoint;
use gemcnn_mesh::{Clusters, DVec3, Faces, GaugeGraph, Hierarchy, Level, Mesh};
use gemcnn_nn::{Elements, Extras, Target};
use std::sync::Arc;

/// Format version. Increment when the layout or the meaning of an entry changes.
pub(crate) const ENTRY_VERSION: u32 = 10;

/// A prepared mesh, and where it comes from if it was remeshed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// Without a target.
    pub sample: Sample,
    /// The mesh of the sample.
    pub mesh: Mesh,
    /// Places of the vertices on the mesh of the file; empty if it was not remeshed.
    pub sources: Vec<SurfacePoint>,
}

/// Encodes a mesh that was prepared in this way. `None` if a graph cannot be encoded, which does not happen for valid
/// graphs.
pub(crate) fn encode(entry: &Entry, preparation: &Preparation) -> Option<Vec<u8>> {
    let Entry { sample, mesh, sources } = entry;
    let mut writer = EntryWriter { bytes: Vec::new() };
    writer.numbers(&sources.iter().map(|source| source.corners).collect::<Vec<[u32; 3]>>());
    writer.numbers(&sources.iter().map(|source| source.weights).collect::<Vec<[f64; 3]>>());
    writer.numbers(mesh.vertices());
    writer.numbers(mesh.faces().offsets());
    writer.numbers(mesh.faces().corners());
    writer.numbers(&sample.features);
    if !preparation.graph_follows() {
        writer.numbers(&sample.graph().to_safetensors().ok()?);
    }
    for extra in preparation.all_extras() {
        extra.source.store(&sample.extras, &mut writer);
    }
    for level in sample.hierarchy.levels() {
        if let Some(clusters) = &level.clusters {
            writer.numbers(&level.graph.to_safetensors().ok()?);
            writer.numbers(&level.vertices);
            writer.numbers(clusters.cluster_of());
            writer.numbers(clusters.transport());
        }
    }
    Some(writer.bytes)
}

/// Decodes a mesh, whose sample gets a name. `None` if the bytes are not a mesh that was prepared in this way.
pub(crate) fn decode(name: &str, bytes: &[u8], preparation: &Preparation) -> Option<Entry> {
    let mut reader = EntryReader { bytes };
    let (corners, weights): (Vec<[u32; 3]>, Vec<[f64; 3]>) = (reader.numbers()?, reader.numbers()?);
    let mesh = reader.mesh()?;
    let (vertices, kind) = (mesh.vertex_count(), preparation.features.kind());
    let features: Vec<f32> = reader.numbers()?;
    let graph = match preparation.graph_follows() {
        true => preparation.graph(&mesh).ok()?,
        false => GaugeGraph::from_safetensors(reader.section()?).ok()?,
    };
    let is_remeshed = !corners.is_empty() || !weights.is_empty();
    let fits = graph.vertex_count() == vertices
        && features.len() == vertices * kind.dimension()
        && (!is_remeshed || [corners.len(), weights.len()] == [vertices; 2]);
    if !fits {
        return None;
    }
    let mut extras = Extras::default();
    for extra in preparation.all_extras() {
        extra.source.load((&mesh, &graph), &mut reader, &mut extras)?;
    }
    let elements: Option<&Elements<f32>> = extras.get();
    if elements.is_some_and(|e| e.origins.len() != if is_remeshed { e.count() } else { 0 }) {
        return None;
    }
    let mut levels = Hierarchy::from(graph).into_levels();
    while !reader.bytes.is_empty() && preparation.hierarchy.is_some() {
        let graph = GaugeGraph::from_safetensors(reader.section()?).ok()?;
        let vertices: Vec<u32> = reader.numbers()?;
        let clusters = Clusters::new(vertices.len(), reader.numbers()?, reader.numbers()?);
        levels.push(Level { graph, vertices, clusters: Some(clusters.ok()?) });
    }
    let hierarchy = Arc::new(Hierarchy::from_levels(levels).ok()?);
    if !reader.bytes.is_empty() {
        return None;
    }
    let sources = corners.into_iter().zip(weights).map(|(corners, weights)| SurfacePoint { corners, weights });
    let areas = areas(&mesh);
    let sample = Sample { name: name.into(), hierarchy, extras, areas, kind, features, target: Target::Unknown };
    Some(Entry { sample, mesh, sources: sources.collect() })
}

/// Writes the sections of an entry.
#[derive(Debug)]
pub struct EntryWriter {
    bytes: Vec<u8>,
}

impl EntryWriter {
    /// Adds a section.
    pub fn numbers<T: bytemuck::NoUninit>(&mut self, numbers: &[T]) {
        let content = bytemuck::cast_slice(numbers);
        self.bytes.extend((content.len() as u64).to_le_bytes());
        self.bytes.extend::<&[u8]>(content);
    }
}

/// Reads the sections of an entry.
#[derive(Debug)]
pub struct EntryReader<'a> {
    /// The remaining sections.
    bytes: &'a [u8],
}

impl<'a> EntryReader<'a> {
    fn section(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (section, rest) = rest.split_at_checked(length)?;
        self.bytes = rest;
        Some(section)
    }

    fn mesh(&mut self) -> Option<Mesh> {
        let vertices: Vec<DVec3> = self.numbers()?;
        let (offsets, corners): (Vec<u32>, Vec<u32>) = (self.numbers()?, self.numbers()?);
        let faces = offsets.windows(2).map(|ends| corners.get(ends[0] as usize..ends[1] as usize));
        let mesh = Mesh::new(vertices, faces.collect::<Option<Faces>>()?).ok()?;
        (mesh.faces().offsets() == offsets && mesh.faces().corners() == corners).then_some(mesh)
    }

    /// The next section. `None` if there is none, or if it is not made of whole numbers of this type.
    pub fn numbers<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(&mut self) -> Option<Vec<T>> {
        let bytes = self.section()?;
        bytes.len().is_multiple_of(size_of::<T>()).then(|| bytemuck::pod_collect_to_vec(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;
    use crate::train::RunConfig;

    /// Entries of meshes with six faces, whose labels are those of faces: features, model, and the part of the key that
    /// is not of features and geometry. The first one was remeshed.
    const GOLDEN: [(&str, &str, &str, &str); 4] = [
        ("spiral", "xyz", "length = 3", r#""per":"face","patches":"spiral {\"length\":3,\"dilation\":1}""#),
        ("surface", "position", "eigenvectors = [3, 1, 1]", r#""eigenvectors":[3,1,1],"per":"face""#),
        ("implicit", "position", "diffusion = 'implicit'", r#""implicit":true,"per":"face""#),
        (
            "unet",
            "xyz",
            "channels = [2, 2]\nratios = [0.5]\nradii = [3.0]",
            r#""hierarchy":{"ratios":[0.5],"radii":[3.0],"neighbour_limit":32},"per":"face""#,
        ),
    ];

    #[test]
    fn entries_of_earlier_builds_are_found_and_read() {
        for (name, features, model, key) in GOLDEN {
            let kind = if name == "implicit" { "surface" } else { name };
            let text = format!(
                "task = 'segmentation'\nfeatures = '{features}'\n[data]\nfolder = '.'\n[model]\nkind = '{kind}'\n{model}"
            );
            let config = RunConfig::parse(&text).unwrap();
            let preparation = Preparation { per: Element::Face, ..config.preparation() };
            let geometry = r#""geometry":{"normals":"area","normalise":true}"#;
            let key = format!(r#"{{"features":{{"kind":"{features}"}},{geometry},{key}}}"#);
            assert_eq!(String::from_utf8(preparation.key()).unwrap(), key);
            let path = format!("{}/../../fixtures/cache/{name}.prepared", env!("CARGO_MANIFEST_DIR"));
            let file = std::fs::read(path).unwrap();
            // After a mark and a checksum.
            let bytes = &file[48..];
            let entry = decode(name, bytes, &preparation).unwrap();
            assert_eq!(entry.sample.row_count(), if entry.sources.is_empty() { 6 } else { 24 });
            assert!(encode(&entry, &preparation).unwrap() == bytes, "{name}");
        }
    }
}
