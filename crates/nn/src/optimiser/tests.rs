use super::*;
use crate::{ParameterId, Role};

fn one(value: f64) -> (Parameters<f64>, ParameterId, ParameterId) {
    let mut parameters = Parameters::new();
    let weight = parameters.add("weight", &[1], Role::Weight, vec![value]).unwrap();
    let bias = parameters.add("bias", &[1], Role::Offset, vec![value]).unwrap();
    parameters.add("mean", &[2], Role::Statistic, vec![value; 2]).unwrap();
    (parameters, weight, bias)
}

/// Values of weight and bias after each step with the given gradients.
fn run(method: Method, rate: f64, gradients: &[f64]) -> Vec<(f64, f64)> {
    let (mut parameters, weight, bias) = one(1.0);
    let mut optimiser = Optimiser::new(method, &parameters).unwrap();
    gradients
        .iter()
        .map(|&g| {
            parameters.get_mut(weight).gradient_mut()[0] = g;
            parameters.get_mut(bias).gradient_mut()[0] = g;
            optimiser.step(&mut parameters, rate).unwrap();
            let mean = parameters.find("mean").unwrap();
            assert_eq!(parameters.value(mean), [1.0; 2]);
            (parameters.value(weight)[0], parameters.value(bias)[0])
        })
        .collect()
}

fn assert_sequence(found: &[(f64, f64)], expected: &[(f64, f64)]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found.0 - expected.0).abs() < 1e-12, "{found:?} {expected:?}");
        assert!((found.1 - expected.1).abs() < 1e-12, "{found:?} {expected:?}");
    }
}

#[test]
fn sgd_by_hand() {
    let method = Method::Sgd { momentum: 0.5, weight_decay: 0.1 };
    // weight: m = 2.1, w = 0.79; m = 1.05 - 1 + 0.079 = 0.129, w = 0.7771.
    // bias:   m = 2,   w = 0.8;  m = 1 - 1 = 0,                w = 0.8.
    let found = run(method, 0.1, &[2.0, -1.0]);
    assert_sequence(&found, &[(0.79, 0.8), (0.7771, 0.8)]);
}

#[test]
fn adam_by_hand() {
    let method = Method::Adam { beta1: 0.5, beta2: 0.75, epsilon: 1e-12, weight_decay: 0.0 };
    // Step 1: m = 1, v = 1; m' = 2, v' = 4; w = 1 - 0.1.
    // Step 2 with g = -1: m = 0, v = 0.75 + 0.25 = 1; w stays.
    // Step 3 with g = 2: m = 1, v = 1.75; m' = 1/0.875, v' = 1.75/0.578125.
    let third = 0.9 - 0.1 * (1.0 / 0.875) / (1.75f64 / 0.578125).sqrt();
    let found = run(method, 0.1, &[2.0, -1.0, 2.0]);
    assert_sequence(&found, &[(0.9, 0.9), (0.9, 0.9), (third, third)]);
}

#[test]
fn weight_decay_is_for_weights_and_decoupled_in_adam_w() {
    let (beta1, beta2, epsilon, weight_decay) = (0.9, 0.999, 1e-15, 0.5);
    // The first Adam step is the rate times the sign of the gradient, whatever its size.
    let adam = Method::Adam { beta1, beta2, epsilon, weight_decay };
    assert_sequence(&run(adam, 0.1, &[-0.1]), &[(0.9, 1.1)]);
    let adam_w = Method::AdamW { beta1, beta2, epsilon, weight_decay };
    assert_sequence(&run(adam_w, 0.1, &[-0.1]), &[(1.0 - 0.05 + 0.1, 1.1)]);
}

#[test]
fn every_method_minimises_a_quadratic() {
    for (method, rate) in
        [(Method::sgd(0.0), 0.05), (Method::sgd(0.9), 0.01), (Method::adam(), 0.02), (Method::adam_w(0.0), 0.02)]
    {
        let mut parameters = Parameters::<f64>::new();
        let x = parameters.add("x", &[3], Role::Weight, vec![2.0, -1.0, 0.5]).unwrap();
        let mut optimiser = Optimiser::new(method, &parameters).unwrap();
        for _ in 0..3000 {
            let value = parameters.value(x).to_vec();
            let gradient = parameters.get_mut(x).gradient_mut();
            for (i, g) in gradient.iter_mut().enumerate() {
                *g = (i + 1) as f64 * (value[i] - i as f64);
            }
            optimiser.step(&mut parameters, rate).unwrap();
        }
        for (i, v) in parameters.value(x).iter().enumerate() {
            assert!((v - i as f64).abs() < 1e-6, "{method:?}: {v}");
        }
    }
}

#[test]
fn a_restored_optimiser_continues_bitwise() {
    for method in [Method::sgd(0.9), Method::adam(), Method::adam_w(0.1)] {
        let (mut parameters, weight, _) = one(1.0);
        let mut optimiser = Optimiser::with_average(method, 0.9, &parameters).unwrap();
        let step = |parameters: &mut Parameters<f64>, optimiser: &mut Optimiser<f64>| {
            let slope = parameters.value(weight)[0].sin();
            parameters.get_mut(weight).gradient_mut()[0] = slope;
            optimiser.step(parameters, 0.1).unwrap();
        };
        for _ in 0..3 {
            step(&mut parameters, &mut optimiser);
        }
        let mut archive = Archive::new();
        optimiser.store(&mut archive, "optimiser", &parameters).unwrap();
        let archive = Archive::from_bytes(&archive.to_bytes().unwrap()).unwrap();
        let mut again = Optimiser::load(&archive, "optimiser", &parameters).unwrap();
        let mut copy = parameters.clone();
        for _ in 0..3 {
            step(&mut parameters, &mut optimiser);
            step(&mut copy, &mut again);
        }
        assert_eq!(parameters.value(weight), copy.value(weight));
        let average = |optimiser: &Optimiser<f64>, parameters: &Parameters<f64>| {
            optimiser.averaged(parameters).unwrap().value(weight)[0]
        };
        assert_ne!(average(&optimiser, &parameters), parameters.value(weight)[0]);
        assert_eq!(average(&optimiser, &parameters), average(&again, &copy));
        assert_eq!(optimiser.steps(), again.steps());
    }
}

#[test]
fn averages_by_hand() {
    let (mut parameters, weight, bias) = one(1.0);
    let mut optimiser = Optimiser::with_average(Method::sgd(0.0), 0.15, &parameters).unwrap();
    let mean = parameters.find("mean").unwrap();
    let averaged = optimiser.averaged(&parameters).unwrap();
    assert_eq!(averaged.value(weight), [1.0], "before the first step");
    // Weights 0, -1, -2; shares of the new weight 1, 9/10 and 0.85 instead of 9/11.
    for (step, expected) in [0.0, -0.9, -1.835].into_iter().enumerate() {
        parameters.get_mut(weight).gradient_mut()[0] = 1.0;
        parameters.get_mut(mean).value_mut()[0] = step as f64;
        optimiser.step(&mut parameters, 1.0).unwrap();
        let averaged = optimiser.averaged(&parameters).unwrap();
        let found = averaged.value(weight)[0];
        assert!((found - expected).abs() < 1e-14, "{found} is not {expected}");
        assert_eq!(averaged.value(bias), [1.0]);
        assert_eq!(averaged.value(mean)[0], step as f64, "copied");
    }
    assert_eq!(parameters.value(weight), [-2.0]);
    assert!(Optimiser::with_average(Method::adam(), 1.0, &parameters).is_err());
}

#[test]
fn settings_out_of_range_and_other_parameters_are_refused() {
    let (mut parameters, ..) = one(1.0);
    assert!(Optimiser::new(Method::sgd(1.0), &parameters).is_err());
    assert!(Optimiser::new(Method::adam_w(-1.0), &parameters).is_err());
    let mut optimiser = Optimiser::new(Method::adam(), &parameters).unwrap();
    assert!(optimiser.step(&mut parameters, f64::NAN).is_err());
    assert!(optimiser.step(&mut Parameters::new(), 0.1).is_err());
}
