//! Kinds of geometry that models read besides graphs: how they are computed from a mesh, and stored in the cache.

use super::entry::{EntryReader, EntryWriter};
use super::patches::SparseMaps;
use crate::Element;
use crate::elements::elements_of;
use crate::features::{FeatureError, Surface};
use gemcnn_mesh::surface::{HeatArrays, Jets, SurfaceLaplacian};
use gemcnn_mesh::{GaugeGraph, Mesh};
use gemcnn_nn::{Elements, Extra, Extras, HeatBatch, SpectraBatch};
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Settings of a kind of geometry. A model asks for it with [`Model::extras`](crate::models::Model::extras).
pub trait ExtraSource: Serialize + fmt::Debug + Send + Sync + 'static {
    /// Name of the settings in the key of the cache. Change it when their meaning, or that of the stored numbers,
    /// changes.
    const NAME: &'static str;
    /// What modules read, for one mesh.
    type Extra: Extra<f32> + PartialEq;

    /// Number of eigenvectors of orders 0, 1 and 2 that [`compute`](Self::compute) reads from the operators of the
    /// surface (default: none).
    fn eigenvectors(&self) -> [usize; 3] {
        [0; 3]
    }

    /// Computes it. Meshes are prepared in parallel. The same mesh must give the same bits on any number of threads.
    ///
    /// # Errors
    /// A mesh for which it is not defined.
    fn compute(&self, surface: Surface<'_>) -> Result<Self::Extra, FeatureError>;

    /// Writes it to an entry of the cache.
    fn store(&self, extra: &Self::Extra, entry: &mut EntryWriter);

    /// Reads it from an entry of a mesh with its gauge graph, from which it computes what is not stored. `None` if the
    /// entry is damaged; no bytes may panic.
    fn load(&self, mesh: &Mesh, graph: &GaugeGraph, entry: &mut EntryReader<'_>) -> Option<Self::Extra>;
}

/// An [`ExtraSource`] of any type.
pub(super) trait AnySource: fmt::Debug + Send + Sync {
    fn eigenvectors(&self) -> [usize; 3];
    fn compute(&self, surface: Surface<'_>, extras: &mut Extras<f32>) -> Result<(), FeatureError>;
    fn store(&self, extras: &Extras<f32>, entry: &mut EntryWriter);
    fn load(&self, of: (&Mesh, &GaugeGraph), entry: &mut EntryReader<'_>, extras: &mut Extras<f32>) -> Option<()>;
}

impl<S: ExtraSource> AnySource for S {
    fn eigenvectors(&self) -> [usize; 3] {
        ExtraSource::eigenvectors(self)
    }

    fn compute(&self, surface: Surface<'_>, extras: &mut Extras<f32>) -> Result<(), FeatureError> {
        extras.insert(Arc::new(ExtraSource::compute(self, surface)?));
        Ok(())
    }

    fn store(&self, extras: &Extras<f32>, entry: &mut EntryWriter) {
        if let Some(extra) = extras.get() {
            ExtraSource::store(self, extra, entry);
        }
    }

    fn load(
        &self,
        (mesh, graph): (&Mesh, &GaugeGraph),
        entry: &mut EntryReader<'_>,
        extras: &mut Extras<f32>,
    ) -> Option<()> {
        extras.insert(Arc::new(ExtraSource::load(self, mesh, graph, entry)?));
        Some(())
    }
}

/// An [`ExtraSource`] with its settings. Two are equal if their names and settings are.
#[derive(Debug, Clone)]
pub struct ExtraConfig {
    pub(super) name: &'static str,
    settings: serde_json::Value,
    pub(super) source: Arc<dyn AnySource>,
}

impl<S: ExtraSource> From<S> for ExtraConfig {
    fn from(source: S) -> Self {
        let settings = serde_json::to_value(&source).unwrap_or_default();
        Self { name: S::NAME, settings, source: Arc::new(source) }
    }
}

impl ExtraConfig {
    /// Computes the extra of a mesh.
    ///
    /// # Errors
    /// As [`ExtraSource::compute`].
    pub fn compute(&self, surface: Surface<'_>) -> Result<Extras<f32>, FeatureError> {
        let mut extras = Extras::default();
        self.source.compute(surface, &mut extras)?;
        Ok(extras)
    }
}

impl PartialEq for ExtraConfig {
    fn eq(&self, other: &Self) -> bool {
        (self.name, &self.settings) == (other.name, &other.settings)
    }
}

/// What a mesh gets: the elements that the output is for, if it needs any, and what a model reads.
pub(super) fn all_extras(of_model: &[ExtraConfig], per: Element) -> Vec<ExtraConfig> {
    let elements = match per {
        Element::Vertex | Element::Mesh => None,
        Element::Face | Element::Edge => Some(OutputElements(per).into()),
    };
    elements.into_iter().chain(of_model.iter().cloned()).collect()
}

/// The settings of extras in the key of the cache: those of this crate in the order of their first versions, then
/// others.
pub(super) fn in_key<S: Serializer>(extras: &[ExtraConfig], to: S) -> Result<S::Ok, S::Error> {
    const ORDER: [&str; 4] = [Eigenvectors::NAME, ImplicitDiffusion::NAME, OutputElements::NAME, SparseMaps::NAME];
    let mut extras: Vec<&ExtraConfig> = extras.iter().collect();
    extras.sort_by_key(|extra| ORDER.iter().position(|name| *name == extra.name).unwrap_or(ORDER.len()));
    to.collect_map(extras.iter().map(|extra| (extra.name, &extra.settings)))
}

/// Eigenvectors of orders 0, 1 and 2 of the Laplacians: their numbers. Gives a [`SpectraBatch`].
#[derive(Debug, Serialize)]
pub struct Eigenvectors(pub [usize; 3]);

impl Eigenvectors {
    /// Number of eigenvectors of each order from 0 to the highest that is needed.
    fn columns(&self) -> &[usize] {
        let end = self.0.iter().rposition(|&count| count > 0);
        &self.0[..end.map_or(0, |last| last + 1)]
    }
}

impl ExtraSource for Eigenvectors {
    const NAME: &'static str = "eigenvectors";
    type Extra = SpectraBatch<f32>;

    fn eigenvectors(&self) -> [usize; 3] {
        self.0
    }

    fn compute(&self, surface: Surface<'_>) -> Result<SpectraBatch<f32>, FeatureError> {
        let operators = surface.operators.ok_or("there are no eigenvectors")?;
        let jets = operators.jets.as_ref().ok_or("there are no gradients")?;
        // The same as from the cache.
        Ok(SpectraBatch::new(operators, self.columns())?.rounded(jets)?)
    }

    fn store(&self, spectra: &SpectraBatch<f32>, entry: &mut EntryWriter) {
        let arrays = spectra.arrays();
        let (steps, numbers) = spectra.in_16_bits();
        entry.numbers(arrays.mass);
        entry.numbers(&steps);
        entry.numbers(&numbers);
        entry.numbers(arrays.eigenvalues);
    }

    fn load(&self, mesh: &Mesh, graph: &GaugeGraph, entry: &mut EntryReader<'_>) -> Option<SpectraBatch<f32>> {
        let (mass, steps): (Vec<f32>, Vec<f32>) = (entry.numbers()?, entry.numbers()?);
        let (numbers, eigenvalues): (Vec<i16>, Vec<f32>) = (entry.numbers()?, entry.numbers()?);
        let jets = Jets::new(&SurfaceLaplacian::new(mesh).ok()?, graph.frames()).ok()?;
        SpectraBatch::from_16_bits(self.columns().to_vec(), mass, eigenvalues, (&steps, &numbers), &jets).ok()
    }
}

/// Laplacians and gradients of implicit diffusion. Gives a [`HeatBatch`].
#[derive(Debug)]
pub struct ImplicitDiffusion;

impl Serialize for ImplicitDiffusion {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bool(true)
    }
}

impl ExtraSource for ImplicitDiffusion {
    const NAME: &'static str = "implicit";
    type Extra = HeatBatch<f32>;

    fn compute(&self, surface: Surface<'_>) -> Result<HeatBatch<f32>, FeatureError> {
        Ok(HeatBatch::new([Arc::new(HeatArrays::new(surface.mesh, surface.graph)?)])?)
    }

    fn store(&self, _: &HeatBatch<f32>, _: &mut EntryWriter) {}

    fn load(&self, mesh: &Mesh, graph: &GaugeGraph, _: &mut EntryReader<'_>) -> Option<HeatBatch<f32>> {
        HeatBatch::new([Arc::new(HeatArrays::new(mesh, graph).ok()?)]).ok()
    }
}

/// The faces or edges that the output is for. Gives [`Elements`].
#[derive(Debug, Serialize)]
struct OutputElements(Element);

impl ExtraSource for OutputElements {
    const NAME: &'static str = "per";
    type Extra = Elements<f32>;

    fn compute(&self, surface: Surface<'_>) -> Result<Elements<f32>, FeatureError> {
        Ok(elements_of(self.0, surface.mesh)?)
    }

    fn store(&self, elements: &Elements<f32>, entry: &mut EntryWriter) {
        entry.numbers(&elements.origins);
    }

    fn load(&self, mesh: &Mesh, _: &GaugeGraph, entry: &mut EntryReader<'_>) -> Option<Elements<f32>> {
        Some(elements_of(self.0, mesh).ok()?.with_origins(entry.numbers()?))
    }
}
