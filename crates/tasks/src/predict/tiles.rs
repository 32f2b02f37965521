//! Tiles of large meshes. A network that reaches a known number of rings sees each tile with the rings around it, so
//! that its memory depends on the size of a tile and not on that of the mesh.

use crate::{Result, Sample};
use gemcnn_nn::{Elements, Extras, Target};
use std::collections::VecDeque;
use std::sync::Arc;

/// A part of a mesh.
pub(super) struct Tile {
    /// The tile with the rings around it.
    pub sample: Sample,
    /// The rows of the mesh that the tile gives, each with its place in the output for the tile.
    pub rows: Vec<(u32, u32)>,
}

/// Divides meshes into tiles.
pub(super) struct Tiles<'a> {
    sample: &'a Sample,
    reach: usize,
    size: usize,
    /// The vertices, so that those of a tile follow each other and are near each other.
    order: Vec<u32>,
    /// Faces or edges in the order of the tiles, and the start of each tile.
    elements: Vec<u32>,
    starts: Vec<usize>,
    /// Last tile that each vertex was seen in.
    seen: Vec<u32>,
    next: usize,
}

impl<'a> Tiles<'a> {
    /// Tiles of `size` vertices, for a network that reaches `reach` rings.
    pub fn new(sample: &'a Sample, reach: usize, size: usize) -> Self {
        let size = size.max(1);
        let order = compact_order(sample, size);
        let count = order.len().div_ceil(size);
        let mut tile_of = vec![0; order.len()];
        for (place, &vertex) in order.iter().enumerate() {
            tile_of[vertex as usize] = (place / size) as u32;
        }
        let (elements, starts) = match sample.extras.get::<Elements<f32>>() {
            None => (Vec::new(), vec![0; count + 1]),
            Some(elements) => by_tile(elements, &tile_of, count),
        };
        Self {
            sample,
            reach,
            size,
            // Tiles are numbered from 1 here.
            seen: vec![0; order.len()],
            order,
            elements,
            starts,
            next: 0,
        }
    }

    /// The vertices of a tile, and all that the network reaches from there, in ascending order.
    fn surroundings(&mut self, tile: usize, mut vertices: Vec<u32>) -> Vec<u32> {
        let mark = tile as u32 + 1;
        let seen = &mut self.seen;
        vertices.retain(|&vertex| std::mem::replace(&mut seen[vertex as usize], mark) != mark);
        let adjacency = self.sample.graph().adjacency();
        let mut inner = 0;
        for _ in 0..self.reach {
            let ring = inner..vertices.len();
            inner = ring.end;
            for place in ring {
                for &next in adjacency.neighbours_of(vertices[place] as usize) {
                    if std::mem::replace(&mut self.seen[next as usize], mark) != mark {
                        vertices.push(next);
                    }
                }
            }
        }
        vertices.sort_unstable();
        vertices
    }

    fn tile(&mut self, tile: usize) -> Result<Tile> {
        let end = self.order.len().min((tile + 1) * self.size);
        let core = self.order[tile * self.size..end].to_vec();
        let sample = self.sample;
        let mut near = core.clone();
        let numbers = self.elements[self.starts[tile]..self.starts[tile + 1]].to_vec();
        let elements: Option<&Elements<f32>> = sample.extras.get();
        let corners = |number: u32| elements.map_or(&[][..], |elements| elements.corners(number as usize));
        near.extend(numbers.iter().flat_map(|&number| corners(number)));
        let vertices = self.surroundings(tile, near);
        let place = |vertex: &u32| vertices.binary_search(vertex).unwrap_or_default() as u32;
        let mut extras = Extras::default();
        let rows = match elements {
            None => core.iter().map(|v| (*v, place(v))).collect(),
            Some(elements) => {
                let mut offsets = vec![0];
                let mut local = Vec::new();
                for &number in &numbers {
                    local.extend(corners(number).iter().map(place));
                    offsets.push(local.len() as u32);
                }
                let areas = numbers.iter().map(|&n| elements.areas[n as usize]).collect();
                extras.insert(Arc::new(Elements::new(vertices.len(), &offsets, &local, areas)?));
                numbers.iter().copied().zip(0..).collect()
            }
        };
        let width = sample.kind.dimension();
        let row = |&vertex: &u32| &sample.features[vertex as usize * width..][..width];
        Ok(Tile {
            sample: Sample {
                name: sample.name.clone(),
                hierarchy: Arc::new(sample.graph().subgraph(&vertices).into()),
                extras,
                areas: Vec::new(),
                kind: sample.kind.clone(),
                features: vertices.iter().flat_map(row).copied().collect(),
                target: Target::Unknown,
            },
            rows,
        })
    }
}

impl Iterator for Tiles<'_> {
    type Item = Result<Tile>;

    fn next(&mut self) -> Option<Self::Item> {
        let tile = self.next;
        self.next += 1;
        (tile + 1 < self.starts.len()).then(|| self.tile(tile))
    }
}

/// All vertices, those of each tile after each other. A tile grows from a vertex next to an earlier one.
fn compact_order(sample: &Sample, size: usize) -> Vec<u32> {
    let adjacency = sample.graph().adjacency();
    let vertices = adjacency.vertex_count();
    let mut taken = vec![false; vertices];
    let mut order = Vec::with_capacity(vertices);
    let (mut queue, mut seeds) = (VecDeque::new(), VecDeque::new());
    let mut others = 0..vertices as u32;
    while order.len() < vertices {
        let end = (order.len() / size + 1) * size;
        let is_free = |vertex: &u32| !taken[*vertex as usize];
        let beside = std::iter::from_fn(|| seeds.pop_front()).find(is_free);
        let Some(seed) = beside.or_else(|| others.find(is_free)) else { break };
        taken[seed as usize] = true;
        queue.push_back(seed);
        while let Some(vertex) = queue.pop_front() {
            if order.len() == end {
                // The tile is full.
                taken[vertex as usize] = false;
                seeds.push_back(vertex);
                continue;
            }
            order.push(vertex);
            for &next in adjacency.neighbours_of(vertex as usize) {
                if !std::mem::replace(&mut taken[next as usize], true) {
                    queue.push_back(next);
                }
            }
        }
    }
    order
}

/// Faces or edges by the tile of their first vertex, and the start of each tile. Those without vertices are in the
/// first one.
fn by_tile(elements: &Elements<f32>, tile_of: &[u32], tiles: usize) -> (Vec<u32>, Vec<usize>) {
    let tile = |number: usize| elements.corners(number).first().map_or(0, |&first| tile_of[first as usize] as usize);
    let count = elements.count();
    let mut starts = vec![0; tiles + 1];
    (0..count).for_each(|number| starts[tile(number) + 1] += 1);
    for tile in 0..tiles {
        starts[tile + 1] += starts[tile];
    }
    let (mut next, mut sorted) = (starts.clone(), vec![0; count]);
    for number in 0..count {
        let place = &mut next[tile(number)];
        sorted[*place] = number as u32;
        *place += 1;
    }
    (sorted, starts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elements::elements_of;
    use crate::models::{GemModel, ModelSpec};
    use crate::{Element, ModelConfig, Task};
    use gemcnn_mesh::shapes;
    use gemcnn_nn::{FeatureType, Module, Parameters, Tape, Workspace};

    fn outputs((network, parameters): &(Box<dyn Module<f32>>, Parameters<f32>), sample: &Sample) -> (Vec<f32>, usize) {
        let graphs = sample.geometry().unwrap();
        let mut workspace = Workspace::default();
        let mut tape = Tape::inference(&mut workspace, parameters);
        let x = tape.input(sample.kind.clone(), &sample.features).unwrap();
        let y = network.forward(&mut tape, (&graphs).into(), x).unwrap();
        let values = y.values().unwrap().into_owned();
        drop((y, tape));
        (values, workspace.pool().usage().peak_bytes)
    }

    #[test]
    fn tiles_give_the_outputs_of_the_whole_mesh_in_less_memory() {
        let mesh = shapes::icosphere(5).unwrap();
        let model: ModelConfig = GemModel { blocks: 2, channels: 4, ..GemModel::default() }.into();
        for per in [Element::Vertex, Element::Face, Element::Edge] {
            let spec = ModelSpec {
                input: FeatureType::scalars(3),
                task: Task::Segmentation,
                per,
                outputs: FeatureType::scalars(2),
            };
            let model = model.init(&spec, 1).unwrap();
            let positions = mesh.vertices().iter().flat_map(|p| p.to_array());
            let mut sample = Sample {
                kind: FeatureType::scalars(3),
                features: positions.map(|x| x as f32).collect(),
                ..Sample::bare(&mesh)
            };
            if per != Element::Vertex {
                sample.extras.insert(Arc::new(elements_of(per, &mesh).unwrap()));
            }
            let (whole, most) = outputs(&model, &sample);
            let reach = model.0.reach().unwrap();
            assert_eq!(reach, 4);
            let mut met = vec![false; sample.row_count()];
            let mut tiles = 0;
            for tile in Tiles::new(&sample, reach, 600) {
                let tile = tile.unwrap();
                let (found, peak) = outputs(&model, &tile.sample);
                assert!(4 * peak < most, "{peak} of {most} bytes");
                for (row, place) in tile.rows {
                    assert!(!std::mem::replace(&mut met[row as usize], true));
                    for column in 0..2 {
                        let [a, b] =
                            [(&whole, row), (&found, place)].map(|(values, row)| values[2 * row as usize + column]);
                        assert!((a - b).abs() < 1e-4, "{per:?} {row}: {a} and {b}");
                    }
                }
                tiles += 1;
            }
            assert_eq!((tiles, met.contains(&false)), (18, false));
        }
        // A network that sees the whole mesh has no reach.
        let pooled = ModelSpec {
            input: FeatureType::scalars(3),
            task: Task::Classification,
            per: Element::Mesh,
            outputs: FeatureType::scalars(2),
        };
        assert_eq!(model.init(&pooled, 1).unwrap().0.reach(), None);
    }
}
