//! Sparse incidences with transport, such as faces and their vertices, in both directions.
//!
//! An incidence relates rows (faces, say) to columns (their vertices). Every entry `(r, c)` may carry an angle
//! `a_rc`, the rotation from the frame of `c` to the frame of `r`; without angles all frames agree, as for
//! scalars. With the number of entries of a row `n_r` and of a column `n_c`, the two maps and their adjoints are
//!
//! ```text
//! to rows:     y_r = s(n_r) sum_c w_rc rho(a_rc) x_c       dx_c = sum_r s(n_r) w_rc rho(-a_rc) dy_r
//! to columns:  y_c = s(n_c) sum_r w_rc rho(-a_rc) x_r      dx_r = sum_c s(n_c) w_rc rho(a_rc) dy_c
//! ```
//!
//! `w_rc` are optional weights of the entries, 1 by default. `s` is that of an [`Aggregation`]. Each map has its own
//! normalisation, so that a mean is a mean in both directions. All four are [`Sum`], a gather over one of two lists of the
//! entries, without atomics. A row or column without entries gets zeros. Nothing is saved for the backward pass.
//!
//! [`Mix`] is the sum to columns with several weights for every row, of an incidence without angles and weights:
//!
//! ```text
//! y_c[m] = s(n_c) sum_r w_r[m] x_r
//! dw_r[m] = sum_c s(n_c) <dy_c[m], x_r>        dx_r = sum_c s(n_c) sum_m w_r[m] dy_c[m]
//! ```
//!
//! The outer products `w_r x_r`, of which it is the sum, are never stored. Only the inputs are needed in the backward pass.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::arguments::{arguments, kinds};
use crate::real::compiled;
use crate::{Aggregation, FeatureType, KernelError, Real};
use std::ops::Range;

kinds! {
    /// The incidence of a batch.
    Incidence = &'a IncidenceArrays<T>, &'a cuda::DeviceIncidence;
}

const OPERATOR: &str = "incidence";

/// The parts that [`IncidenceArrays`] are made of: the incidence of one mesh.
#[derive(Debug, Clone, Copy)]
pub struct IncidenceParts<'a> {
    /// Number of columns.
    pub columns: usize,
    /// Start of each row in `indices`, and the number of entries at the end.
    pub offsets: &'a [u32],
    /// Column of every entry.
    pub indices: &'a [u32],
    /// Rotation from the frame of the column to the frame of the row of every entry; `None` for zeros.
    pub angles: Option<&'a [f64]>,
    /// Weight of every entry; `None` for ones.
    pub weights: Option<&'a [f64]>,
}

impl<'a> IncidenceParts<'a> {
    /// The faces of a mesh with `vertices` vertices: a row for each face, a column for each vertex. Corners of
    /// face `f` are `indices[offsets[f]..offsets[f + 1]]`.
    pub fn faces(vertices: usize, offsets: &'a [u32], indices: &'a [u32]) -> Self {
        Self { columns: vertices, offsets, indices, angles: None, weights: None }
    }

    fn check(&self) -> Result<(), String> {
        let entries = self.indices.len();
        let Some((&first, &last)) = self.offsets.first().zip(self.offsets.last()) else {
            return Err("there are no row offsets".into());
        };
        if first != 0 || last as usize != entries || !self.offsets.is_sorted() {
            return Err(format!("row offsets do not rise from 0 to {entries}"));
        }
        let columns = self.columns;
        if let Some(entry) = self.indices.iter().position(|&c| c as usize >= columns) {
            let column = self.indices[entry];
            return Err(format!("entry {entry} names column {column} of {columns}"));
        }
        for (what, values) in [("angle", self.angles), ("weight", self.weights)] {
            let Some(values) = values else { continue };
            if values.len() != entries {
                return Err(format!("{} {what}s for {entries} entries", values.len()));
            }
            if let Some(entry) = values.iter().position(|value| !value.is_finite()) {
                return Err(format!("the {what} of entry {entry} is not finite"));
            }
        }
        Ok(())
    }
}

/// An incidence, or those of a batch of meshes as a disjoint union, in compressed rows and columns.
#[derive(Debug, Clone, PartialEq)]
pub struct IncidenceArrays<T> {
    rows: Side,
    columns: Side,
    /// Place among the entries in the order of rows of every entry in the order of columns.
    places: Vec<u32>,
    /// `(cos, sin)` of the angle of every entry in the order of rows; empty without angles.
    phases: Vec<[T; 2]>,
    /// Weight of every entry in the order of rows; empty without weights.
    weights: Vec<T>,
}

/// The entries of every row, or of every column.
#[derive(Debug, Clone, PartialEq)]
struct Side {
    offsets: Vec<u32>,
    /// Column, or row, of every entry.
    others: Vec<u32>,
}

impl Side {
    fn entries(&self, index: usize) -> Range<usize> {
        self.offsets[index] as usize..self.offsets[index + 1] as usize
    }

    fn count(&self) -> usize {
        self.offsets.len() - 1
    }
}

impl<T: Real> IncidenceArrays<T> {
    /// Joins the incidences of several meshes, rows and columns of each after those of the one before.
    ///
    /// ```
    /// use gemcnn_kernels::Aggregation;
    /// use gemcnn_kernels::incidence::{IncidenceArrays, IncidenceParts, Normalise, Sum, Target};
    /// // Two triangles that share an edge; the value of a face is the mean of its corners.
    /// let faces = IncidenceParts::faces(4, &[0, 3, 6], &[0, 1, 2, 2, 1, 3]);
    /// let incidence = IncidenceArrays::union(&[faces])?;
    /// let (features, x, mut y) = ("1x0".parse()?, [0.0, 3.0, 6.0, 9.0], [0.0f64; 2]);
    /// let (aggregation, target, normalise) = (Aggregation::Mean, Target::Rows, Normalise::Target);
    /// Sum { features: &features, aggregation, target, normalise, incidence: &incidence, x: &x[..], y: &mut y[..] }.on_host()?;
    /// assert!((y[0] - 3.0).abs() < 1e-12 && (y[1] - 6.0).abs() < 1e-12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn union(meshes: &[IncidenceParts<'_>]) -> Result<Self, KernelError> {
        compiled!(IncidenceArrays::union_of as fn(&[IncidenceParts<'_>]) -> Result<IncidenceArrays<T>, KernelError>)(
            meshes,
        )
    }

    fn union_of(meshes: &[IncidenceParts<'_>]) -> Result<Self, KernelError> {
        let total = |count: fn(&IncidenceParts<'_>) -> usize| meshes.iter().map(count).sum::<usize>();
        let (entries, columns) = (total(|mesh| mesh.indices.len()), total(|mesh| mesh.columns));
        let rows = total(|mesh| mesh.offsets.len());
        if entries.max(columns).max(rows) >= u32::MAX as usize {
            return Err(KernelError::Graph {
                problem: format!(
                    "an incidence of {rows} rows and {columns} columns with {entries} entries is too large for 32-bit indices"
                ),
            });
        }
        let mut rows = Side { offsets: vec![0], others: Vec::with_capacity(entries) };
        let (mut phases, mut weights, mut column) = (Vec::new(), Vec::new(), 0);
        for (index, mesh) in meshes.iter().enumerate() {
            mesh.check()
                .map_err(|problem| KernelError::Graph { problem: format!("incidence of mesh {index}: {problem}") })?;
            let entry = rows.others.len() as u32;
            let offsets = mesh.offsets[1..].iter().map(|offset| offset + entry);
            rows.offsets.extend(offsets);
            rows.others.extend(mesh.indices.iter().map(|c| c + column));
            column += mesh.columns as u32;
            if meshes.iter().any(|mesh| mesh.angles.is_some()) {
                let angle = |entry: usize| mesh.angles.map_or(0.0, |angles| angles[entry]);
                let phase = |angle: f64| [T::of(angle.cos()), T::of(angle.sin())];
                phases.extend((0..mesh.indices.len()).map(|entry| phase(angle(entry))));
            }
            if meshes.iter().any(|mesh| mesh.weights.is_some()) {
                let weight = |entry: usize| mesh.weights.map_or(1.0, |weights| weights[entry]);
                weights.extend((0..mesh.indices.len()).map(|entry| T::of(weight(entry))));
            }
        }
        let (columns, places) = transposed(&rows, columns);
        Ok(Self { rows, columns, places, phases, weights })
    }

    /// Start of each row among the entries, with their number at the end, and the column of every entry.
    pub fn entries(&self) -> (&[u32], &[u32]) {
        (&self.rows.offsets, &self.rows.others)
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.rows.count()
    }

    /// Number of columns.
    pub fn column_count(&self) -> usize {
        self.columns.count()
    }

    /// Number of entries.
    pub fn entry_count(&self) -> usize {
        self.places.len()
    }

    /// Number of rows or of columns.
    pub fn count(&self, target: Target) -> usize {
        match target {
            Target::Rows => self.row_count(),
            Target::Columns => self.column_count(),
        }
    }

    /// True if entries carry only their places.
    fn is_plain(&self) -> bool {
        self.phases.is_empty() && self.weights.is_empty()
    }
}

/// Where sums go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To rows, from columns.
    Rows,
    /// To columns, from rows.
    Columns,
}

impl Target {
    /// The other end of the entries.
    pub fn other(self) -> Self {
        match self {
            Self::Rows => Self::Columns,
            Self::Columns => Self::Rows,
        }
    }
}

/// Whose number of entries a term is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalise {
    /// That of the row or column that the term is added to.
    Target,
    /// That of the row or column that the term comes from, as in gradients.
    Source,
}

/// Sums of scalars with several weights for every row of an incidence without angles and weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mixture {
    /// Scale of the sums.
    pub aggregation: Aggregation,
    /// Number of weights of a row.
    pub weights: usize,
    /// Number of scalars of a row.
    pub channels: usize,
}

impl Mixture {
    /// Numbers of a column of the result: the channels of the first weight, then those of the second, and so on.
    pub fn outputs(&self) -> usize {
        self.weights * self.channels
    }
}

fn check_plain(is_plain: bool) -> Result<(), KernelError> {
    match is_plain {
        true => Ok(()),
        false => Err(KernelError::Setting {
            operator: OPERATOR,
            problem: "a mixture takes an incidence without angles and weights".into(),
        }),
    }
}

arguments! {
    /// Sums over the entries of each row or column, the target, of the features `x` at the other end, transported along the
    /// angles. The gradient of a sum is a sum to the other end with the other [`Normalise`].
    Sum = sum(OPERATOR) {
        features: &'a FeatureType, aggregation: Aggregation, target: Target, normalise: Normalise;
        incidence: Incidence,
        x: read[incidence.count(target.other()), features.dimension()],
        y: write[incidence.count(target), features.dimension()],
    }

    /// Sums over the rows of each column, with several weights for every row.
    Mix = mix(OPERATOR) {
        op: &'a Mixture;
        incidence: Incidence,
        x: read[incidence.row_count(), op.channels],
        w: read[incidence.row_count(), op.weights],
        y: write[incidence.column_count(), op.outputs()];
        check_plain(incidence.is_plain())?;
    }

    /// Overwrites `dx` and `dw` with the gradients of [`Mix`].
    MixBackward = mix_backward(OPERATOR) {
        op: &'a Mixture;
        incidence: Incidence,
        x: read[incidence.row_count(), op.channels],
        w: read[incidence.row_count(), op.weights],
        dy: read[incidence.column_count(), op.outputs()],
        dx: write[incidence.row_count(), op.channels],
        dw: write[incidence.row_count(), op.weights];
        check_plain(incidence.is_plain())?;
    }
}

/// The entries of every column, in the order of rows, and their places.
fn transposed(rows: &Side, columns: usize) -> (Side, Vec<u32>) {
    let mut offsets = vec![0; columns + 1];
    for &column in &rows.others {
        offsets[column as usize + 1] += 1;
    }
    for column in 0..columns {
        offsets[column + 1] += offsets[column];
    }
    let mut next = offsets.clone();
    let (mut others, mut places) = (vec![0; rows.others.len()], vec![0; rows.others.len()]);
    for row in 0..rows.count() {
        for entry in rows.entries(row) {
            let next = &mut next[rows.others[entry] as usize];
            others[*next as usize] = row as u32;
            places[*next as usize] = entry as u32;
            *next += 1;
        }
    }
    (Side { offsets, others }, places)
}
