//! The kernel sources of all operators, for the test that compiles them.

use crate::cuda::{Define, KernelSource, graph, optimiser, reduce};
use crate::{
    activation, aggregate, attention, batch_norm, classifier, cross_entropy, diffusion, diffusion_net, dropout, edges,
    elementwise, gauge_conv, implicit, incidence, irrep, mesh_product, messages, norm_gate, pool, regression, regular,
    weighted_conv,
};

/// Every kernel source of this crate, with sets of macros that stand for all that occur.
pub fn kernel_sources() -> Vec<(KernelSource, Vec<Vec<Define>>)> {
    let plain = || vec![Vec::new()];
    vec![
        (graph::SOURCE, plain()),
        (reduce::SOURCE, plain()),
        (optimiser::SOURCE, plain()),
        (aggregate::cuda::GATHER, aggregate::cuda::variants()),
        (aggregate::cuda::ADJOINT, plain()),
        (gauge_conv::warps::SOURCE, gauge_conv::warps::variants()),
        (attention::cuda::SOURCE, attention::cuda::variants()),
        (attention::warps::SOURCE, attention::warps::variants()),
        (regular::cuda::SOURCE, regular::cuda::variants()),
        (batch_norm::cuda::SOURCE, plain()),
        (activation::cuda::SOURCE, activation::cuda::variants()),
        (norm_gate::cuda::SOURCE, activation::cuda::variants()),
        (dropout::cuda::SOURCE, plain()),
        (elementwise::cuda::SOURCE, plain()),
        (cross_entropy::cuda::SOURCE, cross_entropy::cuda::variants()),
        (classifier::few_classes::SOURCE, classifier::few_classes::variants()),
        (classifier::hopper::SOURCE, classifier::hopper::variants()),
        (regression::cuda::SOURCE, plain()),
        (pool::cuda::SOURCE, plain()),
        (irrep::cuda::SOURCE, plain()),
        (edges::cuda::SOURCE, plain()),
        (incidence::cuda::SOURCE, plain()),
        (mesh_product::cuda::SOURCE, plain()),
        (diffusion::cuda::SOURCE, plain()),
        (diffusion::points::SOURCE, plain()),
        (diffusion_net::cuda::SOURCE, plain()),
        (diffusion_net::half_precision::FP16, plain()),
        (diffusion_net::half_precision::BF16, plain()),
        (implicit::cuda::SOURCE, plain()),
        (weighted_conv::cuda::SOURCE, plain()),
        (messages::cuda::SOURCE, plain()),
        (messages::chain::SOURCE, messages::chain::variants()),
    ]
}
