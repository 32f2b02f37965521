//! Tests through the public interface: operators against numbers of the published implementation
//! (`golden_*`), and on a GPU against the reference versions (`cuda`).

mod cuda;
mod golden_conv;
mod golden_nonlinearity;
mod golden_pool;
