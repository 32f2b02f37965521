//! Targets of faces and whole meshes through all commands.

use crate::folder::Folder;
use gemcnn_mesh::shapes;
use gemcnn_mesh::{DVec3, Mesh, read_mesh};
use serde_json::Value;
use std::fs;

fn ellipsoid(index: usize) -> Mesh {
    let stretch = DVec3::new(1.0, 1.0 + 0.1 * index as f64, 1.0);
    let sphere = shapes::icosphere(1).unwrap();
    sphere.map_vertices(|p| p * stretch).unwrap()
}

#[test]
fn faces_edges_and_whole_meshes_through_all_commands() {
    let here = Folder::new();
    let data = here.path("data");
    fs::create_dir(&data).unwrap();
    let mut table = String::from("name,height,twice\n");
    for index in 0..5 {
        let mesh = ellipsoid(index);
        mesh.write(data.join(format!("e{index}.ply"))).unwrap();
        let labels = (0..mesh.face_count()).map(|face| {
            let height: f64 = mesh.face_positions(face).map(|p| p.z).sum();
            if height > 0.0 { "4\n" } else { "9\n" }
        });
        fs::write(data.join(format!("e{index}.seg")), labels.collect::<String>()).unwrap();
        table += &format!("e{index},{index},{}\n", 2 * index);
    }
    let small = "[model]\nkind = 'gem'\nblocks = 1\nchannels = 3\nscalars = 8\nhead = 8\n[data]\nfolder = 'data'\n\
                 [training]\nepochs = 3\n";
    for task in ["segmentation", "regression"] {
        if task == "regression" {
            fs::write(data.join("values.csv"), &table).unwrap();
            (0..5).for_each(|n| fs::remove_file(data.join(format!("e{n}.seg"))).unwrap());
        }
        let check = here.succeed(&["data", "check", "data", "--json", "--task", task]);
        let check: Value = serde_json::from_str(&check).unwrap();
        let (per, targets) = match task {
            "segmentation" => ("face", 80),
            _ => ("mesh", 1),
        };
        assert_eq!(check["per"], per);
        assert_eq!(check["parts"][2]["targets"], targets);
        let (config, run) = (format!("{task}.toml"), format!("runs/{task}"));
        fs::write(here.path(&config), format!("task = '{task}'\n{small}")).unwrap();
        here.succeed(&["train", &config, "--run-dir", &run, "-q", "--device", "cpu", "--up", "z"]);
        let scores = here.succeed(&["eval", &run, "--json", "--device", "cpu"]);
        let scores: Value = serde_json::from_str(&scores).unwrap();
        assert_eq!(scores["per"], per);
        assert_eq!(scores["scores"]["counted"], targets);
        here.succeed(&["view", &run, "-o", "view.html"]);
        let out = format!("out-{task}");
        here.succeed(&["predict", &run, "data/e0.ply", "-o", &out, "--device", "cpu"]);
        match task {
            "segmentation" => {
                let mesh = read_mesh(here.path(&out).join("e0.ply")).unwrap();
                assert_eq!(mesh.face_attributes[0].name, "label");
                assert_eq!(mesh.face_attributes[0].values.len(), 80);
                assert!(here.path(&out).join("e0.png").is_file());
            }
            _ => {
                assert_eq!(scores["regression"]["columns"][1]["name"], "twice");
                let table = here.text(&format!("{out}/values.csv"));
                let rows: Vec<&str> = table.lines().collect();
                assert_eq!((rows.len(), rows[0]), (2, "mesh,value0,value1"));
                assert_eq!(rows[1].split(',').filter_map(|c| c.parse::<f32>().ok()).count(), 2);
            }
        }
    }
}
