//! A forward and a backward pass of a network, with the gradient of the output given.

use crate::Failure;
use crate::case::Case;
use crate::job::Job;
use crate::network::Description;
use gemcnn_experiments::bench::Passes;
use gemcnn_nn::{Archive, Device, Geometry};
use std::sync::Arc;

pub struct NetworkBackward {
    passes: Passes,
    vertices: usize,
}

impl NetworkBackward {
    pub fn new(archive: &Archive, case: Case, device: &Device) -> Result<Self, Failure> {
        let (description, parameters) = Description::read(archive)?;
        let network = description.network(true)?;
        let graph = case.graphs()?;
        let vertices = graph.vertex_count();
        let graphs = Arc::new(Geometry::from(graph));
        let data: [Vec<f32>; 2] = [archive.tensor("x")?, archive.tensor("dy")?];
        let data = data.each_ref().map(Vec::as_slice);
        Ok(Self { passes: Passes::new(network, parameters, device, &graphs, data)?, vertices })
    }
}

impl Job for NetworkBackward {
    fn call(&mut self) -> Result<(), Failure> {
        self.passes.backward()?;
        Ok(())
    }

    fn result(&mut self) -> Result<Archive, Failure> {
        let results = self.passes.results()?;
        let mut archive = Archive::new();
        for (name, values) in [("y", &results.y), ("dx", &results.dx)] {
            archive.set_tensor(name, &[self.vertices, values.len() / self.vertices], values)?;
        }
        let parameters = results.parameters.iter();
        for parameter in parameters.filter(|parameter| parameter.is_trained()) {
            let name = format!("gradient.{}", parameter.name());
            archive.set_tensor(name, parameter.shape(), parameter.gradient())?;
        }
        Ok(archive)
    }
}
