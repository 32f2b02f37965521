//! A web server for one page on this machine: loopback only, read only, and only its own paths.

use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest request in bytes.
const MAX_BYTES: u64 = 16_384;
/// Most connections at a time; further ones are closed.
const MAX_CONNECTIONS: usize = 32;
/// A connection that is silent for this long is closed.
const SILENCE: Duration = Duration::from_secs(5);

/// The content of an answer.
pub struct Answer {
    kind: &'static str,
    body: Arc<str>,
}

impl Answer {
    pub fn html(body: Arc<str>) -> Self {
        let kind = "text/html; charset=utf-8";
        Self { kind, body }
    }

    pub fn json(body: Arc<str>) -> Self {
        let kind = "application/json";
        Self { kind, body }
    }
}

/// A running server. It ends when it is dropped.
pub struct Server {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the paths for which `answer` has an answer, at a free port.
    pub fn start(answer: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let answer = Arc::new(answer);
            let open = Arc::new(AtomicUsize::new(0));
            for stream in listener.incoming() {
                if ending.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (answer, open) = (Arc::clone(&answer), Arc::clone(&open));
                std::thread::spawn(move || {
                    // The browser may have gone; that is its right.
                    let _ = serve(stream, address, &*answer);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(Self { address, ends, thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the thread, which then ends.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers one request and closes the connection.
fn serve(mut stream: TcpStream, address: SocketAddr, answer: &dyn Fn(&str) -> Option<Answer>) -> Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut lines = BufReader::new(stream.try_clone()?.take(MAX_BYTES)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let mut host = String::new();
    for line in lines {
        let line = line?;
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("host") => host = value.trim().into(),
            _ if line.is_empty() => break,
            _ => {}
        }
    }
    let (status, content) = respond(&first, &host, address, answer);
    let (kind, body) = match &content {
        Some(answer) => (answer.kind, &*answer.body),
        None => ("text/plain", ""),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body.as_bytes())
}

/// Status and content of the answer to a request.
fn respond(
    request: &str,
    host: &str,
    address: SocketAddr,
    answer: &dyn Fn(&str) -> Option<Answer>,
) -> (&'static str, Option<Answer>) {
    // Another site that resolves its name to this machine names itself here.
    let own = [address.to_string(), format!("localhost:{}", address.port())];
    if !own.iter().any(|name| name == host) {
        return ("403 Forbidden", None);
    }
    let mut words = request.split(' ');
    match (words.next(), words.next().map(answer)) {
        (Some("GET"), Some(Some(found))) => ("200 OK", Some(found)),
        (Some("GET"), Some(None)) => ("404 Not Found", None),
        (Some(_), Some(_)) => ("405 Method Not Allowed", None),
        _ => ("400 Bad Request", None),
    }
}
