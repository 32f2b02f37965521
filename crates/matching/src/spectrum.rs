//! Maps without a network: signatures of the spectrum as descriptors, and signs of the first eigenvectors.

use crate::correspondence::Judged;
use crate::refine::{FunctionalMap, RefineOptions, Refined, maps_of, refine, refine_from};
use crate::{MatchError, Shape};

/// Number of wave kernel signatures.
const SIGNATURES: usize = 32;
/// Number of eigenvectors after the constant one whose signs are tried.
const SIGNED: usize = 4;
/// Refinement of a choice of signs, before the best choices are refined to the end.
const COARSE: RefineOptions = RefineOptions { first: 8, step: 4, last: 20, alpha: 0.3 };
/// Number of choices that are refined further.
const KEPT: usize = 4;
/// Refinement of these.
const FINER: RefineOptions = RefineOptions { first: 20, step: 10, last: 60, alpha: 1.0 };
/// Refinement of the best.
const LAST: RefineOptions = RefineOptions { first: 60, step: 10, last: 150, alpha: 1.0 };
/// Largest [badness](crate::Evidence) of a map to learn from. Above it are maps that exchange front and back, left and right at
/// the same time, which keep the orientation: on synthetic bodies, their badness is 0.18 or more.
pub(crate) const TRUSTED: f64 = 0.15;

/// Sets wave kernel signatures as descriptors.
pub(crate) fn describe(shape: &mut Shape) -> Result<(), MatchError> {
    shape.set_signatures(SIGNATURES)
}

/// The maps of the nearest descriptors and those of the first eigenvectors with all signs: the best of them. Both shapes
/// have [descriptors](describe).
pub(crate) fn best(a: &Shape, b: &Shape) -> Result<Refined, MatchError> {
    let mut coarse = Vec::new();
    let size = SIGNED + 1;
    for signs in 0..1u32 << SIGNED {
        let mut values = vec![0.0; size * size];
        for place in 0..size {
            let is_negative = place > 0 && signs >> (place - 1) & 1 == 1;
            values[place * (size + 1)] = if is_negative { -1.0 } else { 1.0 };
        }
        let maps = maps_of(a, b, &FunctionalMap { size, values }, COARSE.alpha)?;
        coarse.push(with_badness(a, b, refine_from(a, b, maps, &COARSE)?));
    }
    coarse.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut best = with_badness(a, b, refine(a, b, &RefineOptions { last: FINER.last, ..Default::default() })?);
    for (_, Refined { forward, backward, .. }) in coarse.into_iter().take(KEPT) {
        let finer = with_badness(a, b, refine_from(a, b, [forward, backward], &FINER)?);
        if finer.0 < best.0 {
            best = finer;
        }
    }
    let Refined { forward, backward, .. } = best.1;
    refine_from(a, b, [forward, backward], &LAST)
}

fn with_badness(a: &Shape, b: &Shape, refined: Refined) -> (f64, Refined) {
    (Judged::new(a, b, &refined, &refined.forward).measured.evidence.badness(), refined)
}
