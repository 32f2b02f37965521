//! Passes of operators on tensors of PyTorch: a function of Python for each.

use crate::errors;
use crate::graph::{GraphTensors, Sizes, checked, slices};
use crate::tensor::{Place, Scalar};
use gemcnn_kernels::arguments::{Add, Argument, Graph, Read, Source, Take, Write};
use gemcnn_kernels::{OnDevice, View, ViewMut};
use pyo3::prelude::*;
use std::cell::OnceCell;

/// An argument of a kind, where its tensors are.
type Taken<'a, T, K> = OnDevice<<K as Argument>::Host<'a, T>, <K as Argument>::Cuda<'a>>;

/// The arguments of a pass, in the order of its declaration: tensors, `None`, and tuples of tensors.
pub struct Tensors<'a, 'py> {
    pub place: &'a Place,
    pub rest: std::slice::Iter<'a, Bound<'py, PyAny>>,
    pub graph: &'a OnceCell<(GraphTensors<'py>, Sizes)>,
}

impl<'a, 'py> Tensors<'a, 'py> {
    fn next(&mut self, name: &str) -> PyResult<&'a Bound<'py, PyAny>> {
        self.rest.next().ok_or_else(|| errors::operator(format!("`{name}` is missing")))
    }

    fn next_if(&mut self, name: &str) -> PyResult<Option<&'a Bound<'py, PyAny>>> {
        Ok(Some(self.next(name)?).filter(|tensor| !tensor.is_none()))
    }
}

impl Source for Tensors<'_, '_> {
    type Error = PyErr;
}

/// No numbers for `None`.
impl<'a, T: Scalar> Take<'a, T, Read> for Tensors<'a, '_> {
    fn take(&mut self, name: &'static str) -> PyResult<View<'a, T>> {
        self.place.optional(name, self.next_if(name)?)
    }

    fn take_if(&mut self, name: &'static str) -> PyResult<Option<View<'a, T>>> {
        self.next_if(name)?.map(|tensor| self.place.view(name, tensor)).transpose()
    }
}

impl<'a, T: Scalar> Take<'a, T, Write> for Tensors<'a, '_> {
    fn take(&mut self, name: &'static str) -> PyResult<ViewMut<'a, T>> {
        self.place.view_mut(name, self.next(name)?)
    }

    fn take_if(&mut self, name: &'static str) -> PyResult<Option<ViewMut<'a, T>>> {
        self.next_if(name)?.map(|tensor| self.place.view_mut(name, tensor)).transpose()
    }
}

/// No numbers for `None`.
impl<'a, T: Scalar> Take<'a, T, Add> for Tensors<'a, '_> {
    fn take(&mut self, name: &'static str) -> PyResult<ViewMut<'a, T>> {
        self.place.optional_zeros(name, self.next_if(name)?)
    }
}

impl<'a, T: Scalar> Take<'a, T, Graph> for Tensors<'a, '_> {
    fn take(&mut self, name: &'static str) -> PyResult<Taken<'a, T, Graph>> {
        let tensors = self.next(name)?;
        let py = tensors.py();
        let tensors: GraphTensors<'_> = tensors.extract()?;
        let sizes = Sizes::of(&tensors)?;
        let (tensors, sizes) = self.graph.get_or_init(|| (tensors, sizes));
        let graph = slices::<T>(self.place, tensors, sizes)?;
        Ok(py.detach(|| checked(graph))?)
    }
}

/// The tensor that gives the type of the numbers and the device: the first that is not in a tuple.
pub fn first<'a, 'py>(tensors: &'a [Bound<'py, PyAny>]) -> PyResult<&'a Bound<'py, PyAny>> {
    let is_tensor = |tensor: &&Bound<'_, PyAny>| !tensor.is_instance_of::<pyo3::types::PyTuple>();
    tensors.iter().find(is_tensor).ok_or_else(|| errors::operator("tensors are missing"))
}

/// Functions of Python. Their arguments are the settings, then the tensors of the pass in the order of its declaration.
///
/// `name = read(A, B) => Pass(c: C);` takes a tuple `(A, B)` that `read` turns into the first setting of the pass, and `c`;
/// `name = Pass(c: C);` takes `c` only.
macro_rules! passes {
    ($($name:ident = $($part:ident $settings:tt)=>+;)*) => {
        $($crate::pass::passes!(@settings $name $($part $settings)+);)*

        fn add_passes(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            Ok(())
        }
    };
    (@settings $name:ident $read:ident($($first:ty),*) $Pass:ident($($setting:ident: $type:ty),*)) => {
        $crate::pass::passes!(@function $name(first: ($($first),*) $(, $setting: $type)*) $Pass(&$read(first)? $(, $setting)*));
    };
    (@settings $name:ident $Pass:ident($($setting:ident: $type:ty),*)) => {
        $crate::pass::passes!(@function $name($($setting: $type),*) $Pass($($setting),*));
    };
    (@function $name:ident($($setting:ident: $type:ty),*) $Pass:ident($($value:expr),*)) => {
        #[pyfunction]
        #[pyo3(signature = ($($setting,)* *tensors))]
        fn $name(
            py: Python<'_>,
            $($setting: $type,)*
            tensors: Vec<Bound<'_, PyAny>>,
        ) -> PyResult<()> {
            let (settings, graph) = (($($value,)*), std::cell::OnceCell::new());
            let first = $crate::pass::first(&tensors)?;
            $crate::settings::by_type!(first, T => {
                let place = &$crate::tensor::Place::of(first)?;
                let mut tensors = $crate::pass::Tensors { place, rest: tensors.iter(), graph: &graph };
                let pass = $Pass::<gemcnn_kernels::Anywhere<T>>::take(settings, &mut tensors)?;
                place.run::<T>(py, |mut run| Ok(pass.run(&mut run)?))
            })
        }
    };
}
pub(crate) use passes;
