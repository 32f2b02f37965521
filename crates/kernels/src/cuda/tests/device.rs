//! The device itself: optimiser steps, memory, errors.

use super::*;

#[test]
fn optimisers() {
    use crate::cuda::optimiser::{DeviceOptimiser, Parameter, Step};
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    let lengths = [5000, 1, 33, 0, 4096];
    let adam = |apart: bool, step: u64| Step::Adam {
        rate: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.1,
        apart,
        step,
    };
    let sgd = |_: u64| Step::Sgd { rate: 0.05, momentum: 0.9, weight_decay: 0.1 };
    type Rule<'a> = &'a dyn Fn(u64) -> Step;
    let rules: [(&str, Rule<'_>); 3] =
        [("adam", &|step| adam(false, step)), ("adam w", &|step| adam(true, step)), ("sgd", &sgd)];
    for (name, rule) in rules {
        let total: usize = lengths.iter().sum();
        let start = random(total, 1);
        let gradients: Vec<Vec<f32>> = (0..3).map(|step| random(total, 10 + step)).collect();
        let decays = |place: usize| place != 1;
        let average_rate = |step: usize| 1.0 / (1.0 + step as f64);
        let mut expected = wide(&start);
        let (mut first, mut second) = (vec![0.0; total], vec![0.0; total]);
        let mut average = vec![0.0; total];
        for (step, gradient) in gradients.iter().enumerate() {
            let mut place = 0;
            for (tensor, &length) in lengths.iter().enumerate() {
                for i in place..place + length {
                    let (w, g) = (expected[i], f64::from(gradient[i]));
                    let decay = if decays(tensor) { 0.1 } else { 0.0 };
                    let t = step as i32 + 1;
                    if name == "sgd" {
                        first[i] = 0.9 * first[i] + g + decay * w;
                        expected[i] = w - 0.05 * first[i];
                        continue;
                    }
                    let apart = name == "adam w";
                    let g = if apart { g } else { g + decay * w };
                    first[i] = 0.9 * first[i] + 0.1 * g;
                    second[i] = 0.999 * second[i] + 0.001 * g * g;
                    let m = first[i] / (1.0 - 0.9f64.powi(t));
                    let v: f64 = second[i] / (1.0 - 0.999f64.powi(t));
                    let shrunk = if apart { w - 0.01 * decay * w } else { w };
                    expected[i] = shrunk - 0.01 * m / (v.sqrt() + 1e-8);
                }
                place += length;
            }
            for (a, w) in average.iter_mut().zip(&expected) {
                *a += average_rate(step) * (w - *a);
            }
        }
        let states = [("values", &expected[..]), ("moments", &first), ("average", &average)];
        checks.check(name, states, |device| {
            let mut optimiser = DeviceOptimiser::new(device, &lengths, true).unwrap();
            let mut values: Vec<DeviceBuffer<f32>> = Vec::new();
            let mut place = 0;
            for length in lengths {
                values.push(device.upload(&start[place..place + length]).unwrap());
                place += length;
            }
            for (step, gradient) in gradients.iter().enumerate() {
                let gradient = device.upload(gradient).unwrap();
                let mut place = 0;
                let parameters: Vec<Parameter<'_>> = values
                    .iter_mut()
                    .enumerate()
                    .map(|(tensor, value)| {
                        let length = value.len();
                        place += length;
                        Parameter {
                            value: value.view_mut(),
                            gradient: gradient.view().slice(place - length..place),
                            decays: decays(tensor),
                        }
                    })
                    .collect();
                let rate = average_rate(step);
                let step = rule(step as u64 + 1);
                optimiser.prepare(device, step, rate, &parameters).unwrap();
                optimiser.run(device).unwrap();
            }
            let all: Vec<f32> = values.iter().flat_map(|value| value.to_vec(device).unwrap()).collect();
            let [moments, _, average] = optimiser.state().map(|values| {
                let mut read = vec![0.0f32; total];
                device.read(values, &mut read).unwrap();
                device.upload(&read).unwrap()
            });
            [device.upload(&all).unwrap(), moments, average]
        });
    }
    checks.finish("optimisers");
}

#[test]
fn memory_is_reused_and_too_much_is_told() {
    let Some(device) = device() else { return };
    let first = device.memory();
    for _ in 0..10 {
        let buffer: DeviceBuffer<f32> = device.zeros(1_000_000).unwrap();
        assert_eq!(buffer.len(), 1_000_000);
    }
    let after = device.memory();
    assert_eq!(after.allocations, first.allocations + 1);
    assert_eq!(after.live, first.live);
    assert!(after.peak >= 4_000_000);
    let error = device.buffer::<f32>(1 << 44).unwrap_err();
    assert!(matches!(error, CudaError::OutOfMemory { .. }), "{error}");
    println!("{error}");
    // The device goes on working.
    assert_eq!(device.upload(&[1u32, 2]).unwrap().to_vec(&device).unwrap(), [1, 2]);
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let Some(device) = device() else { return };
    let op = linear::Linear { inputs: 2, outputs: 2, bias: false };
    let (none, y) = (DeviceSlice::empty(), DeviceSliceMut::empty());
    let error = linear::Forward { op: &op, rows: 3, x: none, weight: none, bias: none, y }.launch(&device).unwrap_err();
    assert!(matches!(error, CudaError::Kernel(KernelError::Length { .. })));
}

#[test]
fn captures_survive_devices_that_come_and_go() {
    let Some(device) = device() else { return };
    let x = device.upload(&[1.0f32; 100]).unwrap();
    std::thread::scope(|scope| {
        let others = scope.spawn(|| (0..4).for_each(|_| drop(CudaDevice::new(0).unwrap())));
        let mut captures = 0;
        while captures < 20 || !others.is_finished() {
            let captured = device.capture(|| x.duplicate(&device)).unwrap();
            captured.replay().unwrap();
            assert_eq!(captured.output().to_vec(&device).unwrap(), [1.0; 100]);
            captures += 1;
        }
    });
}
