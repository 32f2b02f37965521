//! Mutation fuzzing of all readers of data sets and configurations: no input panics, and every error message is one line.
//!
//! `GEMCNN_FUZZ_INPUTS=1000000 cargo test -p gemcnn-tasks --lib data::fuzz` reads that many inputs of each kind. Every input
//! is made from its number alone, so a failure is repeated by running it again.

use super::description::{Column, Description};
use super::extras::{Eigenvectors, ImplicitDiffusion};
use super::mesh_classes::rows_of_list;
use super::meshes::Item;
use super::patches::{Patches, SparseMaps};
use super::pattern::Pattern;
use super::preparation::{HierarchySettings, Preparation};
use super::source::TargetSource;
use super::table::TextTable;
use super::{entry, npy, npy_f32, npy_i64};
use crate::features::{FeatureError, Surface};
use crate::{DataError, Element};
use gemcnn_mesh::remesh::SurfacePoint;
use gemcnn_mesh::{NeighbourWeights, shapes};
use gemcnn_nn::{Elements, PatchBatch, SparseMap};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Inputs of each kind.
fn inputs() -> u64 {
    let given = std::env::var("GEMCNN_FUZZ_INPUTS");
    given.map_or(20_000, |count| count.parse().expect("GEMCNN_FUZZ_INPUTS is a number"))
}

/// A seed with one to four mutations: bytes replaced, removed, repeated, or replaced by special words.
fn mutated(seeds: &[Vec<u8>], number: u64) -> Vec<u8> {
    const WORDS: [&str; 12] =
        ["-1", "nan", "inf", "1e400", "99999999999999999999", "\"", ",", "(", "'", "\r", "\u{feff}", "-0"];
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let mut bytes = seeds.choose(&mut random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(1..=4) {
        let at = random.random_range(0..=bytes.len());
        let end = (at + random.random_range(0..12)).min(bytes.len());
        match random.random_range(0..5) {
            0 if at < bytes.len() => bytes[at] = random.random(),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => bytes.truncate(at),
            _ => {
                let word = WORDS.choose(&mut random).copied().unwrap_or_default();
                bytes.splice(at..end, word.bytes());
            }
        }
    }
    bytes
}

/// Number of mutated inputs that are still valid. Error messages must be one line.
pub(crate) fn survivors<E: ToString>(seeds: &[&[u8]], read: impl Fn(&[u8]) -> Result<(), E>) -> usize {
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    for seed in &seeds {
        assert!(read(seed).is_ok(), "the seeds are valid");
    }
    let is_read = |&number: &u64| match read(&mutated(&seeds, number)) {
        Ok(()) => true,
        Err(error) => {
            let message = error.to_string();
            assert!(!message.trim_end().contains('\n'), "{message}");
            false
        }
    };
    (0..inputs()).filter(is_read).count()
}

#[test]
fn npy_files() {
    let (a, b) = (npy_f32(&[1.0; 6], Some(3)), npy_i64(&[1, 2, 3]));
    let read = |bytes: &[u8]| npy::parse(Path::new("a.npy"), bytes).map(drop);
    let read_still = survivors(&[&a, &b], read);
    assert!((100..inputs() as usize - 100).contains(&read_still));
}

#[test]
fn tables() {
    let seeds: [&[u8]; 3] = [b"x,y\n1,2\n\"3\",4\n", b"# labels\n1\n-1\n\n2\n", b"a;b;c\r\n1;;3\r\n"];
    for name in ["a.csv", "a.txt", "a.seg"] {
        let read = |bytes: &[u8]| {
            let table = TextTable::parse(Path::new(name), bytes)?;
            let names = HashMap::from([("a", 1.0)]);
            table.numbers(Path::new(name), &names).map(|table| {
                assert_eq!(table.values.len(), table.rows() * table.columns);
            })
        };
        let seeds = match name {
            "a.csv" => &seeds[..],
            _ => &seeds[1..2],
        };
        assert!(survivors(seeds, read) > 100);
    }
}

#[test]
fn words_of_labels() {
    let columns = [Column::Number(1), Column::Name("part".into())];
    let text: [&[u8]; 2] = [b"gum\ntooth\n-1\ngum\n\n12\n", b"vertex,part\n0,gum\n1,tooth\n2,\n"];
    let json: [&[u8]; 3] =
        [b"{\"jaw\": \"upper\", \"labels\": [0, 11, -1]}", b"[1, 2.5, null]", b"[\"gum\", \"tooth\", 3]"];
    for (name, seeds) in [("a.txt", &text[..1]), ("a.csv", &text), ("a.json", &json)] {
        let path = Path::new(name);
        let read = |bytes: &[u8]| {
            let table = TextTable::parse(path, bytes)?;
            for columns in [&[][..], &columns[..1], &columns[1..], &columns] {
                let rows = table.rows.len();
                let words = table.words(columns).unwrap_or_default();
                assert!(words.count + words.numbers + usize::from(words.first.is_some()) <= rows);
                assert!(words.words.len() <= words.count && words.integers.len() <= words.numbers);
            }
            Ok::<(), DataError>(())
        };
        assert!(survivors(seeds, read) > 100);
    }
}

#[test]
fn lists_of_classes() {
    let items: Vec<Item> = (0..4).map(|number| Item::new(format!("shapes/T{number}.off"), "")).collect();
    let seed = b"PSB 1\n2 4\n\nant 0 2\n0\n2\n\nbear 0 2\nT1\nshapes/T3.off\n";
    let read = |bytes: &[u8]| {
        let path = Path::new("a.cla");
        let mut rows = TextTable::parse(path, bytes)?.rows;
        rows.retain(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
        rows_of_list(path, &rows, &items).map(|found| assert!(found.len() <= rows.len()))
    };
    assert!(survivors(&[seed], read) > 100);
}

#[test]
fn descriptions() {
    let seeds: [&[u8]; 2] = [
        b"task = 'segmentation'\nclasses = ['a', 'b']\nunknown = [255]\n[target]\n\
          files = '{name}.npy'\n[split]\nfractions = { train = 0.5, test = 0.5 }\nseed = 3\n",
        b"task = 'regression'\nmeshes = '*/*.vtp'\n[target]\nfiles = '{folder:1}/labels/{stem:2}.json'\ncolumn = ['x', 1]\n\
          [split.patterns]\ntest = ['a*', '[0-9]?/**']\n",
    ];
    let item = Item::new("patients/01/01_upper.obj", "");
    let read = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => {
            // Messages of TOML have several lines: only panics count here.
            if let Ok(description) = toml::from_str::<Description>(text) {
                let _ = description.check();
                let source = TargetSource::new(Path::new("data"), &description);
                assert!(source.file(&item).is_none_or(|file| file.starts_with("data") || file.is_absolute()));
                let _ = Pattern::new(&description.meshes).matches("a/b.vtp");
            }
            Ok::<(), String>(())
        }
        Err(error) => Err(error.to_string()),
    };
    survivors(&seeds, read);
}

/// Two maps that copy the vertices, the second with weights and angles.
#[derive(Debug, serde::Serialize)]
struct EachVertex {}

impl Patches for EachVertex {
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<SparseMap>, FeatureError> {
        let vertices: Vec<u32> = (0..surface.mesh.vertex_count() as u32).collect();
        let weighted = SparseMap::weighted(vertices.iter().map(|&v| [(v, 0.5)]));
        let turned = SparseMap { angles: vec![0.25; vertices.len()], ..weighted };
        Ok(vec![SparseMap::copies(vertices), turned])
    }
}

/// Entries are protected by a checksum, but decoding must be safe without it.
#[test]
fn entries() {
    let mesh = shapes::icosphere(0).unwrap();
    let prepare = |preparation: &Preparation| {
        let (sample, mesh) = preparation.prepare_mesh("a", &mesh, &Default::default()).unwrap();
        entry::Entry { sample, mesh, sources: Vec::new() }
    };
    let encode = |entry: &entry::Entry, preparation: &Preparation| entry::encode(entry, preparation).unwrap();
    let decode = |bytes: &[u8], preparation: &Preparation| entry::decode("a", bytes, preparation);
    let plain = Preparation::default();
    let bytes = encode(&prepare(&plain), &plain);
    let read = |bytes: &[u8]| decode(bytes, &plain).map(drop).ok_or("refused");
    survivors(&[&bytes], read);
    let with = |extras| Preparation { extras: vec![extras], ..Preparation::default() };
    let spectral = with(Eigenvectors([5, 0, 3]).into());
    let levels = Preparation {
        hierarchy: Some(HierarchySettings { ratios: vec![0.5], radii: vec![3.0], neighbour_limit: 8 }),
        ..Preparation::default()
    };
    let with_spectra = encode(&prepare(&spectral), &spectral);
    assert!(decode(&with_spectra, &spectral).is_some());
    assert!(decode(&bytes, &spectral).is_none());
    let sparse = Preparation { weights: NeighbourWeights::Jets, per: Element::Edge, ..with(ImplicitDiffusion.into()) };
    let mut with_heat = prepare(&sparse);
    with_heat.sources = (0..12).map(SurfacePoint::vertex).collect();
    let edges = with_heat.sample.extras.get::<Elements<f32>>().unwrap().with_origins((0..30).collect());
    with_heat.sample.extras.insert(Arc::new(edges));
    let encoded = encode(&with_heat, &sparse);
    assert_eq!(decode(&encoded, &sparse), Some(with_heat));
    let patched = with(SparseMaps::new("each vertex", EachVertex {}).into());
    let with_patches = prepare(&patched);
    assert_eq!(with_patches.sample.extras.get::<PatchBatch<f32>>().unwrap().parts()[0].maps.len(), 2);
    let patches = encode(&with_patches, &patched);
    assert_eq!(decode(&patches, &patched), Some(with_patches));
    assert!(decode(&bytes, &patched).is_none());
    let read = |bytes: &[u8]| {
        for preparation in [&levels, &spectral, &sparse, &patched] {
            let _ = decode(bytes, preparation);
        }
        Ok::<(), String>(())
    };
    survivors(&[&bytes, &with_spectra, &encoded, &patches], read);
}
