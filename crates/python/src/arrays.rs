//! NumPy arrays of Rust memory, and slices of NumPy arrays.

use crate::errors;
use numpy::ndarray::{ArrayView, Dimension, IntoDimension};
use numpy::{Element, PyArray, PyReadonlyArray};
use pyo3::prelude::*;

/// A read-only array of memory that `owner` keeps alive and never changes, without a copy.
pub fn borrowed<'py, T: Element, D: IntoDimension>(
    owner: &Bound<'py, PyAny>,
    values: &[T],
    shape: D,
) -> PyResult<Bound<'py, PyArray<T, D::Dim>>> {
    let view = ArrayView::from_shape(shape, values).map_err(errors::operator)?;
    // SAFETY: frozen classes own the values: they do not move or change while the object lives, and the array keeps it
    // alive.
    let array = unsafe { PyArray::borrow_from_array(&view, owner.clone()) };
    let flags = pyo3::types::PyDict::new(owner.py());
    flags.set_item("write", false)?;
    array.call_method("setflags", (), Some(&flags))?;
    Ok(array)
}

/// An array that takes over a vector.
pub fn owned<'py, T: Element, D: IntoDimension>(
    py: Python<'py>,
    values: Vec<T>,
    shape: D,
) -> PyResult<Bound<'py, PyArray<T, D::Dim>>> {
    let array = numpy::ndarray::Array::from_shape_vec(shape, values).map_err(errors::operator)?;
    Ok(PyArray::from_owned_array(py, array))
}

/// The values of a contiguous array.
pub fn values<'a, T: Element, D: Dimension>(name: &str, array: &'a PyReadonlyArray<'_, T, D>) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| errors::operator(format!("`{name}` must be contiguous")))
}
