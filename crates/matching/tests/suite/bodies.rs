//! Remeshed synthetic bodies with known correspondences.

use crate::AS_GIVEN;
use gemcnn_matching::Shape;
use gemcnn_mesh::remesh::{Isotropic, MeshSize, RemeshKind, Simplify, carry_values, remesh};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
use gemcnn_mesh::{DVec3, Mesh, PointIndex};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::LazyLock;

/// A body and, for each of its vertices, the place on the template in square roots of the template's area.
pub struct Body {
    pub mesh: Mesh,
    pub places: Vec<DVec3>,
}

static FAMILY: LazyLock<BodyFamily> = LazyLock::new(|| {
    BodyFamily::new(&BodyOptions { vertices: 1500, ..Default::default() }).expect("1,500 vertices are enough")
});

impl Body {
    /// A body in another meshing of about as many vertices.
    pub fn remeshed(index: u64, vertices: usize, simplify: bool) -> Self {
        let size = MeshSize::Vertices(vertices);
        let kind: RemeshKind = match simplify {
            true => Simplify { size }.into(),
            false => Isotropic { size, ..Default::default() }.into(),
        };
        let remeshed = remesh(&FAMILY.body(index), &kind, index).unwrap();
        let template = FAMILY.template().vertices();
        let area: f64 = gemcnn_mesh::vertex_areas(FAMILY.template()).iter().sum();
        let rest: Vec<f64> = template.iter().flat_map(|p| (*p / area.sqrt()).to_array()).collect();
        let places = carry_values(&remeshed.sources, 3, &rest);
        Self { mesh: remeshed.mesh, places: places.chunks_exact(3).map(DVec3::from_slice).collect() }
    }

    /// Smooth functions of the place on the template, with noise.
    pub fn descriptors(&self, noise: f64, seed: u64) -> Vec<f32> {
        let mut waves = ChaCha8Rng::seed_from_u64(1);
        let gaussian = |random: &mut ChaCha8Rng| {
            let uniform: f64 = (0..12).map(|_| random.random::<f64>()).sum();
            uniform - 6.0
        };
        let waves: Vec<(DVec3, f64)> = (0..32)
            .map(|_| (DVec3::from(std::array::from_fn(|_| 6.0 * gaussian(&mut waves))), 6.0 * gaussian(&mut waves)))
            .collect();
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let values = self.places.iter().flat_map(|place| {
            let values: Vec<f32> = waves
                .iter()
                .map(|(wave, phase)| ((wave.dot(*place) + phase).cos() + noise * gaussian(&mut random)) as f32)
                .collect();
            values
        });
        values.collect()
    }

    /// The prepared mesh with descriptors.
    pub fn shape(&self, noise: f64, seed: u64) -> Shape {
        let mut shape = Shape::new(&self.mesh, &AS_GIVEN).unwrap();
        assert_eq!(shape.surface().vertex_count(), self.mesh.vertex_count());
        shape.set_descriptors(self.descriptors(noise, seed)).unwrap();
        shape
    }

    /// Distances on the template between each vertex and its image on another body, in square roots of the area.
    pub fn errors(&self, other: &Self, map: &[u32]) -> Vec<f64> {
        map.iter().zip(&self.places).map(|(&image, place)| place.distance(other.places[image as usize])).collect()
    }

    /// For each vertex the best vertex of another body.
    pub fn truth(&self, other: &Self) -> Vec<u32> {
        let index = PointIndex::new(&other.places);
        self.places.iter().map(|&place| index.nearest(place).unwrap().point).collect()
    }
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
