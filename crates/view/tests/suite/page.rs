//! Interactive pages: what is in the file, what is refused, and what becomes of large meshes.

use gemcnn_mesh::shapes::icosphere;
use gemcnn_mesh::{DVec3, Mesh};
use gemcnn_view::page::{ClassTable, Element, Field, Page, PageError, PageMesh, Report, UNKNOWN, Values};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

const HOSTILE: &str = "</script><script>alert(1)</script><!-- \u{2028} & \"quoted\"";

fn with_field(mesh: Mesh, field: Field) -> Page {
    let mut page = Page::new(HOSTILE);
    page.classes = vec![ClassTable::new(vec![HOSTILE.into(), "b".into()])];
    page.meshes.push(PageMesh { fields: vec![field], ..PageMesh::new(HOSTILE, mesh) });
    page
}

fn description(page: &Page) -> Value {
    serde_json::from_str(&page.encode().unwrap().description).unwrap()
}

/// If this fails, run `npm run build` in `crates/view/page`.
#[test]
fn the_bundle_is_made_from_the_sources() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let mut files: Vec<PathBuf> =
        (std::fs::read_dir(page.join("src")).unwrap()).map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut sources = Sha256::new();
    for file in files {
        sources.update(std::fs::read(file).unwrap());
    }
    let bytes = sources.finalize();
    let sum: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let bundle = std::fs::read_to_string(page.join("dist/page.js")).unwrap();
    let first = bundle.lines().next().unwrap();
    assert!(first.starts_with(&format!("/* sources {sum};")), "{first}");
}

#[test]
fn text_stays_within_its_element() {
    let labels = Values::Labels { table: 0, classes: vec![0; 12] };
    let mut page = with_field(icosphere(0).unwrap(), Field::new(HOSTILE, Element::Vertex, labels));
    page.notes.push(HOSTILE.into());
    page.report = Some(Report { configuration: HOSTILE.into(), ..Default::default() });
    let html = page.to_html().unwrap();
    // The description, the block of the mesh and the program, and nothing that text from outside opened.
    assert_eq!(html.matches("<script").count(), 3);
    assert_eq!(html.matches("</script").count(), 3);
    assert!(!html.contains("<!--"));
    let json = page.encode().unwrap().description;
    assert!(json.chars().all(|letter| !"<>&\u{2028}".contains(letter)));
    let description = description(&page);
    assert_eq!(description["title"], HOSTILE);
    assert_eq!(description["meshes"][0]["fields"][0]["name"], HOSTILE);
    assert_eq!(description["classes"][0]["names"][0], HOSTILE);
    assert_eq!(description["report"]["configuration"], HOSTILE);
}

#[test]
fn values_that_do_not_fit_the_mesh_are_refused() {
    let refused = |field| with_field(icosphere(0).unwrap(), field).encode().unwrap_err();
    let numbers = |count| Values::Numbers(vec![0.5; count]);
    match refused(Field::new("f", Element::Face, numbers(12))) {
        PageError::Length { what, found: 12, wanted: 20, .. } => assert_eq!(what, "f"),
        other => panic!("{other}"),
    }
    let labels = |table, class| Values::Labels { table, classes: vec![class; 12] };
    for values in [labels(0, 2), labels(1, 0)] {
        let error = refused(Field::new("f", Element::Vertex, values));
        assert!(matches!(error, PageError::UnknownClass { .. }), "{error}");
    }
    let unknown = Field::new("f", Element::Vertex, labels(0, UNKNOWN));
    with_field(icosphere(0).unwrap(), unknown).encode().unwrap();
    let mut page = Page::new("frames");
    page.meshes.push(PageMesh { frames: Some(Vec::new()), ..PageMesh::new("sphere", icosphere(0).unwrap()) });
    assert!(matches!(page.encode().unwrap_err(), PageError::Length { found: 0, wanted: 12, .. }));
}

#[test]
fn large_meshes_are_simplified_with_their_fields() {
    let sphere = icosphere(3).unwrap();
    let heights = sphere.vertices().iter().map(|p| p.z as f32).collect();
    let field = Field::new("height", Element::Vertex, Values::Numbers(heights));
    let mut page = with_field(sphere.clone(), field);
    page.meshes[0].fields.push(Field::new("face", Element::Face, Values::Numbers(vec![0.0; sphere.face_count()])));
    page.most_vertices = 200;
    let entry = description(&page)["meshes"][0].clone();
    let vertices = entry["vertices"].as_u64().unwrap();
    assert!((180..=200).contains(&vertices), "{vertices}");
    let names: Vec<&str> =
        (entry["fields"].as_array().unwrap().iter()).map(|field| field["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["height", "original vertex"]);
    let span = 65_534.0 * entry["fields"][0]["step"].as_f64().unwrap();
    assert!((span - 2.0).abs() < 0.1, "{span}");
    page.most_vertices = 642;
    assert_eq!(description(&page)["meshes"][0]["vertices"], 642);
}

#[test]
fn meshes_with_the_same_faces_are_registered() {
    let sphere = icosphere(1).unwrap();
    let flat = sphere.map_vertices(|p| p * DVec3::new(1.0, 1.0, 0.1)).unwrap();
    let mut page = Page::new("three");
    for mesh in [sphere, icosphere(2).unwrap(), flat] {
        page.meshes.push(PageMesh::new("mesh", mesh));
    }
    let meshes = description(&page)["meshes"].clone();
    let kinds: Vec<u64> =
        (meshes.as_array().unwrap().iter()).map(|mesh| mesh["registration"].as_u64().unwrap()).collect();
    assert!(kinds[0] == kinds[2] && kinds[0] != kinds[1], "{kinds:?}");
}

#[test]
fn extreme_meshes_have_a_page() {
    let triangle = |scale: f64| {
        let points = [DVec3::ZERO, DVec3::X, DVec3::Y].map(|p| scale * p + DVec3::splat(scale));
        Mesh::new(points.into(), [[0, 1, 2]].iter().collect()).unwrap()
    };
    let empty = Mesh::new(Vec::new(), Default::default()).unwrap();
    let point = Mesh::new(vec![DVec3::ONE], Default::default()).unwrap();
    for mesh in [empty, point, triangle(0.0), triangle(1e300), triangle(1e-300)] {
        let mut page = Page::new("extreme");
        page.meshes.push(PageMesh::new("mesh", mesh));
        let step = description(&page)["meshes"][0]["step"].as_f64().unwrap();
        assert!(step > 0.0 && step.is_finite(), "{step}");
    }
}
