mod reference;

use super::*;
use crate::testing::random;

/// Both searches, of the fast version or the reference.
fn found(run: impl Fn(BestPairs<'_>), [m, n, width]: [usize; 3], integers: bool) -> (Vec<u32>, Vec<u32>) {
    // Small integers make many equal entries, and products without rounding.
    let rounded = |values: Vec<f32>| if integers { values.iter().map(|x| (2.0 * x).round()).collect() } else { values };
    let draw = |count, seed| rounded(random::<f32>(count, seed));
    let (a, b) = (draw(m * width, 1), draw(n * width, 2));
    let (cost_a, cost_b) = (draw(m, 3), draw(n, 4));
    let (mut for_a, mut for_b) = (vec![u32::MAX; m], vec![u32::MAX; n]);
    let (for_a_mut, for_b_mut) = (&mut for_a[..], &mut for_b[..]);
    run(BestPairs { width, a: &a, b: &b, cost_a: &cost_a, cost_b: &cost_b, for_a: for_a_mut, for_b: for_b_mut });
    (for_a, for_b)
}

const SIZES: [[usize; 3]; 6] = [[1, 1, 1], [3, 50, 2], [200, 15, 7], [193, 513, 16], [700, 1100, 9], [385, 512, 33]];

#[test]
fn one_product_finds_what_two_searches_find() {
    for size in SIZES {
        for integers in [true, false] {
            let fast = found(|pairs| pairs.on_host().unwrap(), size, integers);
            assert_eq!(fast, found(reference::best_pairs, size, integers), "{size:?}");
        }
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| found(|pairs| pairs.on_host().unwrap(), [1000, 900, 40], true))
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn wrong_lengths_and_empty_sides_are_refused() {
    let run = |a: &[f32], cost_b: &[f32], m: usize| {
        let (mut for_a, mut for_b) = (vec![0; m], vec![0; cost_b.len()]);
        let b = vec![0.0; 2 * cost_b.len()];
        let cost_a = vec![0.0; m];
        let (for_a, for_b) = (&mut for_a[..], &mut for_b[..]);
        BestPairs { width: 2, a, b: &b, cost_a: &cost_a, cost_b, for_a, for_b }.on_host()
    };
    assert_eq!(run(&[], &[], 0), Ok(()));
    assert!(matches!(run(&[0.0; 3], &[0.0], 2), Err(KernelError::Length { buffer: "a", .. })));
    assert!(matches!(run(&[0.0; 2], &[], 1), Err(KernelError::Setting { .. })));
}

#[test]
fn scores_that_are_not_numbers_are_never_best() {
    let (a, b) = ([f32::NAN, 1.0], [f32::NAN, 3.0]);
    let (mut for_a, mut for_b) = ([9; 2], [9; 2]);
    let cost = [0.0; 2];
    let (first, second) = (&mut for_a[..], &mut for_b[..]);
    BestPairs { width: 1, a: &a, b: &b, cost_a: &cost, cost_b: &cost, for_a: first, for_b: second }.on_host().unwrap();
    assert_eq!((for_a, for_b), ([0, 1], [0, 1]));
}
