//! How much of the eigenvectors of the connection Laplacian the derived bases hold: `derived MESH...`.

use gemcnn_mesh::surface::{BasisSource, Eigenbasis, OperatorOptions, SurfaceOperators};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Mesh};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        let mesh = Mesh::read(&path)?;
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
        let operators = |basis| {
            let start = Instant::now();
            let operators = SurfaceOperators::new(&mesh, &graph, &OperatorOptions { basis, ..Default::default() })?;
            println!("{path}, {} vertices, {basis:?}: {:.2} s", mesh.vertex_count(), start.elapsed().as_secs_f64());
            Ok::<_, Box<dyn Error>>(operators)
        };
        let (exact, derived) = (operators(BasisSource::Connection)?, operators(BasisSource::Derived)?);
        for order in 1..=2 {
            let (Some(exact_basis), Some(basis)) = (exact.basis(order), derived.basis(order)) else { continue };
            let held: Vec<f64> =
                (0..exact_basis.len()).map(|pair| held(&exact.mass, exact_basis, pair, basis)).collect();
            let mean = |part: &[f64]| 100.0 * part.iter().sum::<f64>() / part.len().max(1) as f64;
            let parts = [0..8, 8..32, 32..held.len()].map(|part| mean(&held[part]));
            println!("  order {order}: {:.1}, {:.1}, {:.1} %", parts[0], parts[1], parts[2]);
        }
    }
    Ok(())
}

/// Share of the squared norm of a vector in the span of a basis.
fn held(mass: &[f64], from: &Eigenbasis, pair: usize, basis: &Eigenbasis) -> f64 {
    let (columns, count) = (from.len(), basis.len());
    let mut products = vec![[0.0; 2]; count];
    for (vertex, mass) in mass.iter().enumerate() {
        let [a, b] = [0, 1].map(|part| mass * from.vectors[(2 * vertex + part) * columns + pair]);
        let (re, im) = basis.vectors[2 * vertex * count..][..2 * count].split_at(count);
        for (product, (c, d)) in products.iter_mut().zip(re.iter().zip(im)) {
            *product = [product[0] + a * c + b * d, product[1] + a * d - b * c];
        }
    }
    products.iter().map(|[re, im]| re * re + im * im).sum()
}
