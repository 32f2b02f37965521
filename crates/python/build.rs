//! On macOS an extension module has to be linked without Python's symbols, which the interpreter brings.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
