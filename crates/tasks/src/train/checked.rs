//! Settings that were checked.

use std::ops::Deref;

/// Settings that were checked: [`RunConfig::checked`](super::RunConfig::checked) and
/// [`TrainingConfig::checked`](super::TrainingConfig::checked) make them. They cannot be changed; a changed copy has to be
/// checked again.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked<S>(pub(super) S);

impl<S> Deref for Checked<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}
