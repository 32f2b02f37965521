//! Pages of training runs, finished and live.

use crate::browser::Browser;
use crate::train::{Project, signal, wait_until};
use crate::view::{description, make_page};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;

#[test]
fn a_page_of_a_run_shows_its_curves_errors_and_predictions() {
    let shop = Project::new("epochs = 3\nseed = 1\n");
    shop.model(&["run.toml", "--run-dir", "run"], "run");
    let (run, page) = (shop.path("run"), shop.path("run.html"));
    make_page(&[&run, "--with-model".as_ref(), &run, "-o".as_ref(), &page]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open_file(&page);
    assert_eq!(browser.problems(), [""; 0]);
    let report = browser.evaluate("gemcnn.data.description.report");
    let points = &report["curves"][0]["series"][0]["points"];
    assert_eq!(points.as_array().unwrap().len(), 3);
    // The confusion counts every vertex of the held-out meshes once.
    let counts: Vec<Vec<u64>> = serde_json::from_value(report["confusion"]["counts"].clone()).unwrap();
    let vertices = browser.evaluate("gemcnn.data.description.meshes.reduce((n, m) => n + m.vertices, 0)");
    assert_eq!(json!(counts.iter().flatten().sum::<u64>()), vertices);
    let ranking = report["ranking"].as_array().unwrap();
    let scores: Vec<f64> = ranking.iter().map(|r| r["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted() && scores.len() == 2, "{scores:?}");
    // The accuracy of a mesh is that of the fields in the page, and probabilities add up.
    let share = browser.evaluate(
        "(() => { const { fields } = gemcnn.data.models[0], t = fields.get('truth').values, p = fields.get('prediction').values;
            return t.filter((x, i) => x === p[i]).length / t.length; })()",
    );
    assert!((share.as_f64().unwrap() - scores[0]).abs() < 1e-9);
    let sums = browser.evaluate(
        "(() => { const chances = [...gemcnn.data.models[0].fields.values()].filter((f) => f.role === 'probability');
            return [chances.length, ...[0, 5, 9].map((v) => chances.reduce((sum, f) => sum + f.values[v], 0))]; })()",
    );
    let sums: Vec<f64> = serde_json::from_value(sums).unwrap();
    assert!(sums[0] == 2.0 && sums[1..].iter().all(|sum| (sum - 1.0).abs() < 1e-3), "{sums:?}");
    browser.evaluate("document.querySelectorAll('[role=tab]')[1].click()");
    browser.wait_for("document.querySelectorAll('.chart svg').length >= 3");
    let lines = browser.evaluate("document.querySelectorAll('.chart .line').length");
    assert!(lines.as_u64().unwrap() >= 5);
    browser.evaluate("document.querySelector('.ranking button').click()");
    browser.wait_for("document.body.dataset.tab === 'meshes' && gemcnn.stage.views.length === 1");
    let worst = browser.evaluate(
        "(() => { const { model, vertex } = gemcnn.pick, e = model.byRole('error').values; return e[vertex] === Math.max(...e); })()",
    );
    assert_eq!(worst, json!(true));
    dropped_meshes_are_predicted(&mut browser, &shop);
    assert_eq!(browser.problems(), [""; 0]);
    let others = browser.requests().split_off(1);
    let own = |address: &String| address.starts_with("blob:") || address.starts_with("data:");
    assert!(others.iter().all(own), "{others:?}");
}

/// Drops a file on the page, and waits until it is done with it.
fn drop_file(browser: &mut Browser, name: &str, bytes: &[u8]) {
    browser.evaluate(&format!(
        "(() => {{
            const files = new DataTransfer();
            files.items.add(new File([Uint8Array.from(atob('{}'), (c) => c.charCodeAt(0))], {}));
            const drop = new DragEvent('drop', {{ dataTransfer: files, bubbles: true, cancelable: true }});
            document.querySelector('.stage').dispatchEvent(drop);
        }})()",
        BASE64_STANDARD.encode(bytes),
        json!(name)
    ));
    browser.wait_for(&format!(
        "(({{ predictions, stage: {{ views }} }}) => !predictions.status.startsWith('computing') && (predictions.problem !== '' || \
         (views.length === 1 && views[0].label === {})))(gemcnn)",
        json!(name)
    ));
}

/// The page computes the labels of `gemcnn predict`, shows the error of a file that is none, and goes on.
fn dropped_meshes_are_predicted(browser: &mut Browser, shop: &Project) {
    let predicted = shop
        .command(env!("CARGO_BIN_EXE_gemcnn"))
        .args(["--threads", "1", "predict", "run", "spheres/sphere3.ply"])
        .args(["-o", "out", "--no-pictures", "--probabilities"])
        .args(["--device", "cpu"])
        .output()
        .unwrap();
    assert!(predicted.status.success(), "{predicted:?}");
    let file = gemcnn_mesh::read_mesh(shop.path("out/sphere3.ply")).unwrap();
    let column = |name: &str| -> Vec<f64> {
        let mut columns = file.attributes.iter();
        let column = columns.find(|column| column.name == name).unwrap();
        column.values.iter_f64().collect()
    };
    let numbers =
        |browser: &mut Browser, text: &str| -> Vec<f64> { serde_json::from_value(browser.evaluate(text)).unwrap() };
    // The page itself computes nothing: a worker does.
    browser.evaluate("WebAssembly.compile = () => Promise.reject(new Error('in the page'))");
    let before = browser.evaluate("gemcnn.data.count");
    drop_file(browser, "broken.ply", b"ply\nformat binary");
    let problem = browser.evaluate("document.querySelector('[role=alert]').textContent");
    assert!(problem.as_str().unwrap().contains("broken.ply"));
    assert_eq!(browser.evaluate("gemcnn.data.count"), before);
    // As binary PLY, and as text in another format.
    let other = shop.path("other.off");
    file.mesh.write(&other).unwrap();
    for (name, path) in [("sphere3.ply", shop.path("spheres/sphere3.ply")), ("other.off", other)] {
        drop_file(browser, name, &std::fs::read(path).unwrap());
        let problem = browser.evaluate("gemcnn.predictions.problem");
        assert_eq!(problem, json!(""));
        let shown = browser.evaluate("gemcnn.models.map((model) => model.name)");
        assert_eq!(shown, json!([name]));
        let labels = numbers(browser, "[...gemcnn.models[0].byRole('prediction').values]");
        assert_eq!(labels, column("label"));
        let surest = numbers(
            browser,
            "(() => { const chances = [...gemcnn.models[0].fields.values()].filter((f) => f.role === 'probability');
                return [...chances[0].values].map((_, v) => Math.max(...chances.map((f) => f.values[v]))); })()",
        );
        for (found, wanted) in surest.iter().zip(column("confidence")) {
            assert!((found - wanted).abs() < 1e-4, "{found} {wanted}");
        }
    }
    let legend = browser.evaluate("document.querySelectorAll('.class').length");
    assert_eq!(legend, json!(2));
    // A browser that allows no workers.
    browser.open_file(&shop.path("run.html"));
    browser.evaluate("window.Worker = undefined");
    let bytes = std::fs::read(shop.path("spheres/sphere3.ply")).unwrap();
    drop_file(browser, "sphere3.ply", &bytes);
    let labels = numbers(browser, "[...gemcnn.models[0].byRole('prediction').values]");
    assert_eq!(labels, column("label"));
}

#[test]
fn a_run_without_its_data_still_has_its_curves() {
    let shop = Project::new("epochs = 1\nseed = 1\n");
    shop.model(&["run.toml", "--run-dir", "run"], "run");
    std::fs::remove_dir_all(shop.path("spheres")).unwrap();
    let page = shop.path("run.html");
    make_page(&[&shop.path("run"), "-o".as_ref(), &page]);
    let description = description(&page);
    assert_eq!(description["notes"].as_array().unwrap().len(), 1);
    assert!(!description["meshes"].as_array().unwrap().is_empty());
    assert_eq!(description["meshes"][0]["fields"][0]["role"], "prediction");
    assert_eq!(description["report"]["curves"][0]["name"], "Loss");
}

/// Trains an epoch of another task on the spheres of a project, and gives the description of its page.
fn page_of_task(shop: &Project, task: &str, data: &str) -> Value {
    let settings = std::fs::read_to_string(shop.path("run.toml")).unwrap();
    let settings = settings.replace("'segmentation'", &format!("'{task}'"));
    std::fs::write(shop.path("run.toml"), settings).unwrap();
    let data = format!("task = '{task}'\n{data}");
    std::fs::write(shop.path("spheres/dataset.toml"), data).unwrap();
    shop.model(&["run.toml", "--run-dir", "run"], "run");
    let page = shop.path("run.html");
    make_page(&[&shop.path("run"), "-o".as_ref(), &page]);
    description(&page)
}

/// Name, kind and role of each field of a mesh, without features.
fn fields(mesh: &Value) -> Vec<[String; 3]> {
    let fields = mesh["fields"].as_array().unwrap().iter();
    let fields = fields.filter(|field| field["role"] != "feature");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    fields.map(|field| ["name", "kind", "role"].map(|key| text(&field[key]))).collect()
}

#[test]
fn pages_of_other_tasks_have_their_fields() {
    let shop = Project::new("epochs = 1");
    let page = page_of_task(&shop, "correspondence", "meshes = 'sphere[02468].ply'");
    let meshes = page["meshes"].as_array().unwrap();
    assert_eq!((meshes.len(), &meshes[0]["name"]), (2, &json!("template")));
    let points = [["colours", "colours", ""], ["point", "numbers", "point"]];
    assert_eq!(fields(&meshes[0]), points);
    assert_eq!(fields(&meshes[1])[..2], points);
    assert_eq!(fields(&meshes[1])[2..], [["error", "numbers", "error"]]);
    assert_eq!(page["report"]["confusion"], Value::Null);

    let shop = Project::new("epochs = 1");
    for index in 0..10 {
        let mesh = shop.path(&format!("spheres/sphere{index}.ply"));
        let mesh = gemcnn_mesh::Mesh::read(mesh).unwrap();
        let row = |p: &gemcnn_mesh::DVec3| format!("{},{},0\n", -p.y, p.x);
        let rows: String = mesh.vertices().iter().map(row).collect();
        std::fs::write(shop.path(&format!("spheres/sphere{index}.csv")), rows).unwrap();
    }
    let target = "[target]\nfiles = '{stem}.csv'\nvectors = true";
    let page = page_of_task(&shop, "regression", target);
    assert_eq!(
        fields(&page["meshes"][0]),
        [
            ["truth vectors", "vectors", "truth"],
            ["prediction vectors", "vectors", "prediction"],
            ["error", "numbers", "error"]
        ]
    );
    let scores = page["report"]["ranking"].as_array().unwrap().iter();
    let scores: Vec<f64> = scores.map(|r| r["score"].as_f64().unwrap()).collect();
    assert!(scores.len() == 2 && scores[0] >= scores[1], "{scores:?}");
}

/// Status and body of the answer to a request.
fn ask(address: &str, request: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
}

/// A run that ends with the test.
struct Training(Child);

impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_run_can_be_watched_while_it_trains() {
    let shop = Project::new("epochs = 100000\ncheckpoint = { minutes = 10.0 }");
    let arguments = ["run.toml", "--run-dir", "run", "--view"];
    let mut training = Training(shop.gemcnn(&arguments).spawn().unwrap());
    let mut lines = BufReader::new(training.0.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        let address = line.split_once("http://")?.1;
        Some(address.trim_end_matches('/').to_owned())
    });
    let address = address.unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    // What the command prints from now on is not read, but must not block it.
    let drain = std::thread::spawn(move || lines.count());
    let get = |path: &str| ask(&address, &format!("GET {path}"), &address);
    assert!(get("/").1.starts_with("<!doctype html>"));
    for path in ["/config.toml", "/../config.toml", "/metrics.jsonl", "//", "/report.json/"] {
        assert_eq!(get(path), (404, String::new()), "{path}");
    }
    assert_eq!(ask(&address, "POST /", &address).0, 405);
    assert_eq!(ask(&address, "GET /", "elsewhere.example").0, 403);
    assert_eq!(ask(&address, "nonsense", &address).0, 405);
    let report = || serde_json::from_str::<Value>(&get("/report.json").1).unwrap();
    let epochs = |report: &Value| match &report["report"]["curves"][0]["series"][0]["points"] {
        Value::Array(points) => points.len(),
        other => panic!("{other}"),
    };
    let is_shown = |report: Value| epochs(&report) > 2 && report["meshes"].as_u64() > Some(0);
    wait_until(|| is_shown(report()), "nothing is reported");
    let meshes: Value = serde_json::from_str(&get("/meshes.json").1).unwrap();
    assert_eq!(meshes["description"]["meshes"].as_array().unwrap().len(), 2);
    assert_eq!(meshes["blocks"].as_array().unwrap().len(), 2);
    if let Some(mut browser) = Browser::start() {
        browser.open(&format!("http://{address}/"));
        browser.wait_for("gemcnn.stage.views.length === 2 && gemcnn.state.field === 'prediction'");
        browser.wait_for("document.querySelectorAll('.chart .line').length >= 3");
        let epochs = "gemcnn.data.description.report.curves[0].series[0].points.length";
        let before = browser.evaluate(epochs);
        browser.wait_for(&format!("{epochs} > {before}"));
        let shown = browser.evaluate("gemcnn.history.at(-1).epoch");
        assert!(shown.as_u64() > Some(0), "{shown}");
        let own = format!("http://{address}/");
        assert!(browser.requests().iter().all(|request| request.starts_with(&own)));
        assert_eq!(browser.problems(), [""; 0]);
    }
    // The browser is gone, and the run goes on.
    let seen = epochs(&report());
    wait_until(|| epochs(&report()) > seen, "the run does not go on");
    signal(&training.0, "TERM");
    assert_eq!(training.0.wait().unwrap().code(), Some(130));
    assert!(TcpStream::connect(&address).is_err());
    drain.join().unwrap();
}
