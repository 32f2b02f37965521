//! A real browser, driven by its debugging protocol over two named pipes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);
const PROGRAMS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
/// Size of the window in pixels.
pub const WINDOW: (u32, u32) = (1000, 600);

/// A headless browser with one page.
pub struct Browser {
    process: Child,
    to: File,
    from: BufReader<File>,
    session: String,
    calls: u64,
    /// Events that no call waited for.
    pub events: VecDeque<Value>,
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Starts the browser; `None`, with a loud note, if there is none. `GEMCNN_REQUIRE_BROWSER` makes that a failure.
    pub fn start() -> Option<Self> {
        let runs = |program: &&&str| {
            let mut command = Command::new(program);
            let command = command.arg("--version").stderr(Stdio::null());
            command.output().is_ok_and(|output| output.status.success())
        };
        let Some(program) = PROGRAMS.iter().find(runs) else {
            let note = "SKIPPED: the tests in a browser, because Chromium is not installed";
            assert!(std::env::var_os("GEMCNN_REQUIRE_BROWSER").is_none(), "{note}");
            // Past the capture of the test program, so that it is seen.
            let _ = writeln!(std::io::stderr(), "\n{note} (apt-get install chromium)\n");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let pipes = ["to", "from"].map(|name| folder.path().join(name));
        let made = Command::new("mkfifo").args(&pipes).status().unwrap();
        assert!(made.success());
        let profile = folder.path().join("profile");
        let process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<\"$TO\" 4>\"$FROM\"", "sh", program])
            .args(["--headless", "--no-sandbox", "--remote-debugging-pipe"])
            .args(["--use-angle=swiftshader", "--enable-unsafe-swiftshader"])
            .args(["--hide-scrollbars", "--disable-background-networking"])
            .arg(format!("--window-size={},{}", WINDOW.0, WINDOW.1))
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .env("TO", &pipes[0])
            .env("FROM", &pipes[1])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = OpenOptions::new().write(true).open(&pipes[0]).unwrap();
        let from = BufReader::new(File::open(&pipes[1]).unwrap());
        let mut browser =
            Self { process, to, from, session: String::new(), calls: 0, events: VecDeque::new(), _folder: folder };
        let made = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": made["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].as_str().unwrap().into();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.resize(WINDOW.0, WINDOW.1);
        Some(browser)
    }

    /// Sets the size of the window in pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let mut answer = Vec::new();
            self.from.read_until(0, &mut answer).unwrap();
            assert_eq!(answer.pop(), Some(0), "the browser ended; it ran `{method}`");
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == json!(self.calls) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    /// Value of an expression, after its promise if it is one.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self
            .call("Runtime.evaluate", json!({ "expression": expression, "awaitPromise": true, "returnByValue": true }));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn wait_for(&mut self, expression: &str) {
        let start = Instant::now();
        while self.evaluate(expression) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "{expression}: {:?}", self.problems());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens an address and waits until the page has drawn its first picture.
    pub fn open(&mut self, address: &str) {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": address }));
        self.wait_for("Boolean(document.body && 'ready' in document.body.dataset)");
    }

    /// Opens a file.
    pub fn open_file(&mut self, path: &Path) {
        self.open(&format!("file://{}", path.canonicalize().unwrap().display()));
    }

    /// Errors and warnings of the page, and errors of the browser about it, since the page was opened.
    pub fn problems(&self) -> Vec<String> {
        let is_problem = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"] != "log",
            // Drivers may warn of slow calls.
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        let problems = self.events.iter().filter(is_problem);
        problems.map(Value::to_string).collect()
    }

    /// Addresses that the page asked for since it was opened, itself first.
    pub fn requests(&self) -> Vec<String> {
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        let address = |event: &Value| event["params"]["request"]["url"].as_str().map(String::from);
        requests.filter_map(address).collect()
    }

    /// Clicks at a place of the window.
    pub fn click(&mut self, x: f64, y: f64) {
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Drags the mouse from one place to another.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        for (kind, (x, y)) in [("mousePressed", from), ("mouseMoved", to), ("mouseReleased", to)] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key }));
        }
    }

    /// A part of the window as a PNG file, by left, top, width and height, at a scale.
    pub fn picture(&mut self, [x, y, width, height]: [u32; 4], scale: f64) -> Vec<u8> {
        let clip = json!({ "x": x, "y": y, "width": width, "height": height, "scale": scale });
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png", "clip": clip }));
        BASE64_STANDARD.decode(answer["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
