//! Features on a tape.

use crate::error::{check_size, expect_scalars};
use crate::{NnError, Result, Storage};
use gemcnn_kernels::{FeatureType, Real, Resolve, View};
use std::borrow::Cow;
use std::sync::Arc;

/// Features on a tape: rows of one [`FeatureType`].
#[derive(Debug, Clone)]
pub struct Var<T: Real> {
    kind: FeatureType,
    rows: usize,
    value: Arc<Storage<T>>,
    /// Operator that computed it; `None` for data and in inference.
    node: Option<NodeId>,
}

impl<T: Real> Var<T> {
    /// The output of an operator: `rows` rows of type `kind`.
    pub fn new(kind: FeatureType, rows: usize, value: impl Into<Arc<Storage<T>>>) -> Self {
        Self { kind, rows, value: value.into(), node: None }
    }

    /// Type of each row.
    pub fn kind(&self) -> &FeatureType {
        &self.kind
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of values: rows times the dimension of the type.
    pub fn values_len(&self) -> usize {
        self.value.len()
    }

    /// The values, to be read by an operator.
    pub fn view(&self) -> View<'_, T> {
        self.value.view()
    }

    /// The shared buffer; its values can be changed by `Arc::get_mut` if nobody else holds it.
    pub fn into_storage(self) -> Arc<Storage<T>> {
        self.value
    }

    /// The values on the host, row after row. Values of a GPU are copied, after all queued work.
    pub fn values(&self) -> Result<Cow<'_, [T]>> {
        self.value.read()
    }

    /// The values on the host without a copy.
    ///
    /// # Errors
    /// Features on a GPU.
    pub fn host(&self) -> Result<&[T]> {
        Ok(self.view().host()?)
    }

    /// The operator that computed it.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// The same features as the output of an operator.
    pub(crate) fn with_node(self, node: NodeId) -> Self {
        Self { node: Some(node), ..self }
    }

    /// The same numbers as scalars. Only maps that are not equivariant may do this.
    pub fn into_scalars(self) -> Self {
        Self { kind: FeatureType::scalars(self.kind.dimension()), ..self }
    }

    /// The same numbers as features of another type of the same dimension: the inverse of
    /// [`into_scalars`](Self::into_scalars), for maps that are equivariant as a whole, such as a linear map of
    /// features in the frame of an edge.
    ///
    /// # Errors
    /// [`NnError::Size`] for a type of another dimension.
    pub fn with_kind(self, kind: FeatureType) -> Result<Self> {
        check_size("dimension of the type", self.kind.dimension(), kind.dimension())?;
        Ok(Self { kind, ..self })
    }

    /// The same scalars in another number of rows. Rows follow each other in memory, so `n k` rows of `c` scalars are
    /// `n` rows of `k c`.
    ///
    /// # Errors
    /// [`NnError::Type`] for features that are not scalars, [`NnError::Size`] for a number of rows that does not divide
    /// them.
    pub fn with_rows(self, rows: usize) -> Result<Self> {
        self.expect_scalars("features in another number of rows")?;
        let count = self.values_len();
        let width = count / rows.max(1);
        check_size("values of whole rows", rows * width, count)?;
        Ok(Self { kind: FeatureType::scalars(width), rows, ..self })
    }

    /// Checks the type of the features.
    ///
    /// # Errors
    /// [`NnError::Type`] with `what`, the expected and the found type.
    pub fn expect_kind(&self, what: &str, expected: &FeatureType) -> Result<()> {
        if self.kind == *expected {
            Ok(())
        } else {
            Err(NnError::Type { what: what.into(), expected: expected.clone(), found: self.kind.clone() })
        }
    }

    /// Checks that all features are of order 0.
    ///
    /// # Errors
    /// [`NnError::Type`] with `what` and the found type.
    pub fn expect_scalars(&self, what: &str) -> Result<()> {
        expect_scalars(what, &self.kind)
    }

    /// Checks the number of rows.
    ///
    /// # Errors
    /// [`NnError::Size`] with `what` and both numbers.
    pub fn expect_rows(&self, what: &str, expected: usize) -> Result<()> {
        check_size(format!("rows of {what}"), expected, self.rows)
    }
}

/// A node of one tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId {
    pub tape: u64,
    pub index: usize,
}
