//! Ranges of the meshes that a model was trained on.

use crate::{Result, Sample, SampleSource};
use serde::{Deserialize, Serialize};

/// A mesh is noted if it has more than this many times the vertices of the largest training mesh, or fewer than those
/// of the smallest one divided by it.
const VERTEX_FACTOR: f64 = 4.0;
/// The same for its size, which matters unless meshes are normalised.
const SIZE_FACTOR: f64 = 2.0;

/// Ranges of the training meshes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrainingRanges {
    /// Smallest and largest number of vertices.
    pub vertices: [usize; 2],
    /// Smallest and largest square root of the area, after normalisation.
    pub size: [f64; 2],
}

impl TrainingRanges {
    /// The ranges of some samples; `None` if their areas are not known.
    pub(super) fn of(samples: &dyn SampleSource) -> Result<Option<Self>> {
        let mut found: Option<Self> = None;
        for index in 0..samples.len() {
            let (vertices, Some(size)) = samples.extent(index)? else { return Ok(None) };
            let ranges = found.get_or_insert(Self { vertices: [vertices; 2], size: [size; 2] });
            let ([fewest, most], [least, largest]) = (ranges.vertices, ranges.size);
            ranges.vertices = [fewest.min(vertices), most.max(vertices)];
            ranges.size = [least.min(size), largest.max(size)];
        }
        Ok(found)
    }

    /// Notes on a mesh that lies far outside of these ranges, with a remedy.
    pub fn notes(&self, sample: &Sample) -> Vec<String> {
        let mut notes = Vec::new();
        let vertices = sample.graph().vertex_count();
        let [fewest, most] = self.vertices;
        if beyond(vertices as f64, [fewest as f64, most as f64], VERTEX_FACTOR) {
            let wanted = vertices.clamp(fewest, most);
            let usual = if fewest == most { format!("{most}") } else { format!("{fewest} to {most}") };
            notes.push(format!(
                "{vertices} vertices, but the training meshes have {usual}: the prediction may be worse; \
                 `gemcnn mesh remesh IN OUT --vertices {wanted}` makes a mesh like them"
            ));
        }
        if let Some(size) = sample.size()
            && beyond(size, self.size, SIZE_FACTOR)
        {
            let usual = 0.5 * (self.size[0] + self.size[1]);
            notes.push(format!(
                "{:.3} times as large as the training meshes: bring it to the same units, or train with `normalise` in \
                 [geometry]",
                size / usual
            ));
        }
        notes
    }
}

fn beyond(value: f64, [low, high]: [f64; 2], factor: f64) -> bool {
    value > factor * high || value * factor < low
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::shapes;

    fn sphere(subdivisions: u32, scale: f64) -> Sample {
        let mesh = shapes::icosphere(subdivisions).unwrap();
        Sample::bare(&mesh.map_vertices(|p| scale * p).unwrap())
    }

    struct Samples(Vec<Sample>);

    impl SampleSource for Samples {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn name(&self, index: usize) -> String {
            index.to_string()
        }

        fn load(&self, index: usize) -> Result<Sample> {
            Ok(self.0[index].clone())
        }
    }

    #[test]
    fn meshes_that_are_far_from_those_of_training_are_noted() {
        let samples = Samples(vec![sphere(2, 1.0), sphere(3, 1.2)]);
        let ranges = TrainingRanges::of(&samples).unwrap().unwrap();
        assert_eq!(ranges.vertices, [162, 642]);
        assert!((ranges.size[1] / ranges.size[0] - 1.2).abs() < 0.02);
        for (sample, count) in [
            (sphere(2, 1.1), 0),
            (sphere(3, 2.0), 0),
            (sphere(4, 1.0), 0),
            (sphere(0, 1.0), 1),
            (sphere(5, 1.0), 1),
            (sphere(3, 1000.0), 1),
            (sphere(0, 0.001), 2),
        ] {
            assert_eq!(ranges.notes(&sample).len(), count, "{:?}", ranges.notes(&sample));
        }
        let mut bare = sphere(2, 1.0);
        bare.areas.clear();
        assert_eq!(TrainingRanges::of(&Samples(vec![bare])).unwrap(), None);
        assert_eq!(TrainingRanges::of(&Samples(Vec::new())).unwrap(), None);
    }
}
