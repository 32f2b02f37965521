//! Virtual remeshing: a random sample of the surface in place of its vertices.
//!
//! A training step on a surface needs the values of features, eigenvectors and gradients at some points, and the areas
//! of these points. The points need not be vertices. Each visit of a mesh moves every vertex to a random point of its
//! cell, drops a share of them, and changes what differs between meshings by about as much as it does there. The
//! number of rows stays, so that captured steps can be replayed: dropped points have no area and no target.

use crate::{Result, Sample};
use gemcnn_nn::draws::{choices, noise, perturb, uniform};
use gemcnn_nn::{CellPoints, Elements, FeatureType, IGNORE, SpectraBatch, Target};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Standard deviations of the random changes, relative: each eigenvalue, the scale of the mesh, gradients and
/// features.
const EIGENVALUES: f32 = 0.015;
const SCALE: f32 = 0.02;
const FIELDS: f32 = 0.04;

/// A sample at random points of its surface; `share` of the points are kept. Samples without eigenvectors stay as they
/// are. `outputs` is the type of target values.
pub(super) fn resampled(
    mut sample: Sample,
    outputs: &FeatureType,
    share: f64,
    random: &mut ChaCha8Rng,
) -> Result<Sample> {
    let Some(spectra) = sample.extras.shared::<SpectraBatch<f32>>() else { return Ok(sample) };
    let (vertices, width) = (sample.graph().vertex_count(), outputs.dimension());
    let points = CellPoints::random(sample.graph(), &mut || uniform(random));
    let kept = choices(vertices, share, random);
    let arrays = spectra.arrays();
    let total: f32 = arrays.mass.iter().sum();
    let masses = arrays.mass.iter().zip(&kept);
    let rest: f32 = masses.clone().filter(|(_, kept)| **kept).map(|(m, _)| m).sum();
    if rest <= 0.0 {
        return Ok(sample);
    }
    let mass = masses.map(|(m, kept)| if *kept { m * (total / rest) } else { 0.0 });
    let mass = mass.collect();
    let scale = noise(SCALE, random);
    let eigenvalues =
        (arrays.eigenvalues.iter()).map(|_| noise(EIGENVALUES, random) / (scale * scale)).collect::<Vec<f32>>();
    let gradient = noise(FIELDS, random) / scale;
    sample.features = points.interpolate(&sample.kind, &sample.features)?;
    perturb(&sample.kind, &mut sample.features, FIELDS, random);
    match &mut sample.target {
        // Faces and edges have vertices that are kept.
        _ if sample.extras.get::<Elements<f32>>().is_some() => {}
        Target::Classes(labels) if labels.len() == vertices && vertices > 1 => {
            let dropped = labels.iter_mut().zip(&kept).filter(|(_, kept)| !**kept);
            dropped.for_each(|(label, _)| *label = IGNORE);
        }
        Target::Values(values) if vertices > 1 && values.len() == vertices * width => {
            *values = points.interpolate(outputs, values)?;
            let rows = values.chunks_exact_mut(width.max(1));
            let dropped = rows.zip(&kept).filter(|(_, kept)| !**kept);
            dropped.for_each(|(row, _)| row.fill(f32::NAN));
        }
        _ => {}
    }
    sample.extras.insert(Arc::new(spectra.at(points, mass, &eigenvalues, gradient)?));
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{BodiesConfig, Cache, DataConfig, Dataset, Eigenvectors, Preparation, Split};
    use crate::{FeatureConfig, SampleSource};
    use rand::SeedableRng;

    #[test]
    fn resampling_keeps_the_area() {
        let bodies = BodiesConfig { count: 2, vertices: 500, ..Default::default() };
        let dataset = Dataset::open(&DataConfig::Bodies(bodies)).unwrap();
        let preparation = Preparation {
            features: FeatureConfig::of_kinds("hks,position").unwrap(),
            extras: vec![Eigenvectors([20, 10, 0]).into()],
            ..Default::default()
        };
        let part = dataset.split(Split::Train, &preparation, &Cache::none());
        let sample = part.unwrap().load(0).unwrap();
        let outputs = FeatureType::scalars(1);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let made = resampled(sample.clone(), &outputs, 0.7, &mut random).unwrap();
        let spectra = |sample: &Sample| sample.extras.shared::<SpectraBatch<f32>>().unwrap();
        let (before, after) = (spectra(&sample), spectra(&made));
        let (before, after) = (before.arrays(), after.arrays());
        let sum = |values: &[f32]| values.iter().sum::<f32>();
        assert!((sum(before.mass) - sum(after.mass)).abs() < 1e-4 * sum(before.mass));
        let Target::Classes(labels) = &made.target else { panic!() };
        let dropped = labels.iter().filter(|&&label| label == IGNORE).count();
        let share = dropped as f64 / labels.len() as f64;
        assert!((share - 0.3).abs() < 0.07, "{share}");
        let rows = labels.iter().zip(after.mass);
        assert!(rows.clone().all(|(&l, &m)| (l == IGNORE) == (m == 0.0)));
        // Eigenvectors stay nearly orthonormal on the sample; the first one is constant.
        let first = |p: usize| after.bases[20 * p];
        let norm: f32 = (after.mass.iter().enumerate()).map(|(p, &mass)| mass * first(p) * first(p)).sum();
        assert!((norm - 1.0).abs() < 1e-3, "{norm}");
        let close = |a: &[f32], b: &[f32]| {
            let error: f32 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
            let size: f32 = a.iter().map(|a| a * a).sum();
            (error / size).sqrt()
        };
        for (a, b) in
            [(before.bases, after.bases), (before.eigenvalues, after.eigenvalues), (&sample.features, &made.features)]
        {
            let difference = close(a, b);
            assert!(difference > 1e-3 && difference < 0.5, "{difference}");
        }
        assert!(Arc::ptr_eq(&sample.hierarchy, &made.hierarchy));
    }
}
