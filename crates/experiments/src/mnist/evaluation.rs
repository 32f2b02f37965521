//! Tests of trained networks on grids that they were not trained on.

use super::RunSettings;
use super::samples::{Grids, intensities};
use super::surface::{Part, Surface};
use crate::digits::{CLASSES, Digits};
use gemcnn_kernels::cross_entropy;
use gemcnn_nn::{Device, Levels, Module, NnError, Parameters, ProductMode, Tape, Var, Workspace};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::{Event, Observer};
use serde::{Deserialize, Serialize};

/// Digits in a batch.
const BATCH: usize = 128;

/// Result of a network on one test geometry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// The geometry.
    pub surface: Surface,
    /// Number of test digits.
    pub digits: usize,
    /// Number of wrong predictions.
    pub wrong: usize,
}

impl Test {
    /// Fraction of wrong predictions.
    pub fn error(&self) -> f64 {
        self.wrong as f64 / self.digits.max(1) as f64
    }
}

/// Comparison of a network on flat and on isometric grids, where its outputs should be equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Isometry {
    /// Number of digits compared.
    pub digits: usize,
    /// Number of digits whose predictions differ.
    pub different_answers: usize,
    /// Largest difference between two logits.
    pub largest_difference: f64,
    /// Largest absolute logit.
    pub largest_logit: f64,
}

/// A trained network, its device and the test digits.
pub(super) struct Evaluator<'e> {
    pub settings: &'e RunSettings,
    pub network: &'e dyn Module<f32>,
    pub parameters: &'e Parameters<f32>,
    pub device: &'e Device,
    pub digits: &'e Digits,
}

impl Evaluator<'_> {
    /// Tests on all geometries, and compares flat and isometric grids if both are among them. Products are
    /// in f32 on every device.
    pub fn evaluate(
        &self,
        surfaces: &[Surface],
        observer: &mut dyn Observer,
    ) -> Result<(Vec<Test>, Option<Isometry>), TaskError> {
        let mut workspace = Workspace::new(self.device.clone());
        let mode = workspace.product_mode();
        workspace.set_product_mode(ProductMode::F32);
        let result = self.evaluate_with(&mut workspace, surfaces, observer);
        workspace.set_product_mode(mode);
        result
    }

    fn evaluate_with(
        &self,
        workspace: &mut Workspace<f32>,
        surfaces: &[Surface],
        observer: &mut dyn Observer,
    ) -> Result<(Vec<Test>, Option<Isometry>), TaskError> {
        let mut tests = Vec::with_capacity(surfaces.len());
        let (mut flat, mut bent) = (None, None);
        for &surface in surfaces {
            let logits = self.logits(workspace, surface)?;
            let predictions = predictions(&logits)?;
            let labels = self.digits.labels().iter().map(|&label| u32::from(label));
            let test = Test {
                surface,
                digits: self.digits.len(),
                wrong: predictions.iter().zip(labels).filter(|(a, b)| *a != b).count(),
            };
            observer.observe(Event::Note(&format!(
                "tested on {surface}: {} of {} wrong, {:.2} %",
                test.wrong,
                test.digits,
                100.0 * test.error()
            )));
            tests.push(test);
            match surface {
                Surface::Flat => flat = Some(logits),
                Surface::Isometric => bent = Some(logits),
                Surface::Rough(_) => {}
            }
        }
        let isometry = match (flat, bent) {
            (Some(flat), Some(bent)) => Some(compare(&flat, &bent)?),
            _ => None,
        };
        Ok((tests, isometry))
    }

    /// The logits of all digits, one row for each. They are read after all work is queued.
    fn logits(&self, workspace: &mut Workspace<f32>, surface: Surface) -> Result<Vec<f32>, TaskError> {
        let grids = Grids::new(self.settings.grids.graphs(surface, Part::Test)?);
        let mut batches: Vec<Var<f32>> = Vec::new();
        for first in (0..self.digits.len()).step_by(BATCH) {
            let digits = self.digits.range(first..first + BATCH);
            let graphs = grids.batch(digits.len())?;
            let pixels = intensities(digits.pixels());
            batches.push(self.device.run(|| {
                let mut tape = Tape::inference(workspace, self.parameters);
                let x = tape.input(self.network.input().clone(), &pixels)?;
                self.network.forward(&mut tape, Levels::from(&*graphs), x)
            })?);
        }
        let mut logits = Vec::with_capacity(self.digits.len() * CLASSES);
        for batch in &batches {
            logits.extend_from_slice(&batch.values()?);
        }
        Ok(logits)
    }
}

/// The class with the largest logit in each row.
fn predictions(logits: &[f32]) -> Result<Vec<u32>, NnError> {
    let mut classes = vec![0; logits.len() / CLASSES];
    cross_entropy::predict(CLASSES, logits, &mut classes)?;
    Ok(classes)
}

/// Compares the logits of the same digits on two geometries.
fn compare(flat: &[f32], bent: &[f32]) -> Result<Isometry, NnError> {
    let [on_flat, on_bent] = [predictions(flat)?, predictions(bent)?];
    let largest =
        |numbers: &mut dyn Iterator<Item = f32>| numbers.fold(0.0, |largest: f64, x| largest.max(f64::from(x.abs())));
    Ok(Isometry {
        digits: on_flat.len(),
        different_answers: on_flat.iter().zip(&on_bent).filter(|(a, b)| a != b).count(),
        largest_difference: largest(&mut flat.iter().zip(bent).map(|(a, b)| a - b)),
        largest_logit: largest(&mut flat.iter().copied()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_and_logits_are_compared() {
        let mut flat = vec![0.0; 20];
        flat[5] = 2.0;
        flat[13] = 1.0;
        let mut bent = flat.clone();
        bent[14] = 1.5;
        assert_eq!(predictions(&flat).unwrap(), [5, 3]);
        let expected = Isometry { digits: 2, different_answers: 1, largest_difference: 1.5, largest_logit: 2.0 };
        assert_eq!(compare(&flat, &bent).unwrap(), expected);
    }
}
