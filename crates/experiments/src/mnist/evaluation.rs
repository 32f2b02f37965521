//! Trained networks on the grids they have not seen.

use super::slots::Slots;
use super::surface::{GridOptions, Part, Surface};
use super::{Event, Observer, RunSettings, score};
use crate::digits::Digits;
use gemcnn_nn::{Device, Network, Parameters, ProductMode, Workspace};
use gemcnn_tasks::TaskError;
use serde::{Deserialize, Serialize};

/// Most digits that go through the network together.
const BATCH: usize = 128;

/// How a network does on one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// The setting.
    pub surface: Surface,
    /// Digits tested with.
    pub digits: usize,
    /// Digits it got wrong.
    pub wrong: usize,
}

impl Test {
    /// Share of wrong answers.
    pub fn error(&self) -> f64 {
        self.wrong as f64 / self.digits.max(1) as f64
    }
}

/// How a network differs between the flat grid and bent ones, which to it should be the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Isometry {
    /// Digits compared.
    pub digits: usize,
    /// Digits whose answers differ.
    pub different_answers: usize,
    /// Largest difference of two logits.
    pub largest_difference: f64,
    /// Largest logit, for comparison.
    pub largest_logit: f64,
}

/// A network, and where it runs.
pub(super) struct Evaluator<'e> {
    pub settings: &'e RunSettings,
    pub network: &'e Network<f32>,
    pub parameters: &'e Parameters<f32>,
    pub device: &'e Device,
    pub digits: &'e Digits,
}

impl Evaluator<'_> {
    /// Tests on all settings, and compares flat and isometric grids if both are among them. Products
    /// are those of f32 on every device.
    pub fn evaluate(
        &self,
        surfaces: &[Surface],
        observer: &mut Observer<'_>,
    ) -> Result<(Vec<Test>, Option<Isometry>), TaskError> {
        let before = match self.device {
            Device::Cpu => None,
            Device::Cuda(cuda) => {
                let before = cuda.product_mode();
                cuda.set_product_mode(ProductMode::F32);
                Some((cuda, before))
            }
        };
        let result = self.evaluate_in_f32(surfaces, observer);
        if let Some((cuda, mode)) = before {
            cuda.set_product_mode(mode);
        }
        result
    }

    fn evaluate_in_f32(
        &self,
        surfaces: &[Surface],
        observer: &mut Observer<'_>,
    ) -> Result<(Vec<Test>, Option<Isometry>), TaskError> {
        let mut workspace = Workspace::new(self.device.clone());
        let mut tests = Vec::with_capacity(surfaces.len());
        let (mut flat, mut bent) = (None, None);
        for &surface in surfaces {
            let logits = self.logits(&mut workspace, surface)?;
            let test = Test {
                surface,
                digits: self.digits.len(),
                wrong: score::wrong(&logits, self.digits),
            };
            observer(Event::Test {
                settings: self.settings,
                test: &test,
            });
            tests.push(test);
            match surface {
                Surface::Flat => flat = Some(logits),
                Surface::Isometric => bent = Some(logits),
                Surface::Rough(_) => {}
            }
        }
        let isometry = flat.zip(bent).map(|(flat, bent)| compare(&flat, &bent));
        Ok((tests, isometry))
    }

    fn logits(
        &self,
        workspace: &mut Workspace<f32>,
        surface: Surface,
    ) -> Result<Vec<f32>, TaskError> {
        let grids: &GridOptions = &self.settings.grids;
        let count = BATCH.min(self.digits.len().max(1));
        let mut slots = Slots::new(&grids.graphs(surface, Part::Test)?, count)?;
        slots.logits(self.network, self.parameters, workspace, self.digits)
    }
}

/// Two sets of logits for the same digits.
fn compare(flat: &[f32], bent: &[f32]) -> Isometry {
    let pairs = || flat.iter().zip(bent);
    let answers = score::predictions(flat).zip(score::predictions(bent));
    let largest = |numbers: &mut dyn Iterator<Item = f32>| {
        numbers.fold(0.0, |largest: f64, x| largest.max(f64::from(x.abs())))
    };
    Isometry {
        digits: score::predictions(flat).count(),
        different_answers: answers.filter(|(a, b)| a != b).count(),
        largest_difference: largest(&mut pairs().map(|(a, b)| a - b)),
        largest_logit: largest(&mut flat.iter().copied()),
    }
}
