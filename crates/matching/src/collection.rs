//! Maps between the meshes of a collection, and the data set that they make.

use crate::Shape;
use crate::refine::Refined;
use gemcnn_mesh::remesh::{MeshSize, Simplify, nearest_points, remesh};
use gemcnn_mesh::{Mesh, WriteOptions, write_atomically, write_mesh};
use gemcnn_tasks::data::{Description, npy_i64};
use gemcnn_tasks::{Task, TaskError};
use std::path::Path;

/// Largest distance, on surfaces of unit area, between a point and its image on the template and back that counts as
/// known.
const NEAR: f64 = 0.1;
/// What each map adds to the length of a way, besides its badness.
const STEP: f64 = 0.1;
/// Number of meshes that are tried as template.
const TRIED: usize = 10;
/// A template with fewer vertices for each class is not simplified.
const COARSER: f64 = 1.5;
/// Names of files in the data set.
const MESHES: &str = "meshes";
const TARGETS: &str = "targets";
const TEMPLATE: &str = "template.ply";

/// An accepted map between two meshes.
pub(crate) struct Link {
    ends: [usize; 2],
    forward: Vec<u32>,
    backward: Vec<u32>,
    pub(crate) badness: f64,
}

impl Link {
    pub(crate) fn new(a: usize, b: usize, refined: Refined, badness: f64) -> Self {
        Self { ends: [a, b], forward: refined.forward, backward: refined.backward, badness }
    }

    /// The other end, and the maps there and back.
    fn from(&self, mesh: usize) -> (usize, &[u32], &[u32]) {
        match self.ends {
            [a, b] if a == mesh => (b, &self.forward, &self.backward),
            [a, _] => (a, &self.backward, &self.forward),
        }
    }
}

/// Meshes that maps link to one of them, the template.
pub(crate) struct Collection<'a> {
    names: &'a [String],
    shapes: &'a [Shape],
    links: Vec<Link>,
    /// The link towards the template from each mesh; `None` for the template and for meshes that are not linked.
    towards: Vec<Option<usize>>,
    template: usize,
}

impl<'a> Collection<'a> {
    /// Chooses the template from the meshes with the most links: one that the most others are linked to, on the best ways.
    pub(crate) fn new(names: &'a [String], shapes: &'a [Shape], links: Vec<Link>) -> Self {
        let mut of_mesh = vec![Vec::new(); shapes.len()];
        for (number, link) in links.iter().enumerate() {
            link.ends.iter().for_each(|&end| of_mesh[end].push(number));
        }
        let mut tried: Vec<usize> = (0..shapes.len()).collect();
        tried.sort_by_key(|&mesh| (std::cmp::Reverse(of_mesh[mesh].len()), mesh));
        tried.truncate(TRIED);
        let ways = tried.into_iter().map(|template| (template, ways(&links, &of_mesh, template)));
        let rank = |(lengths, _): &(Vec<f64>, Vec<Option<usize>>)| {
            let reached = lengths.iter().filter(|length| length.is_finite());
            (lengths.len() - reached.clone().count(), reached.sum::<f64>())
        };
        let best = ways.reduce(|best, other| {
            let [(unreached, total), (others, sum)] = [rank(&best.1), rank(&other.1)];
            if (others, sum) < (unreached, total) { other } else { best }
        });
        let (template, (_, towards)) = best.unwrap_or((0, (Vec::new(), vec![None; shapes.len()])));
        Self { names, shapes, links, towards, template }
    }

    /// Names of the meshes that are not linked to the template.
    pub(crate) fn left_out(&self) -> Vec<&str> {
        let left = (0..self.names.len()).filter(|&mesh| mesh != self.template && self.towards[mesh].is_none());
        left.map(|mesh| self.names[mesh].as_str()).collect()
    }

    /// The vertex of the template mesh for each vertex of a mesh, or `None` where the way there and back leads elsewhere.
    fn on_template(&self, mesh: usize) -> Option<Vec<Option<u32>>> {
        let own = self.shapes[mesh].surface().vertices();
        let mut there: Vec<u32> = (0..own.len() as u32).collect();
        let mut back: Vec<&[u32]> = Vec::new();
        let mut at = mesh;
        while at != self.template {
            let (next, forward, backward) = self.links[self.towards[at]?].from(at);
            there.iter_mut().for_each(|vertex| *vertex = forward[*vertex as usize]);
            back.push(backward);
            at = next;
        }
        let known = |(place, &image): (&gemcnn_mesh::DVec3, &u32)| {
            let home = back.iter().rev().fold(image, |vertex, map| map[vertex as usize]);
            (own[home as usize].distance(*place) < NEAR).then_some(image)
        };
        Some(own.iter().zip(&there).map(known).collect())
    }

    /// Writes a data set for correspondence. The classes are vertices of the template mesh, simplified to about `classes`
    /// vertices.
    ///
    /// # Errors
    /// A template that cannot be simplified, or files that cannot be written.
    pub(crate) fn write(&self, folder: &Path, classes: usize) -> Result<(), TaskError> {
        let surface = self.shapes[self.template].surface();
        let refuse = |error: gemcnn_mesh::remesh::RemeshError| {
            TaskError::setting(&self.names[self.template], format!("the template cannot be simplified: {error}"))
        };
        let coarse: Option<Mesh> = match surface.vertex_count() as f64 > COARSER * classes as f64 {
            false => None,
            true => Some(remesh(surface, &Simplify { size: MeshSize::Vertices(classes) }, 0).map_err(refuse)?.mesh),
        };
        let class_of: Vec<i64> = match &coarse {
            None => (0..surface.vertex_count() as i64).collect(),
            Some(coarse) => {
                let nearest = nearest_points(coarse, surface.vertices()).map_err(refuse)?;
                nearest.iter().map(|(point, _)| point.nearest_corner().into()).collect()
            }
        };
        let [meshes, targets] = [MESHES, TARGETS].map(|name| folder.join(name));
        for path in [&meshes, &targets] {
            std::fs::create_dir_all(path).map_err(TaskError::file(path))?;
        }
        let mut names = Vec::new();
        for (mesh, shape) in self.shapes.iter().enumerate() {
            let Some(points) = self.on_template(mesh) else { continue };
            let name = &self.names[mesh];
            let path = meshes.join(format!("{name}.ply"));
            write_mesh(path, shape.surface(), &[], &WriteOptions::default())?;
            let labels: Vec<i64> =
                points.iter().map(|point| point.map_or(-1, |vertex| class_of[vertex as usize])).collect();
            let path = targets.join(format!("{name}.npy"));
            write_atomically(&path, |file| file.write_all(&npy_i64(&labels))).map_err(TaskError::file(&path))?;
            names.push(name.clone());
        }
        write_mesh(folder.join(TEMPLATE), coarse.as_ref().unwrap_or(surface), &[], &WriteOptions::default())?;
        let mut description = Description::new(Task::Correspondence);
        description.meshes = MESHES.into();
        description.template = Some(TEMPLATE.into());
        description.target.files = Some(format!("{TARGETS}/{{stem}}.npy"));
        // The description completes the data set.
        description.write(folder, [Some(names), None, None])
    }
}

/// Lengths of the shortest ways to a mesh, infinite without one, and the first link of each.
fn ways(links: &[Link], of_mesh: &[Vec<usize>], to: usize) -> (Vec<f64>, Vec<Option<usize>>) {
    let mut lengths = vec![f64::INFINITY; of_mesh.len()];
    let (mut towards, mut done) = (vec![None; of_mesh.len()], vec![false; of_mesh.len()]);
    lengths[to] = 0.0;
    loop {
        let open = (0..of_mesh.len()).filter(|&mesh| !done[mesh] && lengths[mesh].is_finite());
        let Some(mesh) = open.reduce(|best, other| if lengths[other] < lengths[best] { other } else { best }) else {
            return (lengths, towards);
        };
        done[mesh] = true;
        for &number in &of_mesh[mesh] {
            let (other, ..) = links[number].from(mesh);
            let length = lengths[mesh] + STEP + links[number].badness;
            if length < lengths[other] {
                (lengths[other], towards[other]) = (length, Some(number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refine::FunctionalMap;
    use gemcnn_mesh::shapes;
    use gemcnn_tasks::data::{DataConfig, Dataset, Split};
    use gemcnn_tasks::evaluation::{GeodesicScores, MeshMap};

    /// The link of a map that adds a number to that of the vertex, with its inverse.
    fn shifted(ends: [usize; 2], by: u32, count: u32, badness: f64) -> Link {
        let moved = |by: u32| (0..count).map(|vertex| (vertex + by) % count).collect();
        let functional_map = FunctionalMap { size: 1, values: vec![1.0] };
        let refined = Refined { forward: moved(by), backward: moved(count - by), functional_map };
        Link::new(ends[0], ends[1], refined, badness)
    }

    #[test]
    fn maps_are_composed_on_the_best_ways() {
        let shape = Shape::new(&shapes::icosphere(2).unwrap(), &Default::default()).unwrap();
        let count = shape.surface().vertex_count() as u32;
        let shapes = vec![shape; 5];
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
        let links = vec![
            shifted([1, 0], 3, count, 0.0),
            shifted([1, 2], 5, count, 0.0),
            shifted([3, 2], 7, count, 0.1),
            // Shorter, but worse than the way over c.
            shifted([3, 1], 50, count, 0.9),
        ];
        let found = Collection::new(&names, &shapes, links);
        assert_eq!((found.template, found.left_out()), (1, vec!["e"]));
        let image = |mesh: usize| found.on_template(mesh).map(|points| points[0]);
        assert_eq!(image(0), Some(Some(count - 3)));
        assert_eq!(image(2), Some(Some(count - 5)));
        assert_eq!(image(3), Some(Some(2)));
        assert_eq!(image(4), None);
    }

    #[test]
    fn the_data_set_has_the_points_that_return() {
        let shape = Shape::new(&shapes::icosphere(3).unwrap(), &Default::default()).unwrap();
        let own = shape.surface().vertices();
        let count = own.len() as u32;
        let mut link = shifted([0, 1], 0, count, 0.0);
        let opposite = own.iter().position(|point| point.distance(-own[0]) < 1e-6).unwrap();
        // On the ways of both meshes.
        link.forward[opposite] = 0;
        link.backward[opposite] = 0;
        let names = ["a", "b"].map(String::from);
        let shapes = [shape.clone(), shape.clone()];
        let found = Collection::new(&names, &shapes, vec![link]);
        let folder = tempfile::tempdir().unwrap();
        found.write(folder.path(), 100).unwrap();
        let data = DataConfig::Folder(folder.path().into());
        let dataset = Dataset::open(&data).unwrap();
        assert_eq!((dataset.len(Split::Train), dataset.len(Split::Test)), (2, 0));
        assert_eq!(dataset.template().unwrap().vertex_count(), 100);
        assert_eq!(dataset.mesh(Split::Train, 1).unwrap().vertex_count(), own.len());
        let maps = [MeshMap { from: 0, to: 1, vertices: (0..count).collect() }];
        assert_eq!(GeodesicScores::of_maps(&dataset, Split::Train, &maps).unwrap().mean, 0.0);
        let known = |mesh: usize| found.on_template(mesh).unwrap().iter().flatten().count();
        assert_eq!([known(found.template), known(1 - found.template)], [own.len(), own.len() - 1]);
    }
}
