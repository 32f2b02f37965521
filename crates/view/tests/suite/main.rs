//! Charts, pictures and pages through the public API. One program, so that generic code is compiled once.

mod page;
mod plot;
mod render;
