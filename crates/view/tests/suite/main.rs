//! Charts and pictures through the public interface. One program, because generic code is compiled anew in
//! each.

mod plot;
mod render;
