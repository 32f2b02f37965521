//! Maps without a network: signatures of the spectrum as descriptors, and signs of the first eigenvectors.

use crate::correspondence::Judged;
use crate::refine::{FunctionalMap, RefineOptions, Refined, maps_of, refine, refine_from};
use crate::{MatchError, Shape};
use gemcnn_mesh::features::wave_kernel_signatures;

/// Number of wave kernel signatures.
const SIGNATURES: usize = 32;
/// Number of eigenvectors after the constant one whose signs are tried.
const SIGNED: usize = 4;
/// Refinement of a choice of signs, before the best choices are refined to the end.
const COARSE: RefineOptions = RefineOptions { first: 8, step: 4, last: 20, alpha: 0.3 };
/// Number of choices that are refined to the end.
const KEPT: usize = 3;

/// Sets wave kernel signatures as descriptors.
pub(crate) fn describe(shape: &mut Shape) -> Result<(), MatchError> {
    let values = shape.operators().basis(0).map_or(Vec::new(), |basis| wave_kernel_signatures(basis, SIGNATURES));
    shape.set_descriptors(values.iter().map(|&value| value as f32).collect())
}

/// Maps between two shapes with [descriptors](describe): of the nearest descriptors, and of the first eigenvectors with
/// all signs, the best of these first.
pub(crate) fn candidates(a: &Shape, b: &Shape) -> Result<Vec<Refined>, MatchError> {
    let mut coarse = Vec::new();
    let size = SIGNED + 1;
    for signs in 0..1u32 << SIGNED {
        let mut values = vec![0.0; size * size];
        for place in 0..size {
            let is_negative = place > 0 && signs >> (place - 1) & 1 == 1;
            values[place * (size + 1)] = if is_negative { -1.0 } else { 1.0 };
        }
        let maps = maps_of(a, b, &FunctionalMap { size, values }, COARSE.alpha)?;
        let refined = refine_from(a, b, maps, &COARSE)?;
        let score = Judged::new(a, b, &refined, &refined.forward).measured.evidence.badness();
        coarse.push((score, refined));
    }
    coarse.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut found = vec![refine(a, b, &RefineOptions::default())?];
    for (_, Refined { forward, backward, .. }) in coarse.into_iter().take(KEPT) {
        found.push(refine_from(a, b, [forward, backward], &RefineOptions { first: 20, ..Default::default() })?);
    }
    Ok(found)
}
