//! Which samples form which step.
//!
//! The order of the samples follows from the seed and the epoch alone, so the number of a step determines its
//! batch.

use super::batch_size::BatchSize;
use crate::{Result, SampleSource, Visit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// How samples are divided into batches.
#[derive(Debug, Clone)]
pub(crate) struct BatchPlan {
    /// Number of meshes, and of versions of each.
    pub samples: usize,
    pub versions: usize,
    pub division: Division,
    /// Seed of the shuffle; `None` keeps the order of the samples.
    pub shuffle: Option<u64>,
    /// Skips the last batch of an epoch if it is not full.
    pub drop_last: bool,
}

/// What steps have in common.
#[derive(Debug, Clone)]
pub(crate) enum Division {
    /// The number of meshes.
    Meshes(usize),
    /// About the number of vertices.
    Packed(Packing),
}

impl Division {
    /// The division into batches of a size.
    pub fn new(samples: &dyn SampleSource, size: BatchSize) -> Result<Self> {
        Ok(match size {
            BatchSize::Meshes(meshes) => Self::Meshes(meshes),
            BatchSize::Vertices(vertices) => Self::Packed(Packing::new(samples, vertices)?),
        })
    }
}

/// Steps with about as many vertices each.
#[derive(Debug, Clone)]
pub(crate) struct Packing {
    /// Vertices of each mesh.
    sizes: Arc<[usize]>,
    /// Steps of an epoch.
    steps: usize,
}

impl Packing {
    /// Steps of about `vertices` vertices.
    fn new(samples: &dyn SampleSource, vertices: usize) -> Result<Self> {
        let size = |index: usize| Ok(samples.extent(index)?.0);
        let meshes = (0..samples.len()).step_by(samples.versions().max(1));
        let sizes: Vec<usize> = meshes.map(size).collect::<Result<_>>()?;
        let steps = sizes.iter().sum::<usize>().div_ceil(vertices.max(1));
        Ok(Self { steps: steps.clamp(1, sizes.len().max(1)), sizes: sizes.into() })
    }

    /// Where the steps of an order of samples end. No step is empty.
    fn ends(&self, order: &[usize], versions: usize) -> Vec<usize> {
        let total: usize = self.sizes.iter().sum();
        let mut ends = Vec::with_capacity(self.steps);
        let (mut taken, mut vertices) = (0, 0);
        for step in 1..=self.steps {
            let (first, left) = (taken, self.steps - step);
            while taken + left < order.len() {
                let size = self.sizes[order[taken] / versions];
                // A mesh belongs to the step with its middle.
                let is_within = (2 * vertices + size) * self.steps <= 2 * step * total;
                if taken > first && left > 0 && !is_within {
                    break;
                }
                (taken, vertices) = (taken + 1, vertices + size);
            }
            ends.push(taken);
        }
        ends
    }
}

impl BatchPlan {
    /// Number of steps of an epoch.
    pub fn steps(&self) -> u64 {
        let steps = match &self.division {
            Division::Packed(packing) => packing.steps,
            Division::Meshes(meshes) if self.drop_last && self.samples >= *meshes => self.samples / meshes,
            Division::Meshes(meshes) => self.samples.div_ceil(*meshes),
        };
        steps as u64
    }

    /// Meshes of a step; the mean number, rounded up, if steps are packed.
    pub fn meshes_per_step(&self) -> usize {
        match &self.division {
            Division::Meshes(meshes) => *meshes,
            Division::Packed(packing) => self.samples.div_ceil(packing.steps),
        }
    }

    /// The visit of samples in an epoch; `None` if they are taken as they are.
    pub fn visit(&self, epoch: u64) -> Option<Visit> {
        self.shuffle.map(|seed| Visit { seed, epoch })
    }

    /// Samples of the first step of the first epoch.
    pub fn first(&self) -> Vec<usize> {
        self.divided(0).into_iter().next().unwrap_or_default()
    }

    /// The samples of each step of an epoch.
    pub fn divided(&self, epoch: u64) -> Vec<Vec<usize>> {
        let order = self.order(epoch);
        match &self.division {
            Division::Meshes(meshes) => order.chunks(*meshes).map(<[usize]>::to_vec).collect(),
            Division::Packed(packing) => {
                let mut start = 0;
                let ends = packing.ends(&order, self.versions).into_iter();
                ends.map(|end| order[std::mem::replace(&mut start, end)..end].to_vec()).collect()
            }
        }
    }

    /// The samples of an epoch in order: a version of each mesh.
    fn order(&self, epoch: u64) -> Vec<usize> {
        let Some(seed) = self.shuffle else { return (0..self.samples).map(|mesh| mesh * self.versions).collect() };
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(epoch);
        let mut order = shuffled(self.samples, &mut random);
        if self.versions > 1 {
            for mesh in &mut order {
                *mesh = *mesh * self.versions + random.random_range(0..self.versions);
            }
        }
        order
    }
}

/// A random permutation of `0..count`.
fn shuffled(count: usize, random: &mut ChaCha8Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for end in (1..count).rev() {
        order.swap(end, random.random_range(0..=end));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_has_all_samples_in_an_order_of_its_own() {
        let plan =
            BatchPlan { samples: 10, versions: 1, division: Division::Meshes(4), shuffle: Some(3), drop_last: false };
        assert_eq!(plan.steps(), 3);
        let dropping = BatchPlan { drop_last: true, ..plan.clone() };
        assert_eq!(dropping.steps(), 2);
        let (first, second) = (plan.order(0), plan.order(1));
        assert_ne!(first, second);
        assert_eq!(plan.order(1), second);
        let other = BatchPlan { shuffle: Some(4), ..plan.clone() };
        assert_ne!(other.order(0), first);
        for mut order in [first, second] {
            order.sort_unstable();
            assert!(order.iter().copied().eq(0..10));
        }
        let versions = BatchPlan { versions: 3, ..plan };
        let mut met = [false; 30];
        for epoch in 0..30 {
            let mut order = versions.order(epoch);
            order.iter().for_each(|&sample| met[sample] = true);
            order.sort_unstable();
            assert!(order.iter().map(|sample| sample / 3).eq(0..10));
        }
        assert_eq!(met, [true; 30]);
    }

    #[test]
    fn packed_steps_have_about_as_many_vertices() {
        let packed = |sizes: &[usize], versions: usize, vertices: usize| {
            let total: usize = sizes.iter().sum();
            BatchPlan {
                samples: sizes.len(),
                versions,
                division: Division::Packed(Packing {
                    sizes: sizes.into(),
                    steps: total.div_ceil(vertices).clamp(1, sizes.len()),
                }),
                shuffle: Some(1),
                drop_last: false,
            }
        };
        let sizes: Vec<usize> = (0..40).map(|index| 500 + 37 * (index * index % 23)).collect();
        let plan = packed(&sizes, 3, 5000);
        for epoch in 0..20 {
            let divided = plan.divided(epoch);
            assert_eq!(divided.len() as u64, plan.steps());
            assert_eq!(divided.concat(), plan.order(epoch));
            for step in divided {
                let vertices: usize = step.iter().map(|sample| sizes[sample / 3]).sum();
                assert!((3000..=7000).contains(&vertices), "{vertices}");
            }
        }
        assert_eq!(plan.first(), plan.divided(0)[0]);
        // A mesh that is larger than a step does not leave the others empty.
        for sizes in [&[100_000, 1, 1, 1][..], &[1, 1, 1, 100_000], &[7]] {
            let plan = packed(sizes, 1, 2);
            let divided = plan.divided(3);
            assert_eq!(divided.len() as u64, plan.steps());
            assert!(divided.iter().all(|step| !step.is_empty()));
            assert_eq!(divided.concat(), plan.order(3));
        }
    }
}
