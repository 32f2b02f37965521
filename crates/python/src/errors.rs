//! The exceptions of `gemcnn.errors`.

use pyo3::PyErr;
use std::fmt::Display;

mod classes {
    #![allow(missing_docs)]
    pyo3::import_exception!(gemcnn.errors, CudaError);
    pyo3::import_exception!(gemcnn.errors, FileError);
    pyo3::import_exception!(gemcnn.errors, GeometryError);
    pyo3::import_exception!(gemcnn.errors, InternalError);
    pyo3::import_exception!(gemcnn.errors, MeshError);
    pyo3::import_exception!(gemcnn.errors, OperatorError);
    pyo3::import_exception!(gemcnn.errors, TaskError);
}

macro_rules! raise {
    ($($name:ident $class:ident)*) => {
        $(
            pub fn $name(error: impl Display) -> PyErr {
                classes::$class::new_err(error.to_string())
            }
        )*
    };
}

raise! {
    cuda CudaError
    file FileError
    geometry GeometryError
    internal InternalError
    mesh MeshError
    operator OperatorError
    task TaskError
}
