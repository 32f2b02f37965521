//! Download of the digits, by the system's `curl`.
//!
//! A file is received as `NAME.gz.part` and renamed when it is complete and its checksum is right. After an
//! interruption the received part stays, and the next attempt requests only the rest.

use super::files::Content;
use super::{DataFile, FILES, MnistError};
use std::io::{ErrorKind, IsTerminal};
use std::path::Path;
use std::process::{Command, Stdio};

/// Default address of the files.
pub const BASE_URL: &str = "https://ossci-datasets.s3.amazonaws.com/mnist";

/// Attempts for a file before giving up.
const TRIES: usize = 3;
/// Upper limit for a file; all gzipped files of the data set are smaller.
const MAX_BYTES: &str = "67108864";
/// Exit status of `curl` if the server cannot continue a download.
const NO_RANGES: i32 = 33;
/// Reply of a server to a request of bytes beyond the end of the file.
const RANGE_NOT_SATISFIABLE: &str = "416";

/// Downloads the missing files of the four into a directory, from `base_url` with names such as
/// `train-images-idx3-ubyte.gz`. `note` is told what was done. On a terminal, `curl` shows its progress.
///
/// # Errors
/// A machine without `curl`, a directory that cannot be written, a server that does not have the files, or a wrong
/// checksum, also of a file that existed before.
pub fn fetch(directory: &Path, base_url: &str, note: &mut dyn FnMut(String)) -> Result<(), MnistError> {
    fetch_files(&FILES, directory, base_url, note)
}

fn fetch_files(
    files: &[DataFile],
    directory: &Path,
    base_url: &str,
    note: &mut dyn FnMut(String),
) -> Result<(), MnistError> {
    std::fs::create_dir_all(directory).map_err(MnistError::file(directory))?;
    for file in files {
        if file.find(directory).is_some() {
            let content = file.read(directory)?;
            note(format!("{}: exists", content.path.display()));
            continue;
        }
        let url = format!("{}/{}", base_url.trim_end_matches('/'), file.gzipped_name());
        let path = directory.join(file.gzipped_name());
        let part = path.with_added_extension("part");
        let mut tries = 1;
        while let Err(error) = download(&url, &part).and_then(|()| verify(file, &part)) {
            if tries == TRIES || matches!(error, MnistError::File { .. } | MnistError::NoCurl { .. }) {
                return Err(error);
            }
            tries += 1;
            note(format!("{}: retrying after {error}", file.name));
        }
        std::fs::rename(&part, &path).map_err(MnistError::file(&path))?;
        note(format!("{}: downloaded, checksum matches", path.display()));
    }
    Ok(())
}

/// Requests the missing rest of a file and appends it. A part that the server cannot continue is removed.
fn download(url: &str, part: &Path) -> Result<(), MnistError> {
    let refuse = |problem: String| Err(MnistError::Download { url: url.into(), problem });
    let has_terminal = std::io::stderr().is_terminal();
    let output = Command::new("curl")
        .args(["--fail", "--location", "--show-error", "--continue-at", "-", "--connect-timeout", "30"])
        .args(["--speed-limit", "1", "--speed-time", "60", "--max-filesize", MAX_BYTES, "--write-out", "%{http_code}"])
        .arg(if has_terminal { "--progress-bar" } else { "--silent" })
        .arg("--output")
        .arg(part)
        .arg(url)
        .stdin(Stdio::null())
        .stderr(if has_terminal { Stdio::inherit() } else { Stdio::piped() })
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(MnistError::NoCurl { url: url.into(), path: part.with_extension("") });
        }
        Err(error) => return refuse(format!("cannot start `curl`: {error}")),
    };
    if output.status.success() {
        return Ok(());
    }
    let [code, message] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).trim().to_owned());
    // The part is complete or belongs to another file.
    if (output.status.code() == Some(NO_RANGES) || code == RANGE_NOT_SATISFIABLE) && part.exists() {
        std::fs::remove_file(part).map_err(MnistError::file(part))?;
    }
    match code.parse::<u16>() {
        Ok(400..) => refuse(format!("the server replies {code}; check the address of the data set (--base-url)")),
        _ => refuse(format!("{message} (`curl`: {})", output.status)),
    }
}

/// Checks that the part is the published file, and removes it if not.
fn verify(file: &DataFile, part: &Path) -> Result<(), MnistError> {
    let bytes = std::fs::read(part).map_err(MnistError::file(part))?;
    let verified = Content::inflated(part, &bytes).and_then(|content| file.verify(&content));
    if verified.is_err() {
        std::fs::remove_file(part).map_err(MnistError::file(part))?;
    }
    verified
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    /// The test digits of the fixtures, in place of the whole files.
    const IMAGES: DataFile = DataFile {
        name: "t10k-images-idx3-ubyte",
        size: 156_816,
        sha256: "cefe86a05637f831a20aef251bd9db19004a2c986ec848d345c40ffd09264afc",
    };
    const LABELS: DataFile = DataFile {
        name: "t10k-labels-idx1-ubyte",
        size: 208,
        sha256: "181dda88fbf8032cf747bf0766ad9d035b6bb747997214d834eb8d2f33a72210",
    };

    fn published(file: &DataFile) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/mnist/");
        std::fs::read(format!("{folder}{}", file.gzipped_name())).unwrap()
    }

    /// Reply of the server to one request.
    enum Reply {
        /// The whole file, or the requested range.
        Whole,
        /// The whole file, whatever range is requested.
        WithoutRanges,
        /// The first bytes of what is requested, then the connection breaks.
        Until(usize),
        /// As `Whole`, with one byte changed.
        Damaged,
        NotFound,
    }

    /// A server that gives these replies in order and records the requested ranges.
    struct Server {
        url: String,
        ranges: Arc<Mutex<Vec<Option<usize>>>>,
    }

    impl Server {
        fn new(file: &DataFile, replies: impl IntoIterator<Item = Reply>) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/digits/", listener.local_addr().unwrap());
            let ranges = Arc::new(Mutex::new(Vec::new()));
            let (noted, content) = (ranges.clone(), published(file));
            let path = format!("GET /digits/{} ", file.gzipped_name());
            let replies: Vec<Reply> = replies.into_iter().collect();
            std::thread::spawn(move || {
                for reply_kind in replies {
                    let (stream, _) = listener.accept().unwrap();
                    let (line, range) = request(&stream);
                    assert!(line.starts_with(&path), "{line}");
                    noted.lock().unwrap().push(range);
                    reply(stream, &content, range, &reply_kind);
                }
            });
            Self { url, ranges }
        }

        fn ranges(&self) -> Vec<Option<usize>> {
            self.ranges.lock().unwrap().clone()
        }
    }

    /// First line of a request, and the first byte that it requests.
    fn request(stream: &TcpStream) -> (String, Option<usize>) {
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        let mut range = None;
        for line in lines.take_while(|line| !line.is_empty()) {
            if let Some(from) = line.to_lowercase().strip_prefix("range: bytes=") {
                range = Some(from.trim_end_matches('-').parse().unwrap());
            }
        }
        (first, range)
    }

    fn reply(mut stream: TcpStream, content: &[u8], range: Option<usize>, reply_kind: &Reply) {
        let start = match reply_kind {
            Reply::WithoutRanges => 0,
            _ => range.unwrap_or(0),
        };
        let mut body = content.get(start..).unwrap_or_default().to_vec();
        let status = match (reply_kind, start) {
            (Reply::NotFound, _) => "404 Not Found".into(),
            (_, 0) => "200 OK".into(),
            _ if body.is_empty() => "416 Range Not Satisfiable".into(),
            _ => format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{}", content.len() - 1, content.len()),
        };
        let length = body.len();
        match reply_kind {
            Reply::Until(count) => body.truncate(*count),
            Reply::Damaged => body[length / 2] ^= 1,
            _ => {}
        }
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        // The client may have gone.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
    }

    fn fetched(file: DataFile, server: &Server, folder: &Path) -> Result<Vec<String>, MnistError> {
        let mut notes = Vec::new();
        fetch_files(&[file], folder, &server.url, &mut |note| notes.push(note))?;
        let path = folder.join(file.gzipped_name());
        assert_eq!(std::fs::read(path).unwrap(), published(&file));
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
        Ok(notes)
    }

    #[test]
    fn a_file_is_downloaded_once() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(&LABELS, [Reply::Whole]);
        assert_eq!(fetched(LABELS, &server, folder.path()).unwrap().len(), 1);
        assert_eq!(fetched(LABELS, &server, folder.path()).unwrap().len(), 1);
        assert_eq!(server.ranges(), [None]);
    }

    #[test]
    fn broken_download_resumes() {
        let folder = tempfile::tempdir().unwrap();
        let replies = [Reply::Until(10_000), Reply::Until(5_000), Reply::Whole];
        let server = Server::new(&IMAGES, replies);
        let notes = fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [None, Some(10_000), Some(15_000)]);
        assert_eq!(notes.len(), 3, "{notes:?}");
    }

    #[test]
    fn an_abandoned_download_resumes() {
        let folder = tempfile::tempdir().unwrap();
        let broken = Server::new(&IMAGES, (0..TRIES).map(|_| Reply::Until(100)));
        let error = fetched(IMAGES, &broken, folder.path()).unwrap_err();
        assert!(matches!(error, MnistError::Download { .. }), "{error}");
        let server = Server::new(&IMAGES, [Reply::Whole]);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [Some(100 * TRIES)]);
    }

    #[test]
    fn a_server_without_ranges_sends_everything_again() {
        let folder = tempfile::tempdir().unwrap();
        let replies = [Reply::Until(10_000), Reply::WithoutRanges, Reply::Whole];
        let server = Server::new(&IMAGES, replies);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [None, Some(10_000), None]);
    }

    #[test]
    fn damaged_files_are_downloaded_again() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(&IMAGES, [Reply::Damaged, Reply::Whole]);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [None, None]);
        // A part of another file: there is nothing after it, and its checksum is wrong.
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("t10k-images-idx3-ubyte.gz.part");
        std::fs::write(part, [0; 40_000]).unwrap();
        let server = Server::new(&IMAGES, [Reply::Whole, Reply::Whole]);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [Some(40_000), None]);
    }

    #[test]
    fn a_wrong_file_never_gets_the_final_name() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(&IMAGES, (0..TRIES).map(|_| Reply::Damaged));
        let error = fetched(IMAGES, &server, folder.path()).unwrap_err().to_string();
        assert!(error.contains("t10k-images-idx3-ubyte.gz.part"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let server = Server::new(&IMAGES, (0..TRIES).map(|_| Reply::NotFound));
        let error = fetched(IMAGES, &server, folder.path()).unwrap_err().to_string();
        assert!(error.contains("404") && error.contains("--base-url"), "{error}");
        // A wrong file that existed before is reported and kept.
        let path = folder.path().join(LABELS.name);
        std::fs::write(&path, [0; 208]).unwrap();
        let error = fetched(LABELS, &server, folder.path()).unwrap_err();
        assert!(matches!(error, MnistError::Different { .. }), "{error}");
        assert!(path.exists());
    }
}
