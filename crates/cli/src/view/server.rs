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
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The content of a response.
pub struct Response {
    content_type: &'static str,
    body: Arc<str>,
}

impl Response {
    pub fn html(body: Arc<str>) -> Self {
        Self { content_type: "text/html; charset=utf-8", body }
    }

    pub fn json(body: Arc<str>) -> Self {
        Self { content_type: "application/json", body }
    }
}

/// A running server. It ends when it is dropped.
pub struct Server {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the paths for which `handler` has a response, at a free port.
    pub fn start(handler: impl Fn(&str) -> Option<Response> + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let handler = Arc::new(handler);
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
                let (handler, open) = (Arc::clone(&handler), Arc::clone(&open));
                std::thread::spawn(move || {
                    // The browser may have gone; that is its right.
                    let _ = serve(stream, address, &*handler);
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

/// Responds to one request and closes the connection.
fn serve(mut stream: TcpStream, address: SocketAddr, handler: &dyn Fn(&str) -> Option<Response>) -> Result<()> {
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    stream.set_write_timeout(Some(IDLE_TIMEOUT))?;
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
    let (status, content) = respond(&first, &host, address, handler);
    let (content_type, body) = match &content {
        Some(response) => (response.content_type, &*response.body),
        None => ("text/plain", ""),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body.as_bytes())
}

/// Status and content of the response to a request.
fn respond(
    request: &str,
    host: &str,
    address: SocketAddr,
    handler: &dyn Fn(&str) -> Option<Response>,
) -> (&'static str, Option<Response>) {
    // Another site that resolves its name to this machine names itself here.
    let own = [address.to_string(), format!("localhost:{}", address.port())];
    if !own.iter().any(|name| name == host) {
        return ("403 Forbidden", None);
    }
    let mut words = request.split(' ');
    match (words.next(), words.next().map(handler)) {
        (Some("GET"), Some(Some(found))) => ("200 OK", Some(found)),
        (Some("GET"), Some(None)) => ("404 Not Found", None),
        (Some(_), Some(_)) => ("405 Method Not Allowed", None),
        _ => ("400 Bad Request", None),
    }
}
