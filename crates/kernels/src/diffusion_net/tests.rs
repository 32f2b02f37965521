use super::*;
use crate::dropout::{self, Dropout, DropoutUnit};
use crate::irrep::{self, Grouping};
use crate::linear::{self, Linear};
use crate::self_map::{self, SelfMap};
use crate::testing::{check_close, check_gradient, check_threads, dot, random};
use crate::{Activation, activation, diffusion};

/// Unequal meshes, one without vertices, and more rows than a tile and a partial sum have.
const MESHES: [u32; 5] = [0, 131, 131, 132, 300];
const STREAMS: [Stream; 2] = [Stream { seed: 5, step: 1 }, Stream { seed: 6, step: 1 }];

fn operators() -> [DiffusionNet; 2] {
    [(5, vec![9, 2], 0.4), (4, vec![7], 0.0)].map(|(channels, columns, dropout)| DiffusionNet {
        channels,
        columns,
        dropout,
    })
}

struct Case<T> {
    mass: Vec<T>,
    bases: Vec<T>,
    eigenvalues: Vec<T>,
    weights: Weights<Vec<T>>,
    x: Vec<T>,
    dy: Vec<T>,
}

impl<T: Real> Case<T> {
    fn new(op: &DiffusionNet) -> Self {
        let rows = MESHES[4] as usize;
        let positive = |count, seed| -> Vec<T> {
            let values: Vec<T> = random(count, seed);
            values.into_iter().map(|value| value.abs()).collect()
        };
        let bases: Vec<T> = random(rows * op.diffusion().basis_width(), 2);
        let mut seed = 20;
        Self {
            mass: positive(rows, 1),
            bases: bases.into_iter().map(|value| T::of(0.2) * value).collect(),
            eigenvalues: positive(4 * op.columns.iter().sum::<usize>(), 3),
            weights: op.lengths().map(|(_, length)| {
                seed += 1;
                random(length, seed)
            }),
            x: random(rows * op.channels, 6),
            dy: random(rows * op.channels, 7),
        }
    }

    fn spectra(&self) -> Spectra<&[T]> {
        Spectra { mass: &self.mass, bases: &self.bases, eigenvalues: &self.eigenvalues, packed: &[] }
    }

    fn weights(&self) -> Weights<&[T]> {
        self.weights.each_ref().map(|values| &values[..])
    }

    /// Output, and what is saved.
    fn forward(&self, op: &DiffusionNet) -> (Vec<T>, Saved<Vec<T>>) {
        let mut y = vec![T::nan(); self.x.len()];
        let lengths = op.saved(MESHES[4] as usize, 4);
        let saved = lengths.try_map(|length| Ok::<_, KernelError>(vec![T::nan(); length]));
        let mut saved = saved.unwrap();
        forward(
            op,
            &MESHES,
            self.spectra(),
            self.weights(),
            (op.dropout > 0.0).then_some(STREAMS),
            &self.x,
            &mut y,
            saved.each_mut().map(|values| &mut values[..]),
            &mut Scratch::new(),
        )
        .unwrap();
        (y, saved)
    }

    /// Gradients of the input and of the parameters, which are added to ones.
    fn backward(&self, op: &DiffusionNet) -> (Vec<T>, Weights<Vec<T>>) {
        let (_, mut saved) = self.forward(op);
        let mut dx = vec![T::nan(); self.x.len()];
        let mut gradients = op.lengths().map(|(_, length)| vec![T::one(); length]).into_array();
        let each: [&mut [T]; 10] = gradients.each_mut().map(|values| &mut values[..]);
        backward(
            op,
            &MESHES,
            op.dropout > 0.0,
            self.spectra(),
            self.weights(),
            saved.each_mut().map(|values| &mut values[..]),
            &self.dy,
            Some(&mut dx),
            Weights::from_array(each),
            &mut Scratch::new(),
        )
        .unwrap();
        (dx, Weights::from_array(gradients))
    }
}

/// The block as a composition of operators.
fn composed(op: &DiffusionNet, case: &Case<f64>) -> Vec<f64> {
    let (rows, c, w) = (MESHES[4] as usize, op.channels, case.weights());
    let settings = op.diffusion();
    let mut diffused = vec![0.0; rows * 3 * c];
    let mut saved = vec![0.0; settings.saved_count(4)];
    let (mesh_offsets, spectra, Filters { log_times, bands }) = (&MESHES[..], case.spectra(), w.filters());
    let (x, y, saved) = (&case.x[..], &mut diffused[..], &mut saved[..]);
    diffusion::Forward { op: &settings, mesh_offsets, spectra, log_times, bands, x, y, saved }.on_host().unwrap();
    let take = |row: &[f64], from: usize, count: usize| row[from..from + count].to_vec();
    let rows_of = |from, count| -> Vec<f64> { diffused.chunks(3 * c).flat_map(|row| take(row, from, count)).collect() };
    let (d, g) = (rows_of(0, c), rows_of(c, 2 * c));
    let vectors = FeatureType::new(&[0, c]);
    let map = SelfMap { input: vectors.clone(), output: vectors.clone(), bias: false };
    let mut mapped = vec![0.0; g.len()];
    self_map::Forward { op: &map, rows, x: &g[..], weight: w.product, bias: &[][..], y: &mut mapped[..] }
        .on_host()
        .unwrap();
    let mut products = vec![0.0; rows * c];
    let (features, grouping, y) = (&vectors, Grouping::Irreps, &mut products[..]);
    irrep::Dot { features, grouping, rows, a: &g[..], b: &mapped[..], y }.on_host().unwrap();
    let mut p = vec![0.0; rows * c];
    activation::Forward { activation: &Activation::Tanh, x: &products[..], y: &mut p[..] }.on_host().unwrap();
    let layer = |x: &[f64], weight: &[f64], bias: &[f64]| {
        let map = Linear { inputs: weight.len() / c, outputs: c, bias: !bias.is_empty() };
        let mut y = vec![0.0; rows * c];
        linear::Forward { op: &map, rows, x, weight, bias, y: &mut y[..] }.on_host().unwrap();
        y
    };
    let dropped = |x: Vec<f64>, stream| {
        let kind = FeatureType::scalars(c);
        let unit = DropoutUnit::Irrep;
        let config = Dropout { kind, unit, probability: op.dropout };
        let mut relu = vec![0.0; x.len()];
        activation::Forward { activation: &Activation::Relu, x: &x[..], y: &mut relu[..] }.on_host().unwrap();
        if op.dropout == 0.0 {
            return relu;
        }
        let mut y = vec![0.0; x.len()];
        dropout::DropUnits { op: &config, rows, stream, x: &relu[..], y: &mut y[..] }.on_host().unwrap();
        y
    };
    let both: Vec<f64> = (0..rows).flat_map(|row| [take(&case.x, row * c, c), take(&d, row * c, c)].concat()).collect();
    let scalars = layer(&both, w.scalars, w.scalars_bias);
    let invariants = layer(&p, w.invariants, &[]);
    let sum = scalars.iter().zip(&invariants).map(|(a, b)| a + b).collect();
    let h = dropped(sum, STREAMS[0]);
    let h = dropped(layer(&h, w.hidden, w.hidden_bias), STREAMS[1]);
    let update = layer(&h, w.update, w.update_bias);
    case.x.iter().zip(&update).map(|(x, update)| x + update).collect()
}

#[test]
fn the_block_equals_the_composition_of_operators() {
    for op in operators() {
        let expected = composed(&op, &Case::new(&op));
        check_close(&Case::<f64>::new(&op).forward(&op).0, &expected, 1e-12, "f64");
        let narrow: Vec<f32> = expected.iter().map(|&value| value as f32).collect();
        check_close(&Case::<f32>::new(&op).forward(&op).0, &narrow, 2e-5, "f32");
    }
}

#[test]
fn gradients_equal_finite_differences() {
    for op in operators() {
        let case = Case::<f64>::new(&op);
        let (dx, gradients) = case.backward(&op);
        let loss = |changed: &Case<f64>| dot(&changed.forward(&op).0, &case.dy);
        check_gradient(&case.x, &dx, |x| {
            let x = x.to_vec();
            loss(&Case { x, ..Case::new(&op) })
        });
        for (place, gradient) in gradients.into_array().into_iter().enumerate() {
            let gradient: Vec<f64> = gradient.iter().map(|d| d - 1.0).collect();
            let values = case.weights().into_array()[place];
            check_gradient(values, &gradient, |values| {
                let mut changed = Case::new(&op);
                let mut all = changed.weights.into_array();
                all[place] = values.to_vec();
                changed.weights = Weights::from_array(all);
                loss(&changed)
            });
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let op = &operators()[0];
    check_threads(|| {
        let case = Case::<f32>::new(op);
        let (dx, gradients) = case.backward(op);
        [vec![case.forward(op).0, dx], gradients.into_array().into()].concat().concat()
    });
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let op = &operators()[1];
    let mut case = Case::<f64>::new(op);
    case.weights.hidden.pop();
    let mut y = vec![0.0; case.x.len()];
    let saved = op.saved(300, 4).try_map(|length| Ok::<_, KernelError>(vec![0.0; length]));
    let error = forward(
        op,
        &MESHES,
        case.spectra(),
        case.weights(),
        None,
        &case.x,
        &mut y,
        saved.unwrap().each_mut().map(|values| &mut values[..]),
        &mut Scratch::new(),
    );
    assert!(matches!(error, Err(KernelError::Length { buffer: "hidden", .. })));
}
