//! Charts and pictures through the public API. One program, so that generic code is compiled once.

mod plot;
mod render;
