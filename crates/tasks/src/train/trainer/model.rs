//! The model of a run: current, best and final.

use super::super::checkpoint::WEIGHTS;
use super::super::metrics::{Record, Scores};
use super::super::model;
use super::super::seal::{read_sealed, sealed};
use super::{State, Trainer};
use crate::TaskError;
use gemcnn_nn::{Archive, Module, Parameters};

type NetworkAndParameters = (Box<dyn Module<f32>>, Parameters<f32>);

impl Trainer<'_> {
    /// Writes the model if `keep_best` is set and its evaluation is the best so far; true if it was written.
    pub(super) fn keep_best(&self, scores: Option<Scores>) -> Result<bool, TaskError> {
        let Some(scores) = scores.filter(|_| self.problem.config.keep_best) else {
            return Ok(false);
        };
        let kept = self.kept().and_then(|record| record.held_out);
        let is_better = kept.is_none_or(|kept| scores.selection_error() < kept.selection_error());
        if is_better {
            self.run.write_durably(&self.run.best(), &self.model()?)?;
        }
        Ok(is_better)
    }

    /// Record of the epoch whose model is `best.safetensors`.
    fn kept(&self) -> Option<&Record> {
        self.progress.history.iter().rfind(|record| record.best)
    }

    /// Record of the epoch whose model is final, if it was selected on a validation part.
    pub(super) fn selected(&self) -> Option<&Record> {
        let selects = self.problem.config.keep_best && self.problem.validates;
        self.kept().filter(|_| selects)
    }

    /// The final model as the bytes of an archive: that of the best evaluation with `keep_best` and a validation
    /// part, otherwise the current one.
    ///
    /// # Errors
    /// A failed GPU operation, or a file that cannot be read.
    pub fn final_model(&self) -> Result<Vec<u8>, TaskError> {
        match self.selected() {
            Some(_) => {
                let path = self.run.best();
                let best = read_sealed(&path).map_err(|error| TaskError::Model {
                    source: Box::new(error.into()),
                    path,
                })?;
                Ok(sealed(best)?)
            }
            None => self.model(),
        }
    }

    /// Writes the model that the run would have if it ended now.
    ///
    /// # Errors
    /// A failed GPU operation, or a file that cannot be written.
    pub fn write_model(&self) -> Result<(), TaskError> {
        let bytes = self.final_model()?;
        self.run.write_durably(&self.run.model(), &bytes)
    }

    /// The current model as the bytes of an archive, with averaged weights if there is an average.
    ///
    /// # Errors
    /// A failed GPU operation.
    fn model(&self) -> Result<Vec<u8>, TaskError> {
        let mut archive = Archive::new();
        let State {
            network,
            parameters,
            optimiser,
            ..
        } = &self.state;
        optimiser
            .averaged(parameters)?
            .store(&mut archive, WEIGHTS)?;
        archive.set_json(model::OUTPUT, &network.output().to_string())?;
        archive.set_json(model::CONFIG, self.problem.settings)?;
        archive.set_json(model::CLASSES, &self.problem.classes)?;
        archive.set_json(model::SCALING, &self.progress.scaling)?;
        archive.set_json(model::TARGET_SCALING, &self.progress.target_scaling)?;
        Ok(sealed(archive)?)
    }

    /// The current network and its parameters, averaged if there is an average.
    ///
    /// # Errors
    /// A failed GPU operation.
    pub fn into_model(self) -> Result<NetworkAndParameters, TaskError> {
        let State {
            network,
            parameters,
            optimiser,
            ..
        } = self.state;
        let parameters = optimiser.averaged(&parameters)?.into_owned();
        Ok((network, parameters))
    }
}
