//! The kernel sources, for the device and for the test that compiles them all.

/// CUDA C++ of one operator.
#[derive(Debug, Clone, Copy)]
pub struct KernelSource {
    /// Name without `.cu`.
    pub name: &'static str,
    body: &'static str,
}

/// Macros that a source is compiled with, and their values.
pub type Variant = Vec<(String, String)>;

impl KernelSource {
    pub(crate) const fn new(name: &'static str, body: &'static str) -> Self {
        Self { name, body }
    }

    /// The whole text: what all kernels share, then its own.
    pub fn text(&self) -> String {
        let common = include_str!("common.cu");
        format!("{common}\n#line 1 \"{}.cu\"\n{}", self.name, self.body)
    }
}

/// Every source with the variants that stand for all that occur.
pub fn kernel_sources() -> Vec<(KernelSource, Vec<Variant>)> {
    let plain = || vec![Vec::new()];
    vec![
        (super::graph::SOURCE, plain()),
        (super::reduce::SOURCE, plain()),
        (super::optimiser::SOURCE, plain()),
        (
            crate::aggregate::cuda::GATHER,
            crate::aggregate::cuda::variants(),
        ),
        (crate::aggregate::cuda::ADJOINT, plain()),
        (
            crate::regular::cuda::SOURCE,
            crate::regular::cuda::variants(),
        ),
        (crate::batch_norm::cuda::SOURCE, plain()),
        (
            crate::activation::cuda::SOURCE,
            crate::activation::cuda::variants(),
        ),
        (
            crate::norm_gate::cuda::SOURCE,
            crate::activation::cuda::variants(),
        ),
        (crate::dropout::cuda::SOURCE, plain()),
        (crate::elementwise::cuda::SOURCE, plain()),
        (
            crate::cross_entropy::cuda::SOURCE,
            crate::cross_entropy::cuda::variants(),
        ),
        (crate::regression::cuda::SOURCE, plain()),
        (crate::pool::cuda::SOURCE, plain()),
        (crate::irrep::cuda::SOURCE, plain()),
        (crate::edges::cuda::SOURCE, plain()),
        (crate::incidence::cuda::SOURCE, plain()),
        (crate::mesh_product::cuda::SOURCE, plain()),
    ]
}

/// Macros as the compiler takes them.
pub(crate) fn variant(defines: &[super::Define]) -> Variant {
    let owned = |(name, value): &super::Define| (name.to_string(), value.clone());
    defines.iter().map(owned).collect()
}
