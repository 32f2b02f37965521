//! Operators, through the public interface, against numbers of the published implementation.

mod golden_conv;
mod golden_nonlinearity;
mod golden_pool;
