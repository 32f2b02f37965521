//! Sparse incidences with transport, such as faces and their vertices, in both directions.
//!
//! An incidence relates rows (faces, say) to columns (their vertices). Every entry `(r, c)` may carry an angle
//! `a_rc`, the rotation from the frame of `c` to the frame of `r`; without angles all frames agree, as for
//! scalars. With the number of entries of a row `n_r` and of a column `n_c`, the two maps and their adjoints are
//!
//! ```text
//! apply:             y_r = s(n_r) sum_c w_rc rho(a_rc) x_c       dx_c = sum_r s(n_r) w_rc rho(-a_rc) dy_r
//! apply_transposed:  y_c = s(n_c) sum_r w_rc rho(-a_rc) x_r      dx_r = sum_c s(n_c) w_rc rho(a_rc) dy_c
//! ```
//!
//! `w_rc` are optional weights of the entries, 1 by default. `s` is that of an [`Aggregation`]. Each map has its own
//! normalisation, so that a mean is a mean in both directions. All four are gathers over one of two lists of the
//! entries, without atomics. A row or column without entries gets zeros. Nothing is saved for the backward pass.
//! [`mix`] is `apply_transposed` with several weights for every row.

pub mod cuda;
mod mixture;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

pub use mixture::{Mixture, mix, mix_backward};

use crate::arguments::kinds;
use crate::error::{Length, check_count};
use crate::real::compiled;
use crate::rotated_sum::{Term, rotated_sum};
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
    /// use gemcnn_kernels::incidence::{IncidenceArrays, IncidenceParts, apply};
    /// // Two triangles that share an edge; the value of a face is the mean of its corners.
    /// let faces = IncidenceParts::faces(4, &[0, 3, 6], &[0, 1, 2, 2, 1, 3]);
    /// let incidence = IncidenceArrays::union(&[faces])?;
    /// let mut y = [0.0f64; 2];
    /// apply(&"1x0".parse()?, Aggregation::Mean, &incidence, &[0.0, 3.0, 6.0, 9.0], &mut y)?;
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

    /// Numbers of rows and of columns.
    fn counts(&self) -> (usize, usize) {
        (self.row_count(), self.column_count())
    }

    /// Sums over the entries of each row or column, the target, of the features at the other end, the source.
    fn sum(
        &self,
        features: &FeatureType,
        aggregation: Aggregation,
        target: Target,
        normalise: Normalise,
        x: &[T],
        y: &mut [T],
    ) {
        compiled!(
            IncidenceArrays::sum_rows
                as fn(&IncidenceArrays<T>, &FeatureType, Aggregation, Target, Normalise, &[T], &mut [T])
        )(self, features, aggregation, target, normalise, x, y);
    }

    fn sum_rows(
        &self,
        features: &FeatureType,
        aggregation: Aggregation,
        target: Target,
        normalise: Normalise,
        x: &[T],
        y: &mut [T],
    ) {
        let (own, other) = match target {
            Target::Rows => (&self.rows, &self.columns),
            Target::Columns => (&self.columns, &self.rows),
        };
        rotated_sum(features, x, y, |index| {
            let entries = own.entries(index);
            let count = entries.len();
            entries.map(move |entry| {
                let source = own.others[entry] as usize;
                let count = match normalise {
                    Normalise::Target => count,
                    Normalise::Source => other.entries(source).len(),
                };
                let place = match target {
                    Target::Rows => entry,
                    Target::Columns => self.places[entry] as usize,
                };
                let mut phase = match &self.phases[..] {
                    [] => [T::one(), T::zero()],
                    phases => phases[place],
                };
                if target == Target::Columns {
                    phase[1] = -phase[1];
                }
                let weight = *self.weights.get(place).unwrap_or(&T::one());
                Term { scale: aggregation.scale::<T>(count) * weight, ..Term::new(source, phase) }
            })
        });
    }
}

/// Where sums go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Rows,
    Columns,
}

/// Whose number of entries a term is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Normalise {
    Target,
    Source,
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

/// Checks features at rows and at columns.
fn check<S: Length>(
    features: &FeatureType,
    (rows, columns): (usize, usize),
    (row_name, at_rows): (&'static str, S),
    (column_name, at_columns): (&'static str, S),
) -> Result<(), KernelError> {
    for (name, values, count) in [(row_name, at_rows, rows), (column_name, at_columns, columns)] {
        let expected = count.saturating_mul(features.dimension());
        check_count(OPERATOR, name, values.length(), expected)?;
    }
    Ok(())
}

/// Sum or mean over each row of the features of its columns: `x` `[columns, dimension]` to `y`
/// `[rows, dimension]`.
pub fn apply<T: Real>(
    features: &FeatureType,
    aggregation: Aggregation,
    incidence: &IncidenceArrays<T>,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    check(features, incidence.counts(), ("y", &*y), ("x", x))?;
    incidence.sum(features, aggregation, Target::Rows, Normalise::Target, x, y);
    Ok(())
}

/// Overwrites `dx` `[columns, dimension]` with the gradient of [`apply`].
pub fn apply_backward<T: Real>(
    features: &FeatureType,
    aggregation: Aggregation,
    incidence: &IncidenceArrays<T>,
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    check(features, incidence.counts(), ("dy", dy), ("dx", dx))?;
    incidence.sum(features, aggregation, Target::Columns, Normalise::Source, dy, dx);
    Ok(())
}

/// Sum or mean over each column of the features of its rows: `x` `[rows, dimension]` to `y`
/// `[columns, dimension]`.
pub fn apply_transposed<T: Real>(
    features: &FeatureType,
    aggregation: Aggregation,
    incidence: &IncidenceArrays<T>,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    check(features, incidence.counts(), ("x", x), ("y", y))?;
    incidence.sum(features, aggregation, Target::Columns, Normalise::Target, x, y);
    Ok(())
}

/// Overwrites `dx` `[rows, dimension]` with the gradient of [`apply_transposed`].
pub fn apply_transposed_backward<T: Real>(
    features: &FeatureType,
    aggregation: Aggregation,
    incidence: &IncidenceArrays<T>,
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    check(features, incidence.counts(), ("dx", &*dx), ("dy", dy))?;
    incidence.sum(features, aggregation, Target::Rows, Normalise::Source, dy, dx);
    Ok(())
}
