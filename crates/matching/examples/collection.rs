//! Writes a data set of meshes of one kind in various meshings, with known correspondences, to try training for matching:
//! synthetic bodies, or smooth deformations of a mesh.
//!
//! ```sh
//! cargo run --release -p gemcnn-matching --example collection -- bodies OUT
//! cargo run --release -p gemcnn-matching --example collection -- spot.obj OUT
//! ```

use gemcnn_mesh::remesh::{Isotropic, Jitter, MeshSize, RemeshKind, Sequence, Simplify, carry_labels, remesh};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
use gemcnn_mesh::{AttributeValues, Deformation, Mesh, VertexAttribute, WriteOptions, write_mesh};
use gemcnn_tasks::Task;
use gemcnn_tasks::data::{Description, OneOrMany};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::error::Error;
use std::path::Path;

const MESHES: usize = 24;
const TRAINING: usize = 20;
const VERTICES: usize = 1500;
/// Relative change of lengths, and amplitude of bending relative to the size, of deformed meshes.
const STRETCH: f64 = 0.2;
const BEND: f64 = 0.15;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, folder] = &arguments[..] else {
        return Err("give `bodies` or a mesh, and a folder".into());
    };
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder.join("meshes"))?;
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (template, shapes): (Mesh, Vec<Mesh>) = match what.as_str() {
        "bodies" => {
            let options = BodyOptions { vertices: 2 * VERTICES, seed: 5, variety: 0.5, ..Default::default() };
            let family = BodyFamily::new(&options)?;
            (family.template().clone(), (0..MESHES as u64).map(|index| family.body(index)).collect())
        }
        path => {
            let mesh = Mesh::read(path)?;
            let deformed = |_| match Deformation::draw(STRETCH, BEND, &mut random) {
                Some(deformation) => deformation.apply(&mesh),
                None => Ok(mesh.clone()),
            };
            let shapes: Result<Vec<Mesh>, _> = (0..MESHES).map(deformed).collect();
            (mesh, shapes?)
        }
    };
    let points: Vec<i32> = (0..template.vertex_count() as i32).collect();
    for (index, shape) in shapes.iter().enumerate() {
        // Of various numbers of vertices.
        let size = MeshSize::Vertices(VERTICES - 100 + 50 * (index % 5));
        let steps: Vec<RemeshKind> = match index % 3 {
            0 => vec![Isotropic { size, ..Default::default() }.into()],
            1 => vec![Simplify { size }.into()],
            _ => vec![Simplify { size }.into(), Jitter { amount: 0.3 }.into()],
        };
        let made = remesh(shape, &RemeshKind::Sequence(Sequence { steps }), index as u64)?;
        let point = AttributeValues::I32(carry_labels(&made.sources, &points));
        let path = folder.join(format!("meshes/mesh_{index:02}.ply"));
        write_mesh(path, &made.mesh, &[VertexAttribute::new("point", point)], &WriteOptions::default())?;
    }
    write_mesh(folder.join("template.ply"), &template, &[], &WriteOptions::default())?;
    let mut description = Description::new(Task::Correspondence);
    description.meshes = "meshes".into();
    description.template = Some("template.ply".into());
    description.target.property = Some(OneOrMany::One("point".into()));
    let names = |range: std::ops::Range<usize>| Some(range.map(|index| format!("mesh_{index:02}")).collect());
    description.write(folder, [names(0..TRAINING), None, names(TRAINING..MESHES)])?;
    Ok(())
}
