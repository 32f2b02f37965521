//! The model of a run: current, best and final.

use super::super::checkpoint::WEIGHTS;
use super::super::metrics::Record;
use super::super::model;
use super::super::seal::{read_sealed, sealed};
use super::{State, Trainer};
use crate::models::ModelWithParameters;
use crate::{Result, TaskError};
use gemcnn_nn::{Archive, NnError};

impl Trainer<'_> {
    /// Writes the model of an epoch if `keep_best` is set and its evaluation is the best so far; true if it was
    /// written.
    pub(super) fn keep_best(&self, record: &Record) -> Result<bool> {
        let config = self.problem.config;
        let Some(error) = record.selection_error().filter(|_| config.keep_best) else { return Ok(false) };
        let kept = self.kept().and_then(Record::selection_error);
        let is_better = kept.is_none_or(|kept| error < kept);
        if is_better {
            (self.run).write_durably(&self.run.best(), &self.model(record.epoch)?)?;
        }
        Ok(is_better)
    }

    /// Record of the epoch whose model is `best.safetensors`.
    fn kept(&self) -> Option<&Record> {
        self.progress.history.iter().rfind(|record| record.best)
    }

    /// True if the final model is selected on a validation split.
    pub(super) fn selects(&self) -> bool {
        self.problem.config.keep_best && self.problem.validates
    }

    /// The selected model and its epoch, if there is one. None if a process that was killed has written that of a later
    /// epoch, which is not reached again yet.
    pub(super) fn best(&self) -> Result<Option<(u64, Archive)>> {
        let Some(record) = self.kept().filter(|_| self.selects()) else { return Ok(None) };
        let path = self.run.best();
        let read = || {
            let best = read_sealed(&path)?;
            Ok((best.json::<u64>(model::EPOCH)?, best))
        };
        let best =
            read().map_err(|error: NnError| TaskError::Model { path: path.clone(), source: Box::new(error.into()) })?;
        Ok(Some(best).filter(|(epoch, _)| *epoch == record.epoch))
    }

    /// The final model as the bytes of an archive: that of the best evaluation with `keep_best` and a validation
    /// part, otherwise the current one.
    ///
    /// # Errors
    /// A failed GPU operation, or a file that cannot be read.
    pub fn final_model(&self) -> Result<Vec<u8>> {
        match self.best()? {
            Some((_, mut best)) => {
                // The data may have moved since.
                best.set_json(model::CONFIG, self.problem.settings)?;
                Ok(sealed(best)?)
            }
            None => self.model(self.progress.epoch),
        }
    }

    /// Writes the model that the run would have if it ended now.
    ///
    /// # Errors
    /// A failed GPU operation, or a file that cannot be written.
    pub(super) fn write_model(&self) -> Result<()> {
        let bytes = self.final_model()?;
        self.run.write_durably(&self.run.model(), &bytes)
    }

    /// The current model as the bytes of a sealed archive.
    fn model(&self, epoch: u64) -> Result<Vec<u8>> {
        Ok(sealed(self.archive(epoch)?)?)
    }

    /// The current model as an archive, with averaged weights if there is an average.
    pub(super) fn archive(&self, epoch: u64) -> Result<Archive> {
        let mut archive = Archive::new();
        let State { network, parameters, optimiser, .. } = &self.state;
        optimiser.averaged(parameters)?.store(&mut archive, WEIGHTS)?;
        archive.set_json(model::EPOCH, &epoch)?;
        archive.set_json(model::OUTPUT, &network.output().to_string())?;
        archive.set_json(model::CONFIG, self.problem.settings)?;
        archive.set_json(model::PER, &self.problem.per)?;
        archive.set_json(model::CLASSES, &self.problem.classes)?;
        archive.set_json(model::SCALING, &self.progress.scaling)?;
        archive.set_json(model::TARGET_SCALING, &self.progress.target_scaling)?;
        archive.set_json(model::RANGES, &self.progress.ranges)?;
        Ok(archive)
    }

    /// The current network and its parameters, averaged if there is an average.
    ///
    /// # Errors
    /// A failed GPU operation.
    pub fn into_model(self) -> Result<ModelWithParameters> {
        let State { network, parameters, optimiser, .. } = self.state;
        let parameters = optimiser.averaged(&parameters)?.into_owned();
        Ok((network, parameters))
    }
}
