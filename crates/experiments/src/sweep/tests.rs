//! Sweeps that come with the program, and messages about wrong files.

use super::*;
use crate::pde;
use gemcnn_tasks::data::DataConfig;
use gemcnn_tasks::train::RunConfig;
use sha2::{Digest, Sha256};

/// Sweep, world if there are several, row, and start of the SHA-256 of the configuration of the run with seed 2. A
/// configuration that changes makes old directories useless. Replace the number only if that is wanted, or if there is a
/// new setting whose default does what was done before.
const CONFIGURATIONS: &str = include_str!("configurations.txt");

fn digest(config: &RunConfig) -> String {
    let digest = Sha256::digest(config.to_json().unwrap().to_string());
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn runs_of_built_in_sweeps_keep_their_configurations() {
    let mut sweeps = built_in().unwrap();
    sweeps.push(("pde", pde::sweep().unwrap()));
    let mut found = String::new();
    for (name, sweep) in &mut sweeps {
        for world in sweep.world_names().into_iter().map(String::from).collect::<Vec<_>>() {
            if !world.is_empty() {
                sweep.set_data(&world, DataConfig::Folder("/data".into()));
            }
            for row in sweep.rows.names() {
                let config = sweep.config(&world, row, 2).unwrap();
                let name = if world.is_empty() { name.to_string() } else { format!("{name} {world}") };
                found += &format!("{name} {row} {}\n", digest(&config));
            }
        }
    }
    let mut lines = [&found, CONFIGURATIONS].map(|text| text.lines().collect::<Vec<_>>());
    lines.iter_mut().for_each(|lines| lines.sort_unstable());
    assert_eq!(lines[0], lines[1]);
}
