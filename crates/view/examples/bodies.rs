//! Statistics of the synthetic bodies, and a picture of ten of them:
//!
//! ```text
//! cargo run --release -p gemcnn-view --example bodies -- bodies.png
//! ```

use std::error::Error;
use std::time::Instant;

use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
use gemcnn_mesh::{Adjacency, DVec3, Faces, Mesh};
use gemcnn_view::render::{RenderOptions, Up, View, label_colour, render};

/// Layout of the picture.
const COLUMNS: u64 = 5;
const ROWS: u64 = 2;
/// Number of bodies in the statistics.
const BODIES: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let family = BodyFamily::new(&BodyOptions::default())?;
    println!("template made in {:.2} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let bodies: Vec<Mesh> = (0..BODIES).map(|index| family.body(index)).collect();
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    println!("a body made in {:.1} ms", milliseconds / BODIES as f64);

    let template = family.template();
    print_degrees(template)?;
    println!("| quantity | minimum | 1 % | median | 99 % | maximum |");
    println!("|---|---|---|---|---|---|");
    let all = || bodies.iter();
    let one = || std::iter::once(template);
    print_row("edge, template (mm)", one().flat_map(edge_lengths), 1e3);
    print_row("edge, bodies (mm)", all().flat_map(edge_lengths), 1e3);
    print_row("angle, template (degrees)", one().flat_map(angles), 1.0);
    print_row("angle, bodies (degrees)", all().flat_map(angles), 1.0);
    let ratios = all().flat_map(|body| {
        let ratios = areas(body).zip(areas(template));
        ratios.map(|(posed, rest)| posed / rest)
    });
    print_row("triangle area relative to the template", ratios, 1.0);
    let heights = all().map(|body| body.vertices().iter().map(|v| v.y).fold(0.0, f64::max));
    print_row("height as posed (m)", heights, 1.0);
    let upright = BodyFamily::new(&BodyOptions { poses: 0.0, vertices: 2000, ..BodyOptions::default() })?;
    let statures = (0..BODIES).map(|index| {
        let body = upright.body(index);
        body.vertices().iter().map(|v| v.y).fold(0.0, f64::max)
    });
    print_row("height upright (m)", statures, 1.0);

    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(&path, gallery(&family)?)?;
        println!("{path} drawn");
    }
    Ok(())
}

/// Prints the percentage of vertices of each degree.
fn print_degrees(mesh: &Mesh) -> Result<(), Box<dyn Error>> {
    let adjacency = Adjacency::one_ring(mesh)?;
    let mut counts = [0usize; 16];
    for vertex in 0..mesh.vertex_count() {
        counts[adjacency.row(vertex).len().min(15)] += 1;
    }
    for (degree, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let share = 100.0 * count as f64 / mesh.vertex_count() as f64;
        println!("degree {degree}: {share:.1} %");
    }
    Ok(())
}

fn print_row(name: &str, values: impl Iterator<Item = f64>, unit: f64) {
    let mut values: Vec<f64> = values.map(|value| value * unit).collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
    print!("| {name} |");
    for share in [0.0, 0.01, 0.5, 0.99, 1.0] {
        print!(" {:.2} |", at(share));
    }
    println!();
}

fn triangles(mesh: &Mesh) -> impl Iterator<Item = [DVec3; 3]> {
    let corners = mesh.faces().corners().as_chunks::<3>().0;
    corners.iter().map(|triangle| triangle.map(|v| mesh.vertices()[v as usize]))
}

fn edge_lengths(mesh: &Mesh) -> impl Iterator<Item = f64> {
    triangles(mesh).flat_map(|[a, b, c]| [a.distance(b), b.distance(c), c.distance(a)])
}

fn angles(mesh: &Mesh) -> impl Iterator<Item = f64> {
    let angle = |p: DVec3, q: DVec3, r: DVec3| (q - p).angle_between(r - p).to_degrees();
    triangles(mesh).flat_map(move |[a, b, c]| [angle(a, b, c), angle(b, c, a), angle(c, a, b)])
}

fn areas(mesh: &Mesh) -> impl Iterator<Item = f64> {
    triangles(mesh).map(|[a, b, c]| 0.5 * (b - a).cross(c - a).length())
}

/// The first bodies, coloured by body part, as the content of a PNG file.
fn gallery(family: &BodyFamily) -> Result<Vec<u8>, Box<dyn Error>> {
    let (mut vertices, mut faces, mut colours) = (Vec::new(), Faces::new(), Vec::new());
    for index in 0..COLUMNS * ROWS {
        let (column, row) = ((index % COLUMNS) as f64, (index / COLUMNS) as f64);
        let place = DVec3::new(1.4 * column, -2.05 * row, 0.0);
        let first = vertices.len() as u32;
        let body = family.body(index);
        vertices.extend(body.vertices().iter().map(|&v| v + place));
        for face in body.faces().iter() {
            faces.push(&[first + face[0], first + face[1], first + face[2]]);
        }
        let parts = family.segments().iter();
        colours.extend(parts.map(|part| pale(label_colour(part.label().into()))));
    }
    let options =
        RenderOptions { width: 1000, height: 620, view: View::orbit(12.0, 4.0, Up::Y), ..RenderOptions::default() };
    let picture = render(&Mesh::new(vertices, faces)?, Some(&colours), &[], &options)?;
    Ok(picture.encode_png())
}

/// A lighter colour, which shows the relief better.
fn pale(colour: [u8; 3]) -> [u8; 3] {
    colour.map(|channel| 128 + channel / 2)
}
