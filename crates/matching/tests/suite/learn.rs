use gemcnn_matching::known_correspondences;
use gemcnn_mesh::shapes::{Cells, grid};
use gemcnn_mesh::{Faces, Mesh};
use gemcnn_tasks::data::DataConfig;
use gemcnn_tasks::train::RunConfig;

#[test]
fn meshes_are_registered_if_their_faces_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mesh = grid(5, 5, Cells::Quads).unwrap();
    let write = |name: &str, mesh: &Mesh| mesh.write(folder.path().join(name)).unwrap();
    write("a.ply", &mesh);
    write("b.ply", &mesh);
    let mut config = RunConfig::parse("task = 'correspondence'").unwrap();
    config.data = DataConfig::Folder(folder.path().into());
    assert!(known_correspondences(&config).unwrap().is_ok());
    // As many vertices, in another order.
    let reversed: Faces = mesh.faces().iter().map(|face| face.iter().map(|v| 24 - v).collect::<Vec<u32>>()).collect();
    let moved = mesh.vertices().iter().rev().copied().collect();
    write("c.ply", &Mesh::new(moved, reversed).unwrap());
    assert!(known_correspondences(&config).unwrap().unwrap_err().contains("c.ply"));
    write("c.ply", &grid(5, 6, Cells::Quads).unwrap());
    assert!(known_correspondences(&config).unwrap().is_err());
    // The only mesh of its extension.
    write("d.off", &mesh);
    assert!(known_correspondences(&config).unwrap().is_err());
    // Who describes the data knows.
    for name in ["c.ply", "d.off"] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("dataset.toml"), "task = 'correspondence'").unwrap();
    assert!(known_correspondences(&config).unwrap().is_ok());
    assert!(known_correspondences(&RunConfig { data: DataConfig::Folder("nowhere".into()), ..config }).is_err());
}
