//! Creating parameters: scoped names, and initial values from a seed.

use crate::draws::uniform;
use crate::{Archive, NnError, ParameterId, Parameters, Result, Role};
use gemcnn_kernels::Real;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::ops::RangeInclusive;

/// Largest number of values of a model: more is a typing error, and would take gigabytes before anything else fails.
const MAX_VALUES: usize = 1 << 28;

/// Adds the parameters of layers to [`Parameters`]. The same seed and the same layers in the same
/// order give the same values.
///
/// ```
/// use gemcnn_nn::{Builder, Parameters, Role};
/// let mut parameters = Parameters::<f32>::new();
/// let mut builder = Builder::new(&mut parameters, 7);
/// let weight = builder.within("block1", |b| b.random("weight", &[4, 3], Role::Weight, |_| 1.0))?;
/// assert_eq!(parameters.get(weight).name(), "block1.weight");
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
#[derive(Debug)]
pub struct Builder<'p, T> {
    parameters: &'p mut Parameters<T>,
    random: ChaCha8Rng,
    /// Archive and group with the values, instead of initial ones.
    stored: Option<(&'p Archive, &'p str)>,
    /// Number of values so far.
    count: usize,
    scope: String,
}

impl<'p, T: Real> Builder<'p, T> {
    /// Adds to `parameters`, initialised from `seed`.
    pub fn new(parameters: &'p mut Parameters<T>, seed: u64) -> Self {
        Self { parameters, random: ChaCha8Rng::seed_from_u64(seed), stored: None, count: 0, scope: String::new() }
    }

    /// Adds to `parameters` with the values of an archive, whose shapes are compared before anything is allocated.
    fn stored(parameters: &'p mut Parameters<T>, archive: &'p Archive, group: &'p str) -> Self {
        Self { stored: Some((archive, group)), ..Self::new(parameters, 0) }
    }

    /// Runs `make` in a scope: the names of its parameters begin with `name` and a dot.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn within<R>(&mut self, name: &str, make: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let outer = self.scope.clone();
        self.scope = self.path(name);
        let made = make(self);
        self.scope = outer;
        made
    }

    /// Number of trained parameters so far.
    pub fn trained_count(&self) -> usize {
        self.parameters.trained_count()
    }

    /// Lets weight decay act on these parameters alone, among those added so far.
    pub fn decay_only(&mut self, ids: &[ParameterId]) {
        let names: Vec<String> = ids.iter().map(|&id| self.parameters.get(id).name().to_owned()).collect();
        self.parameters.set_weight_decay(|name| names.iter().any(|decaying| decaying == name));
    }

    /// Name of the scope: the full name of the layer that is being made.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Full name of `name` in the scope.
    pub fn path(&self, name: &str) -> String {
        if self.scope.is_empty() { name.into() } else { format!("{}.{name}", self.scope) }
    }

    /// A parameter with independent values from a uniform distribution around zero, whose variance `variance`
    /// gives for each position.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn random(
        &mut self,
        name: &str,
        shape: &[usize],
        role: Role,
        variance: impl Fn(usize) -> f64,
    ) -> Result<ParameterId> {
        self.add(name, shape, role, |random, place| {
            let bound = (3.0 * variance(place)).sqrt();
            T::of(bound * (2.0 * uniform(random) - 1.0))
        })
    }

    /// A parameter with independent values, uniformly distributed in a range.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn uniform(
        &mut self,
        name: &str,
        shape: &[usize],
        role: Role,
        range: RangeInclusive<f64>,
    ) -> Result<ParameterId> {
        let (low, high) = range.into_inner();
        self.add(name, shape, role, |random, _| T::of(low + (high - low) * uniform(random)))
    }

    /// A parameter with the same value everywhere.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn constant(&mut self, name: &str, shape: &[usize], role: Role, value: f64) -> Result<ParameterId> {
        self.add(name, shape, role, |_, _| T::of(value))
    }

    /// A parameter with stored values, or with those of `initial` for each position.
    fn add(
        &mut self,
        name: &str,
        shape: &[usize],
        role: Role,
        initial: impl Fn(&mut ChaCha8Rng, usize) -> T,
    ) -> Result<ParameterId> {
        let path = self.path(name);
        let values = match self.stored {
            Some((archive, group)) => archive
                .fitting(&format!("{group}/{path}"), shape)
                .map_err(|difference| NnError::Mismatch { differences: vec![difference] })?,
            None => {
                let product = |total: usize, &size| total.checked_mul(size);
                let count = shape.iter().try_fold(1, product);
                let total = count.and_then(|count| self.count.checked_add(count));
                let (Some(count), Some(total)) = (count, total.filter(|&n| n <= MAX_VALUES)) else {
                    return Err(NnError::setting(
                        format!("`{path}` of shape {shape:?}"),
                        format!("a model has at most {MAX_VALUES} values; choose smaller sizes"),
                    ));
                };
                self.count = total;
                (0..count).map(|at| initial(&mut self.random, at)).collect()
            }
        };
        self.parameters.add(path, shape, role, values)
    }
}

impl<T: Real> Parameters<T> {
    /// Makes a model with the values of an archive under `group`. Sizes are compared with those of the archive before
    /// anything is allocated.
    ///
    /// # Errors
    /// Those of `make`, and names or shapes that differ.
    pub fn stored<M, E: From<NnError>>(
        archive: &Archive,
        group: &str,
        make: impl FnOnce(&mut Builder<'_, T>) -> Result<M, E>,
    ) -> Result<(M, Self), E> {
        let mut parameters = Self::new();
        let made = make(&mut Builder::stored(&mut parameters, archive, group))?;
        crate::archive::no_differences(archive.unknown(group, &parameters).collect())?;
        Ok((made, parameters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_determine_values_and_variances_hold() {
        let make = |seed| {
            let mut parameters = Parameters::<f64>::new();
            let id = Builder::new(&mut parameters, seed)
                .random("w", &[100, 100], Role::Weight, |place| if place < 5000 { 4.0 } else { 0.25 })
                .unwrap();
            parameters.value(id).to_vec()
        };
        let values = make(1);
        assert_eq!(values, make(1));
        assert_ne!(values, make(2));
        let variance = |half: &[f64]| half.iter().map(|v| v * v).sum::<f64>() / half.len() as f64;
        assert!((variance(&values[..5000]) / 4.0 - 1.0).abs() < 0.05);
        assert!((variance(&values[5000..]) / 0.25 - 1.0).abs() < 0.05);
    }

    #[test]
    fn sizes_without_bounds_are_refused_before_they_are_allocated() {
        for shape in [&[usize::MAX, 80, 80][..], &[100_000_000_000], &[1 << 16, 1 << 16], &[MAX_VALUES]] {
            let mut parameters = Parameters::<f32>::new();
            let mut builder = Builder::new(&mut parameters, 1);
            builder.constant("a", &[1], Role::Offset, 1.0).unwrap();
            let made = builder.random("w", shape, Role::Weight, |_| 1.0);
            assert!(matches!(made, Err(NnError::Setting { .. })), "{made:?}");
            assert_eq!(parameters.iter().len(), 1);
        }
    }

    #[test]
    fn scopes_nest_and_end() {
        let mut parameters = Parameters::<f32>::new();
        let mut builder = Builder::new(&mut parameters, 1);
        let failed: Result<(), _> =
            builder.within("a", |_| Err(NnError::setting("x", "it fails, and the scope still ends")));
        assert!(failed.is_err());
        builder.within("b", |b| b.within("c", |c| c.constant("d", &[1], Role::Offset, 1.0))).unwrap();
        builder.constant("e", &[1], Role::Offset, 1.0).unwrap();
        let names: Vec<&str> = parameters.iter().map(|p| p.name()).collect();
        assert_eq!(names, ["b.c.d", "e"]);
    }
}
