//! The block of DiffusionNet in one operator.

use crate::{Context, Device, Operator, ParameterId, RandomStream, Result, SpectraBatch, Storage, Tape, Var};
use gemcnn_kernels::diffusion_net::{self, DiffusionNet, Saved, Weights};
use gemcnn_kernels::dropout::cuda::DeviceStream;
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{FeatureType, KernelError, Real, Resolve, dispatch};

/// A whole block of DiffusionNet ([`diffusion_net`]). Saves nine numbers for each scalar of the input, or four on GPUs
/// with a kernel of its own for the block (in bf16, the memory of two), and the spectrum.
///
/// # Shapes
/// `x` and `y`: one row of scalars for each vertex.
#[derive(Debug)]
pub struct DiffusionNetBlock<'a, T> {
    /// The eigenbases.
    pub spectra: &'a SpectraBatch<T>,
    /// The parameters.
    pub weights: Weights<ParameterId>,
    /// Dropout probability, in [0, 1).
    pub dropout: f64,
}

impl<T: Real> DiffusionNetBlock<'_, T> {
    fn config(&self, channels: usize) -> DiffusionNet {
        DiffusionNet { channels, columns: self.spectra.columns().to_vec(), dropout: self.dropout }
    }
}

/// What the backward pass needs.
#[derive(Debug)]
pub struct SavedBlock<T: Real> {
    channels: usize,
    dropped: bool,
    saved: Saved<Storage<T>>,
}

/// The random streams of both dropouts, if there are some, as the kernels take them.
struct Streams<'s>(&'s [Option<RandomStream>; 2]);

impl<'s> Streams<'s> {
    fn each<R>(self, get: impl Fn(&'s RandomStream) -> Result<R, KernelError>) -> Result<Option<[R; 2]>, KernelError> {
        match self.0 {
            [Some(one), Some(two)] => Ok(Some([get(one)?, get(two)?])),
            _ => Ok(None),
        }
    }
}

impl<'s> Resolve for Streams<'s> {
    type Host = Option<[Stream; 2]>;
    type Cuda = Option<[(&'s DeviceStream, u64); 2]>;

    fn host(self) -> Result<Self::Host, KernelError> {
        self.each(|random| match random {
            RandomStream::Host(stream) => Ok(*stream),
            RandomStream::Cuda(_) => Err(KernelError::OtherDevice),
        })
    }

    fn cuda(self) -> Result<Self::Cuda, KernelError> {
        self.each(|random| match random {
            RandomStream::Cuda((stream, salt)) => Ok((&**stream, *salt)),
            RandomStream::Host(_) => Err(KernelError::OtherDevice),
        })
    }
}

impl<T: Real> Operator<T> for DiffusionNetBlock<'_, T> {
    type Saved = SavedBlock<T>;

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved)> {
        x.expect_scalars("the input of a diffusion block")?;
        x.expect_rows("the input of a diffusion block", self.spectra.vertex_count())?;
        let channels = x.kind().dimension();
        let (config, offsets) = (self.config(channels), self.spectra.mesh_offsets());
        let random = match self.dropout > 0.0 {
            true => [context.random_stream()?, context.random_stream()?],
            false => [None, None],
        };
        let mut y = context.buffer(x.values_len())?;
        let meshes = offsets.len() - 1;
        let lengths = match context.device() {
            Device::Cuda(device) => diffusion_net::cuda::saved(device, &config, x.rows(), meshes),
            Device::Cpu => config.saved(x.rows(), meshes),
        };
        let mut saved = lengths.try_map(|length| context.buffer(length))?;
        let spectra = self.spectra.on(context.device())?;
        let (values, run) = context.values(self.weights.map(Some).into_array())?;
        let weights = Weights::from_array(values);
        dispatch!(
            run,
            diffusion_net::forward(
                &config, offsets;
                spectra.view(),
                weights,
                Streams(&random),
                x.view(),
                y.view_mut(),
                saved.each_mut().map(Storage::view_mut);
                scratch
            )
        );
        let saved = SavedBlock { channels, dropped: random[0].is_some(), saved };
        Ok((Var::new(FeatureType::scalars(channels), x.rows(), y), saved))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        mut saved: Self::Saved,
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let (config, offsets) = (self.config(saved.channels), self.spectra.mesh_offsets());
        let mut dx = context.buffer_if(wanted, dy.len())?;
        let spectra = self.spectra.on(context.device())?;
        let (values, gradients, run) = context.gradients(self.weights.map(Some).into_array())?;
        let (weights, gradients) = (Weights::from_array(values), Weights::from_array(gradients));
        dispatch!(
            run,
            diffusion_net::backward(
                &config, offsets, saved.dropped;
                spectra.view(),
                weights,
                saved.saved.each_mut().map(Storage::view_mut),
                dy.view(),
                dx.as_mut().map(Storage::view_mut),
                gradients;
                scratch
            )
        );
        Ok([dx])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`DiffusionNetBlock`]; `None` on a GPU if the number of channels is not a multiple of four.
    pub fn diffusion_net_block(
        &mut self,
        spectra: &'a SpectraBatch<T>,
        weights: Weights<ParameterId>,
        dropout: f64,
        x: Var<T>,
    ) -> Result<Option<Var<T>>> {
        let operator = DiffusionNetBlock { spectra, weights, dropout };
        let config = operator.config(x.kind().dimension());
        match self.device() {
            Device::Cuda(_) if !diffusion_net::cuda::supports(&config) => Ok(None),
            _ => self.apply(operator, [x]).map(Some),
        }
    }
}
