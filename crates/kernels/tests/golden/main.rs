//! Operators against numbers of the method's published code.

mod conv;
mod nonlinearity;
mod pool;
