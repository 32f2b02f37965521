use crate::bodies::{Body, mean};
use gemcnn_matching::{MatchError, RefineOptions, Refined, refine};

fn pair(noise: f64) -> (Body, Body, Refined) {
    let (a, b) = (Body::remeshed(1, 700, false), Body::remeshed(2, 600, true));
    let (shape_a, shape_b) = (a.shape(noise, 1), b.shape(noise, 2));
    let refined = refine(&shape_a, &shape_b, &RefineOptions::default()).unwrap();
    (a, b, refined)
}

#[test]
fn noisy_descriptors_are_refined_to_the_true_map() {
    let (a, b, refined) = pair(1.0);
    let best = mean(&a.errors(&b, &a.truth(&b)));
    let (forward, backward) = (a.errors(&b, &refined.forward), b.errors(&a, &refined.backward));
    let start =
        refine(&a.shape(1.0, 1), &b.shape(1.0, 2), &RefineOptions { last: 1, alpha: 1e6, ..Default::default() });
    let start = mean(&a.errors(&b, &start.unwrap().forward));
    eprintln!("start {start}, forward {}, backward {}, best {best}", mean(&forward), mean(&backward));
    assert!(start > 3.0 * mean(&forward));
    for errors in [forward, backward] {
        assert!(mean(&errors) < best + 0.02, "{} against {best}", mean(&errors));
        assert!(errors.iter().all(|&error| error < 0.3));
    }
    assert_eq!(refined.functional_map.size, 150);
}

#[test]
fn threads_change_no_bit() {
    let (a, b) = (Body::remeshed(3, 600, false), Body::remeshed(4, 700, true));
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| refine(&a.shape(1.0, 1), &b.shape(1.0, 2), &RefineOptions::default()).unwrap())
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn descriptors_are_needed_on_both_sides() {
    let body = Body::remeshed(1, 600, false);
    let with = body.shape(0.0, 1);
    let mut other = with.clone();
    other.set_descriptors(vec![1.0; body.mesh.vertex_count()]).unwrap();
    let refused = refine(&with, &other, &RefineOptions::default()).unwrap_err();
    assert_eq!(refused, MatchError::DescriptorWidths { a: 32, b: 1 });
}
