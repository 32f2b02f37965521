//! Differences between the splits of a data set that a model may not bridge.

use super::split::Split;
use super::splits::Splits;
use gemcnn_mesh::{DVec3, Mesh};

/// Ratio of medians from which a difference is worth a note.
const APART: f64 = 2.0;

/// Size and shape of a mesh.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Extent {
    vertices: f64,
    /// Sides of the bounding box.
    sides: DVec3,
}

impl Extent {
    /// The extent of a mesh; `None` without vertices.
    pub fn new(mesh: &Mesh) -> Option<Self> {
        let [low, high] = mesh.bounds()?;
        Some(Self { vertices: mesh.vertex_count() as f64, sides: high - low })
    }

    fn longest(&self) -> usize {
        let sides = self.sides.to_array();
        (0..3).fold(0, |a, b| if sides[b] > sides[a] { b } else { a })
    }
}

/// Notes on splits that differ from the training split in size, number of vertices or orientation.
pub(super) fn compare(splits: &Splits, extents: &[Option<Extent>]) -> Vec<String> {
    let of = |split: Split| -> Vec<Extent> {
        let items = splits.of(split).iter();
        items.filter_map(|&item| *extents.get(item)?).collect()
    };
    let training = of(Split::Train);
    let mut notes = Vec::new();
    for split in [Split::Validation, Split::Test] {
        let other = of(split);
        let ratio = |value: fn(&Extent) -> f64| {
            let ratio = median(&other, value)? / median(&training, value)?;
            let apart = ratio.is_finite() && !(APART.recip()..=APART).contains(&ratio);
            apart.then_some(ratio)
        };
        if let Some(ratio) = ratio(|extent| extent.sides.length()) {
            notes.push(format!(
                "meshes in {split} are {ratio:.3} times as large as in train: keep `normalise` in [geometry] on, or bring \
                 them to the same units"
            ));
        }
        if let Some(ratio) = ratio(|extent| extent.vertices) {
            notes.push(format!(
                "meshes in {split} have {ratio:.3} times the vertices of those in train: models `gem` and `unet` depend on the \
                 density, `surface` does not"
            ));
        }
        if let (Some(here), Some(there)) = (usual_axis(&other), usual_axis(&training))
            && here != there
        {
            let axis = |axis: usize| ["x", "y", "z"][axis];
            notes.push(format!(
                "meshes in {split} are longest along {}, but in train along {}: use features that do not depend on the \
                 orientation (not `xyz`), or rotate them in [augmentation]",
                axis(here),
                axis(there)
            ));
        }
    }
    notes
}

fn median(extents: &[Extent], value: fn(&Extent) -> f64) -> Option<f64> {
    let mut values: Vec<f64> = extents.iter().map(value).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The axis along which three quarters of the meshes are longest; `None` if there is no such.
fn usual_axis(extents: &[Extent]) -> Option<usize> {
    (0..3).find(|&axis| {
        let along = extents.iter().filter(|extent| extent.longest() == axis);
        !extents.is_empty() && 4 * along.count() >= 3 * extents.len()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::shapes;

    #[test]
    fn differences_between_parts_are_noted() {
        let shape = |stretch: DVec3, level: u32| {
            let mesh = shapes::icosphere(level).unwrap();
            Extent::new(&mesh.map_vertices(|p| p * stretch).unwrap())
        };
        let upright = DVec3::new(0.5, 2.0, 0.4);
        let splits = Splits::first(4, 6);
        let mut extents = vec![shape(upright, 2); 6];
        assert!(compare(&splits, &extents).is_empty());
        extents[5] = None;
        assert!(compare(&splits, &extents).is_empty());
        for (other, level, count) in [
            (1000.0 * upright, 2, 1),
            (upright, 3, 1),
            (DVec3::new(0.4, 0.5, 2.0), 2, 1),
            (DVec3::new(0.2, 0.04, 0.05), 3, 3),
        ] {
            extents[4] = shape(other, level);
            assert_eq!(compare(&splits, &extents).len(), count, "{other}");
        }
    }
}
