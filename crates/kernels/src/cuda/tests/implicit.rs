//! Implicit diffusion.

use super::*;
use crate::implicit::{Backward, Forward, Heat, Implicit, Masses};
use crate::incidence::cuda::DeviceIncidence;
use crate::incidence::{IncidenceArrays, IncidenceParts};

/// A Laplacian with weights on the edges of a graph; the last vertex is a copy of the first one.
struct Surface {
    offsets: Vec<u32>,
    indices: Vec<u32>,
    weights: Vec<f64>,
    angles: Vec<f64>,
    nodes: Vec<u32>,
    turns: Vec<f64>,
    masses: Masses<Vec<f64>>,
}

impl Surface {
    fn new(graph: &GaugeGraph) -> Self {
        let vertices = graph.vertex_count();
        let is_copy = |v: usize| vertices > 1 && v + 1 == vertices;
        let vertex: Vec<f64> = (0..vertices).map(|v| f64::from((0.5 + (v % 5) as f32) / vertices as f32)).collect();
        let mut surface = Self {
            offsets: vec![0],
            indices: Vec::new(),
            weights: Vec::new(),
            angles: Vec::new(),
            nodes: (0..vertices as u32).collect(),
            turns: vec![0.0; vertices],
            masses: Masses { node: vertex.clone(), stiffness: vec![0.0; vertices], vertex },
        };
        for p in 0..vertices {
            for edge in graph.row(p) {
                let q = graph.neighbours()[edge] as usize;
                if !is_copy(p) && !is_copy(q) {
                    let weight = 0.25 + ((p * q % 7) as f64) / 8.0;
                    surface.indices.push(q as u32);
                    surface.weights.push(weight);
                    surface.angles.push(graph.transport()[edge]);
                    surface.masses.stiffness[p] += weight;
                }
            }
            surface.offsets.push(surface.indices.len() as u32);
        }
        if vertices > 1 {
            let last = vertices - 1;
            (surface.nodes[last], surface.turns[last]) = (0, 0.7);
            surface.masses.node[0] += surface.masses.vertex[last];
            surface.masses.node[last] = 1.0;
        }
        surface
    }

    fn maps<T: crate::Real>(&self) -> [IncidenceArrays<T>; 2] {
        let own: Vec<u32> = (0..self.offsets.len() as u32).collect();
        let coupling = IncidenceParts {
            columns: self.nodes.len(),
            offsets: &self.offsets,
            indices: &self.indices,
            angles: Some(&self.angles),
            weights: Some(&self.weights),
        };
        let copies = IncidenceParts {
            columns: self.nodes.len(),
            offsets: &own,
            indices: &self.nodes,
            angles: Some(&self.turns),
            weights: None,
        };
        [coupling, copies].map(|parts| IncidenceArrays::union(&[parts]).unwrap())
    }
}

#[test]
fn implicit_diffusion() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device.clone());
    for (name, graph) in gauge_graphs(NeighbourWeights::Count) {
        if name == "large" {
            continue;
        }
        let surface = Surface::new(&graph);
        let [coupling, copies] = surface.maps::<f64>();
        let on_device = surface.maps::<f32>().map(|map| DeviceIncidence::new(&device, &map).unwrap());
        let masses = Masses {
            vertex: &surface.masses.vertex[..],
            node: &surface.masses.node[..],
            stiffness: &surface.masses.stiffness[..],
        };
        let upload = |values: &[f64]| {
            let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            device.upload(&narrow).unwrap()
        };
        let sent =
            Masses { vertex: upload(masses.vertex), node: upload(masses.node), stiffness: upload(masses.stiffness) };
        for (text, times) in [("2x0 + 3x1 + 1x2", &[0.001, 0.01, 0.1][..]), ("17x0", &[0.02]), ("5x1", &[0.3, 0.01])] {
            let op = Implicit { features: kind(text), times: times.to_vec() };
            let x = random(graph.vertex_count() * op.features.dimension(), 1);
            let dy = random(x.len(), 2);
            let mix = random(times.len() * op.irreps(), 3);
            let (wide_x, wide_dy, wide_mix) = (wide(&x), wide(&dy), wide(&mix));
            let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            let mut saved = vec![0.0; times.len() * x.len()];
            let mut dmix = vec![0.0; mix.len()];
            let (op, heat) = (&op, Heat { coupling: &coupling, copies: &copies, masses });
            let (mix64, x64, dy64) = (&wide_mix[..], &wide_x[..], &wide_dy[..]);
            Forward { op, heat, mix: mix64, x: x64, y: &mut y[..], saved: &mut saved[..] }.on_host().unwrap();
            let (to, dmix_to) = (Some(&mut dx[..]), &mut dmix[..]);
            Backward { op, heat, mix: mix64, saved: &saved[..], dy: dy64, dx: to, dmix: dmix_to }.on_host().unwrap();
            let what = format!("{name}, {text}");
            let expected = [("y", &y[..]), ("saved", &saved), ("dx", &dx), ("dmix", &dmix)];
            checks.check(&what, expected, |device| {
                let upload = |values: &[f32]| device.upload(values).unwrap();
                let (x, dy, mix) = (upload(&x), upload(&dy), upload(&mix));
                let mut y = poisoned(device, x.len());
                let mut dx = poisoned(device, x.len());
                let mut saved = poisoned(device, times.len() * x.len());
                let mut dmix = upload(&vec![0.0; mix.len()]);
                let masses =
                    Masses { vertex: sent.vertex.view(), node: sent.node.view(), stiffness: sent.stiffness.view() };
                let [coupling, copies] = &on_device;
                let (heat, mix) = (Heat { coupling, copies, masses }, mix.view());
                let (to, saved_to) = (y.view_mut(), saved.view_mut());
                Forward { op, heat, mix, x: x.view(), y: to, saved: saved_to }.launch(device).unwrap();
                let (u, dy, to, dmix_to) = (saved.view(), dy.view(), Some(dx.view_mut()), dmix.view_mut());
                Backward { op, heat, mix, saved: u, dy, dx: to, dmix: dmix_to }.launch(device).unwrap();
                [y, saved, dx, dmix]
            });
        }
    }
    checks.finish("implicit diffusion");
}
