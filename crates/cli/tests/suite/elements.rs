//! Targets of faces and whole meshes through all commands.

use gemcnn_mesh::shapes;
use gemcnn_mesh::{DVec3, Mesh, read_mesh};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a command in a folder, and returns what it prints.
#[track_caller]
fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gemcnn"))
        .current_dir(folder)
        .env("GEMCNN_CACHE", folder.join("cache"))
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

fn ellipsoid(index: usize) -> Mesh {
    let stretch = DVec3::new(1.0, 1.0 + 0.1 * index as f64, 1.0);
    let sphere = shapes::icosphere(1).unwrap();
    sphere.map_vertices(|p| p * stretch).unwrap()
}

#[test]
fn faces_edges_and_whole_meshes_through_all_commands() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let data = here.join("data");
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
        let check = succeed(here, &["data", "check", "data", "--json", "--task", task]);
        let check: Value = serde_json::from_str(&check).unwrap();
        let (per, targets) = match task {
            "segmentation" => ("face", 80),
            _ => ("mesh", 1),
        };
        assert_eq!(check["per"], per);
        assert_eq!(check["parts"][2]["targets"], targets);
        let (config, run) = (format!("{task}.toml"), format!("runs/{task}"));
        fs::write(here.join(&config), format!("task = '{task}'\n{small}")).unwrap();
        succeed(here, &["train", &config, "--run-dir", &run, "-q", "--device", "cpu", "--up", "z"]);
        let scores = succeed(here, &["eval", &run, "--json", "--device", "cpu"]);
        let scores: Value = serde_json::from_str(&scores).unwrap();
        assert_eq!(scores["per"], per);
        assert_eq!(scores["scores"]["counted"], targets);
        succeed(here, &["view", &run, "-o", "view.html"]);
        let out = format!("out-{task}");
        succeed(here, &["predict", &run, "data/e0.ply", "-o", &out, "--device", "cpu"]);
        match task {
            "segmentation" => {
                let mesh = read_mesh(here.join(&out).join("e0.ply")).unwrap();
                assert_eq!(mesh.face_attributes[0].name, "label");
                assert_eq!(mesh.face_attributes[0].values.len(), 80);
                assert!(here.join(&out).join("e0.png").is_file());
            }
            _ => {
                assert_eq!(scores["regression"]["columns"][1]["name"], "twice");
                let table = fs::read_to_string(here.join(&out).join("values.csv")).unwrap();
                let rows: Vec<&str> = table.lines().collect();
                assert_eq!((rows.len(), rows[0]), (2, "mesh,value0,value1"));
                assert_eq!(rows[1].split(',').filter_map(|c| c.parse::<f32>().ok()).count(), 2);
            }
        }
    }
}
