//! `gemcnn view` as a user runs it, and its pages in a real browser.

use crate::browser::{Browser, WINDOW};
use gemcnn_mesh::remesh::{Subdivide, SubdivisionRule, remesh};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions, Cells, grid, icosphere};
use gemcnn_mesh::{AttributeValues, VertexAttribute, WriteOptions, write_mesh};
use gemcnn_view::page::Page;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

/// Text that would be markup or script if it were not shown as text.
const NAUGHTY_FILE: &str = "<img src=x onerror=document.title=1>.ply";
const NAUGHTY_FIELD: &str = "</script><b>part";

pub fn view(arguments: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gemcnn")).args(["--threads", "1", "view"]).args(arguments).output().unwrap()
}

/// Writes a page.
#[track_caller]
pub fn make_page(arguments: &[&Path]) {
    let output = view(arguments);
    assert!(output.status.success(), "{output:?}");
}

/// Two spheres with labels, heights and vectors, and the page of them.
struct Spheres {
    folder: tempfile::TempDir,
}

impl Spheres {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, squeeze) in [(NAUGHTY_FILE, 1.0), ("second.ply", 0.6)] {
            let mesh = icosphere(3).unwrap();
            let points = mesh.vertices().to_vec();
            let mesh = mesh.map_vertices(|p| p * gemcnn_mesh::DVec3::new(1.0, squeeze, 1.0));
            let third = |z: f64| 1 + i32::from(z > -0.2) + i32::from(z > 0.5);
            let column = |name: &str, values| VertexAttribute::new(name, values);
            let numbers = |value: &dyn Fn(usize) -> f64| {
                let values = (0..points.len()).map(|vertex| value(vertex) as f32);
                AttributeValues::F32(values.collect())
            };
            let labels = points.iter().map(|p| third(p.z)).collect();
            let columns = [
                column(NAUGHTY_FIELD, AttributeValues::I32(labels)),
                column("height", numbers(&|v| 2.0 * points[v].y)),
                column("vx", numbers(&|v| -points[v].y)),
                column("vy", numbers(&|v| points[v].x)),
                column("vz", numbers(&|_| 0.0)),
            ];
            let path = folder.path().join(name);
            write_mesh(path, &mesh.unwrap(), &columns, &WriteOptions::default()).unwrap();
        }
        Self { folder }
    }

    fn page(&self) -> PathBuf {
        let path = |name: &str| self.folder.path().join(name);
        let page = path("page.html");
        make_page(&[&path(NAUGHTY_FILE), &path("second.ply"), "-o".as_ref(), &page]);
        page
    }
}

/// The places of some vertices that face the eye, as [vertex, x, y].
fn facing(browser: &mut Browser) -> Vec<[f64; 3]> {
    let found = browser.evaluate(
        "(() => {
            const { stage } = gemcnn, view = stage.views[0], { model } = view, found = [];
            for (let v = 0; v < model.vertexCount; v += 7) {
                const place = view.world(model.point(v));
                const towards = view.camera.position.clone().sub(place).normalize();
                if (place.clone().normalize().dot(towards) > 0.6) found.push([v, ...stage.project(view, v)]);
            }
            return found;
        })()",
    );
    let found: Vec<[f64; 3]> = serde_json::from_value(found).unwrap();
    assert!(found.len() > 10, "{found:?}");
    found
}

#[test]
fn a_page_of_meshes_works_in_a_browser() {
    let spheres = Spheres::new();
    let page = spheres.page();
    let Some(mut browser) = Browser::start() else { return };
    browser.open_file(&page);
    assert_eq!(browser.requests().len(), 1, "{:?}", browser.requests());
    assert_eq!(browser.problems(), [""; 0]);
    names_are_text(&mut browser);
    picks_name_the_vertex(&mut browser);
    classes_can_be_hidden(&mut browser);
    the_colour_bar_has_the_range(&mut browser);
    cameras_are_linked(&mut browser);
    vectors_are_carried_around(&mut browser);
    strokes_follow_the_field(&mut browser, &spheres);
    assert_eq!(browser.problems(), [""; 0]);
    assert_eq!(browser.requests().len(), 1);
}

fn names_are_text(browser: &mut Browser) {
    let made = browser.evaluate("document.querySelectorAll('body img, body b').length");
    assert_eq!(made, json!(0));
    let name = browser.evaluate("document.querySelector('.mesh-name').textContent");
    assert_eq!(name, json!(NAUGHTY_FILE));
    let field = browser.evaluate("document.querySelector('#field').value");
    assert_eq!(field, json!(NAUGHTY_FIELD));
    let title = browser.evaluate("document.title");
    assert_eq!(title, json!(format!("{NAUGHTY_FILE} to second.ply")));
}

fn picks_name_the_vertex(browser: &mut Browser) {
    for [vertex, x, y] in facing(browser).into_iter().step_by(4) {
        browser.click(x, y);
        // The panel moves the meshes, so it is closed before the next pick.
        let picked = browser.evaluate("gemcnn.pick?.vertex ?? null");
        assert_eq!(picked, json!(vertex as u64));
        let title = browser.evaluate("document.querySelector('.inspector h2').textContent");
        assert_eq!(title, json!(format!("Vertex {vertex}")));
        // The same vertex corresponds on a mesh with the same faces.
        let partner = browser.evaluate("gemcnn.models[1].counterparts(gemcnn.pick.model, gemcnn.pick.vertex)");
        assert_eq!(partner, json!([vertex as u64]));
        let values = browser.evaluate("[...document.querySelectorAll('.inspector dt')].map((dt) => dt.textContent)");
        for wanted in ["position", "face", "height", "vectors", "first axis", "normal"] {
            assert!(values.as_array().unwrap().contains(&json!(wanted)), "{values}");
        }
        browser.press("Escape");
        browser.wait_for("document.querySelector('.inspector').hidden && !gemcnn.stage.dirty");
    }
}

/// Classes of the surface at the places of vertices, -1 where there is no surface.
fn classes_at(browser: &mut Browser, places: &[[f64; 3]]) -> Vec<i64> {
    let classes = browser.evaluate(&format!(
        "{}.map(([, x, y]) => {{
            const view = gemcnn.stage.views[0], hit = gemcnn.stage.pick(view, x, y);
            return hit ? view.model.fields.get({}).values[hit.vertex] : -1;
        }})",
        json!(places),
        json!(NAUGHTY_FIELD)
    ));
    serde_json::from_value(classes).unwrap()
}

fn classes_can_be_hidden(browser: &mut Browser) {
    let places = facing(browser);
    let before = classes_at(browser, &places);
    assert!(before.contains(&2) && before.contains(&1), "{before:?}");
    let legend = "[...document.querySelectorAll('.class')].map((b) => b.textContent)";
    let legend: Vec<String> = serde_json::from_value(browser.evaluate(legend)).unwrap();
    assert_eq!(legend.len(), 3);
    assert!(legend[2].starts_with('3'), "{legend:?}");
    browser.evaluate("document.querySelectorAll('.class')[2].click()");
    let hidden = classes_at(browser, &places);
    assert!(!hidden.contains(&2), "{hidden:?}");
    for (before, hidden) in before.iter().zip(&hidden) {
        assert!(*before == 2 || before == hidden, "{before} {hidden}");
    }
    browser.evaluate("document.querySelectorAll('.class')[2].click()");
    assert_eq!(classes_at(browser, &places), before);
}

fn the_colour_bar_has_the_range(browser: &mut Browser) {
    browser.evaluate("gemcnn.set({ field: 'height' })");
    let bar = browser.evaluate("document.querySelector('canvas.bar').getAttribute('aria-label')");
    assert_eq!(bar, json!("colour bar from -2 to 2"));
    browser.evaluate(
        "(() => { const low = document.querySelector('.range input'); low.value = -0.5; \
         low.dispatchEvent(new Event('change')); })()",
    );
    let range = browser.evaluate("gemcnn.stage.views.map((v) => v.surface.uniforms.range.value.toArray())");
    assert_eq!(range, json!([[-0.5, 2], [-0.5, 2]]));
    // The panel is made anew, but the focus stays.
    let focus = browser.evaluate(
        "(() => { document.querySelector('[data-key=flat]').focus(); document.activeElement.click(); \
         return document.activeElement.dataset.key; })()",
    );
    assert_eq!(focus, json!("flat"));
    browser.press("w");
    assert_eq!(browser.evaluate("gemcnn.stage.views[1].surface.uniforms.wire.value"), json!(true));
}

fn cameras_are_linked(browser: &mut Browser) {
    let cameras = "gemcnn.stage.views.map((v) => v.camera.position.toArray().map((x) => Math.round(1e4 * x)))";
    let settled = "!gemcnn.stage.dirty";
    let before = browser.evaluate(cameras);
    assert_eq!(before[0], before[1]);
    let boxes =
        "gemcnn.stage.views.map((v) => v.element.getBoundingClientRect()).map((r) => [r.left + 60, r.top + 60])";
    let places: Vec<(f64, f64)> = serde_json::from_value(browser.evaluate(boxes)).unwrap();
    let away = |(x, y): (f64, f64)| (x + 80.0, y + 30.0);
    browser.drag(places[1], away(places[1]));
    browser.wait_for(settled);
    let turned = browser.evaluate(cameras);
    assert_ne!(turned, before);
    assert_eq!(turned[0], turned[1]);
    browser.press("l");
    browser.drag(places[0], away(places[0]));
    browser.wait_for(settled);
    let apart = browser.evaluate(cameras);
    assert_eq!(apart[1], turned[1]);
    assert_ne!(apart[0], turned[0]);
    browser.press("l");
    browser.evaluate("gemcnn.stage.home()");
}

/// On a unit sphere, a loop turns a vector by the area that it encloses.
fn vectors_are_carried_around(browser: &mut Browser) {
    let found = browser.evaluate(
        "(() => {
            const { model } = gemcnn.stage.views[0];
            const nearest = (p) => [...Array(model.vertexCount).keys()].reduce((best, v) => {
                const away = (w) => Math.hypot(...model.position(w).map((x, i) => x - p[i]));
                return away(v) < away(best) ? v : best;
            });
            const corners = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map(nearest);
            gemcnn.set({ tool: 'transport' });
            for (const vertex of [...corners, corners[0]]) gemcnn.onPick(gemcnn.stage.views[0], { vertex });
            const { transport } = gemcnn;
            const area = transport.path.slice(1).reduce((sum, v, i) => {
                // Solid angle of the triangle of the centre of the octant and an edge of the path.
                const c = [1, 1, 1].map((x) => x / Math.sqrt(3)), a = model.position(transport.path[i]), b = model.position(v);
                const dot = (p, q) => p[0] * q[0] + p[1] * q[1] + p[2] * q[2];
                const triple = a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0]) + a[2] * (b[0] * c[1] - b[1] * c[0]);
                return sum + 2 * Math.atan2(triple, 1 + dot(a, b) + dot(b, c) + dot(c, a));
            }, 0) * 180 / Math.PI;
            const result = [transport.isLoop, transport.holonomy, area];
            gemcnn.set({ tool: 'pick' });
            return result;
        })()",
    );
    let (is_loop, turn, area): (bool, f64, f64) = serde_json::from_value(found).unwrap();
    assert!(is_loop && (area - 90.0).abs() < 12.0, "{area}");
    assert!((turn - area).abs() < 1.5, "{turn} {area}");
}

/// On a sheet all strokes of a constant field are parallel to it, and end at its border; on a sphere they go around
/// with the field.
fn strokes_follow_the_field(browser: &mut Browser, spheres: &Spheres) {
    let segments = |browser: &mut Browser| -> Vec<[f64; 6]> {
        browser.evaluate("gemcnn.set({ vectors: 'vectors', strokes: true })");
        let found = browser.evaluate(
            "(() => {
                const { from, along } = gemcnn.stage.views[0].tubes.object.geometry.attributes;
                return [...Array(from.count).keys()].map((i) => [from, along].flatMap((list) => [...list.array.subarray(3 * i, 3 * i + 3)]));
            })()",
        );
        serde_json::from_value(found).unwrap()
    };
    let around = segments(browser);
    assert!(around.len() > 2000, "{}", around.len());
    for [x, y, z, a, b, c] in around {
        // The field is (-y, x, 0), and the mesh fills the unit ball.
        let (turning, size) = (a * -y + b * x, (a * a + b * b + c * c).sqrt());
        let radius = (x * x + y * y).sqrt();
        assert!(radius < 0.3 || turning > 0.9 * size * radius, "{:?}", [x, y, z, a, b, c]);
    }
    let sheet = grid(12, 9, Cells::Triangles).unwrap();
    let constant = |value: f32| AttributeValues::F32(vec![value; sheet.vertex_count()]);
    let columns =
        [("vx", 0.6), ("vy", 0.8), ("vz", 0.0)].map(|(name, value)| VertexAttribute::new(name, constant(value)));
    let [path, page] = ["sheet.ply", "sheet.html"].map(|name| spheres.folder.path().join(name));
    write_mesh(&path, &sheet, &columns, &WriteOptions::default()).unwrap();
    make_page(&[&path, "-o".as_ref(), &page]);
    browser.open_file(&page);
    let straight = segments(browser);
    assert!(straight.len() > 500, "{}", straight.len());
    for [_, _, _, x, y, z] in straight {
        let size = (x * x + y * y + z * z).sqrt();
        assert!(0.6 * x + 0.8 * y > 0.999 * size || size < 1e-4, "{x} {y} {z}");
    }
}

/// Mean difference of the bytes of two pictures of the same size.
fn difference(a: &[u8], b: &[u8]) -> f64 {
    let pixels = |bytes: &[u8]| {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        ((info.width, info.height, info.color_type), pixels)
    };
    let ((size_a, a), (size_b, b)) = (pixels(a), pixels(b));
    assert_eq!(size_a, size_b);
    let sum: u64 = a.iter().zip(&b).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / a.len() as f64
}

#[test]
fn the_picture_is_the_stored_one() {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/view.png");
    let spheres = Spheres::new();
    let page = spheres.page();
    let Some(mut browser) = Browser::start() else { return };
    browser.open_file(&page);
    browser.evaluate("gemcnn.set({ vectors: 'vectors', wire: true })");
    browser.wait_for("!gemcnn.stage.dirty");
    // The meshes without the text beside them, which depends on the fonts of the system.
    let picture = browser.picture([280, 80, WINDOW.0 - 280, WINDOW.1 - 120], 0.25);
    if std::env::var_os("GEMCNN_STORE_PICTURE").is_some() {
        std::fs::write(&stored, &picture).unwrap();
    }
    let stored = std::fs::read(&stored).unwrap();
    let off = difference(&stored, &picture);
    assert!(off < 4.0, "the pictures differ by {off:.2} of 255 on average");
    // Another field is another picture: the comparison can fail.
    browser.evaluate("gemcnn.set({ field: 'height' })");
    browser.wait_for("!gemcnn.stage.dirty");
    let other = browser.picture([280, 80, WINDOW.0 - 280, WINDOW.1 - 120], 0.25);
    assert!(difference(&stored, &other) > 8.0);
}

/// The description in a page.
pub fn description(page: &Path) -> Value {
    let html = std::fs::read_to_string(page).unwrap();
    let start = "<script id=\"description\" type=\"application/json\">";
    let text = html.split(start).nth(1).unwrap();
    serde_json::from_str(text.split("</script>").next().unwrap()).unwrap()
}

#[test]
fn large_meshes_are_simplified_and_wrong_input_is_refused() {
    let spheres = Spheres::new();
    let (mesh, page) = (spheres.folder.path().join("second.ply"), spheres.folder.path().join("p.html"));
    make_page(&[&mesh, "--vertices".as_ref(), "200".as_ref(), "-o".as_ref(), &page]);
    let mesh_entry = &description(&page)["meshes"][0];
    let vertices = mesh_entry["vertices"].as_u64().unwrap();
    assert!((190..=200).contains(&vertices), "{vertices}");
    assert_eq!(mesh_entry["facts"].as_array().unwrap().len(), 1);
    for (arguments, code) in
        [(vec![Path::new("nothing.ply")], 1), (vec![spheres.folder.path(), Path::new("nothing.ply")], 1), (vec![], 2)]
    {
        assert_eq!(view(&arguments).status.code(), Some(code), "{arguments:?}");
    }
}

/// Sizes of pages and times to the first picture, as in docs/view.md.
#[test]
#[ignore = "a measurement: run it alone, with --nocapture"]
fn measure() {
    let folder = tempfile::tempdir().unwrap();
    let empty = Page::new("empty").to_html().unwrap().len();
    println!("page without data: {empty} bytes");
    let Some(mut browser) = Browser::start() else { return };
    for (vertices, levels) in [(6890, 0), (6250, 2), (15_625, 3)] {
        let options = BodyOptions { vertices, ..Default::default() };
        let body = BodyFamily::new(&options).unwrap().body(0);
        let mesh = match levels {
            0 => body,
            _ => remesh(&body, &Subdivide { rounds: levels, rule: SubdivisionRule::Loop }, 0).unwrap().mesh,
        };
        let path = folder.path().join("body.ply");
        mesh.write(&path).unwrap();
        let page = folder.path().join("page.html");
        let start = Instant::now();
        let made = view(&[&path, "-o".as_ref(), &page]);
        let writing = start.elapsed();
        assert!(made.status.success(), "{made:?}");
        let bytes = std::fs::metadata(&page).unwrap().len() as usize - empty;
        browser.open_file(&page);
        let decoded = browser.evaluate("gemcnn.decoded");
        // Reading a pixel waits until everything is drawn.
        let read = "const c = gemcnn.stage.renderer.getContext(); \
             c.readPixels(0, 0, 1, 1, c.RGBA, c.UNSIGNED_BYTE, new Uint8Array(4));";
        let first = browser.evaluate(&format!("(() => {{ {read} return performance.now(); }})()"));
        let frame = |moving: bool| {
            format!(
                "(() => {{ const start = performance.now(); \
                 for (let i = 0; i < 4; i++) {{ gemcnn.stage.turn(0.1, 0); gemcnn.stage.draw({moving}); }} \
                 {read} return (performance.now() - start) / 4; }})()"
            )
        };
        let [still, moving] = [false, true].map(|moving| browser.evaluate(&frame(moving)));
        let [decoded, first, still, moving] = [decoded, first, still, moving].map(|time| time.as_f64().unwrap());
        println!(
            "{} vertices: {:.1} bytes a vertex, written in {writing:.1?}, decoded after {decoded:.0} ms, \
             first picture after {first:.0} ms, then {still:.0} ms a picture, {moving:.0} ms while it turns",
            mesh.vertex_count(),
            bytes as f64 / mesh.vertex_count() as f64,
        );
    }
}

/// The pictures of docs/view.md: the example page, and a vector carried around on a sphere.
#[test]
#[ignore = "writes docs/pictures/view.png and transport.png"]
fn picture() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let Some(mut browser) = Browser::start() else { return };
    let (width, height) = (1280, 800);
    browser.resize(width, height);
    browser.open_file(&docs.join("view-example.html"));
    browser.evaluate("gemcnn.showOnly(0).then(() => gemcnn.set({ compare: 'truth' }, true))");
    browser.evaluate("gemcnn.goTo(gemcnn.models[0], gemcnn.worst()[0].vertex)");
    browser.evaluate("gemcnn.stage.home()");
    browser.wait_for("!gemcnn.stage.dirty");
    let picture = browser.picture([0, 0, width, height], 1.0);
    std::fs::write(docs.join("pictures/view.png"), picture).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [mesh, page] = ["sphere.ply", "page.html"].map(|name| folder.path().join(name));
    icosphere(3).unwrap().write(&mesh).unwrap();
    make_page(&[&mesh, "-o".as_ref(), &page]);
    browser.open_file(&page);
    browser.evaluate(
        "(() => {
            const [view] = gemcnn.stage.views, { model } = view;
            const nearest = (p) => [...Array(model.vertexCount).keys()].reduce((best, v) => {
                const away = (w) => Math.hypot(...model.position(w).map((x, i) => x - p[i]));
                return away(v) < away(best) ? v : best;
            });
            gemcnn.set({ tool: 'transport', wire: true });
            for (const p of [[1, 0, 0.2], [0, 1, 0.1], [0, 0, 1], [1, 0, 0.2]]) gemcnn.onPick(view, { vertex: nearest(p) });
        })()",
    );
    browser.wait_for("!gemcnn.stage.dirty");
    let picture = browser.picture([376, 46, 800, height - 46], 0.6);
    std::fs::write(docs.join("pictures/transport.png"), picture).unwrap();
}
