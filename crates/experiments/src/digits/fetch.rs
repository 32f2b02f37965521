//! Download of the digits.
//!
//! A file is received as `NAME.gz.part` and renamed when it is complete and its checksum is right. After an
//! interruption the received part stays, and the next attempt requests only the rest.

use super::files::Content;
use super::{DataFile, FILES, MnistError};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::Agent;
use ureq::http::{StatusCode, header};

/// Default address of the files.
pub const BASE_URL: &str = "https://ossci-datasets.s3.amazonaws.com/mnist";

/// Attempts for a file before giving up.
const TRIES: usize = 3;
/// Bytes read at once.
const PIECE: usize = 1 << 16;
/// Upper limit for a file; all gzipped files of the data set are smaller.
const MAX_BYTES: u64 = 64 << 20;

/// Progress of the download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Download<'d> {
    /// A file exists already.
    Present {
        /// Its path.
        path: &'d Path,
    },
    /// Bytes of a file have arrived.
    Progress {
        /// Name of the file.
        name: &'d str,
        /// Bytes so far, including earlier attempts.
        received: u64,
        /// Total number of bytes, if the server reports it.
        total: Option<u64>,
    },
    /// An attempt failed and another one follows.
    Again {
        /// Name of the file.
        name: &'d str,
        /// Reason of the failure.
        problem: &'d str,
    },
    /// A file is complete and verified.
    Done {
        /// Its path.
        path: &'d Path,
    },
}

/// Downloads the missing files of the four into a directory, from `base_url` with names such as
/// `train-images-idx3-ubyte.gz`.
///
/// # Errors
/// A directory that cannot be written, a server that does not have the files, or a wrong checksum, also of
/// a file that existed before.
pub fn fetch(directory: &Path, base_url: &str, observer: &mut dyn FnMut(Download<'_>)) -> Result<(), MnistError> {
    fetch_files(&FILES, directory, base_url, observer)
}

fn fetch_files(
    files: &[DataFile],
    directory: &Path,
    base_url: &str,
    observer: &mut dyn FnMut(Download<'_>),
) -> Result<(), MnistError> {
    std::fs::create_dir_all(directory).map_err(MnistError::file(directory))?;
    let patience = |seconds| Some(Duration::from_secs(seconds));
    let agent: Agent = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(patience(30))
        .timeout_per_read(patience(60))
        .build()
        .into();
    for file in files {
        if file.find(directory).is_some() {
            let content = file.read(directory)?;
            observer(Download::Present { path: &content.path });
            continue;
        }
        let url = format!("{}/{}", base_url.trim_end_matches('/'), file.gzipped_name());
        let fetcher =
            Fetcher { agent: &agent, file, url, part: directory.join(format!("{}.part", file.gzipped_name())) };
        let path = directory.join(file.gzipped_name());
        fetcher.fetch(&path, observer)?;
        observer(Download::Done { path: &path });
    }
    Ok(())
}

/// The download of one file.
struct Fetcher<'f> {
    agent: &'f Agent,
    file: &'f DataFile,
    url: String,
    part: PathBuf,
}

impl Fetcher<'_> {
    fn fetch(&self, path: &Path, observer: &mut dyn FnMut(Download<'_>)) -> Result<(), MnistError> {
        let mut tries = 1;
        loop {
            let error = match self.download(observer).and_then(|()| self.verify()) {
                Ok(()) => break,
                Err(error) => error,
            };
            let passing =
                matches!(error, MnistError::Download { .. } | MnistError::Different { .. } | MnistError::Format { .. });
            if tries == TRIES || !passing {
                return Err(error);
            }
            tries += 1;
            observer(Download::Again { name: self.file.name, problem: &error.to_string() });
        }
        std::fs::rename(&self.part, path).map_err(MnistError::file(path))
    }

    /// Requests the missing rest of the part and appends it.
    fn download(&self, observer: &mut dyn FnMut(Download<'_>)) -> Result<(), MnistError> {
        let refuse = |problem: String| MnistError::Download { url: self.url.clone(), problem };
        let have = std::fs::metadata(&self.part).map_or(0, |part| part.len());
        let mut request = self.agent.get(&self.url);
        if have > 0 {
            request = request.header(header::RANGE, format!("bytes={have}-"));
        }
        let response = request.call().map_err(|error| refuse(error.to_string()))?;
        let text = |name| response.headers().get(name).and_then(|v| v.to_str().ok());
        let continues = format!("bytes {have}-");
        let start = match response.status() {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT if text(header::CONTENT_RANGE).is_some_and(|r| r.starts_with(&continues)) => {
                have
            }
            // The part is complete or belongs to another file; the checksum decides.
            StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => return Ok(()),
            status => {
                return Err(refuse(format!(
                    "the server answers {status}; check the address of the data set (--base-url)"
                )));
            }
        };
        let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        let total = length.map(|length| start + length);
        let mut part = open_part(&self.part, start).map_err(MnistError::file(&self.part))?;
        let mut body = response.into_body().into_reader();
        let (mut received, mut piece) = (start, vec![0; PIECE]);
        loop {
            let count = body.read(&mut piece).map_err(|error| refuse(format!("after {received} bytes: {error}")))?;
            if count == 0 {
                break;
            }
            received += count as u64;
            if received > MAX_BYTES {
                return Err(refuse(format!("more than {MAX_BYTES} bytes, too many for this file")));
            }
            part.write_all(&piece[..count]).map_err(MnistError::file(&self.part))?;
            observer(Download::Progress { name: self.file.name, received, total });
        }
        match total {
            Some(total) if received < total => Err(refuse(format!("ended after {received} of {total} bytes"))),
            _ => Ok(()),
        }
    }

    /// Checks that the part is the published file, and removes it if not.
    fn verify(&self) -> Result<(), MnistError> {
        let bytes = std::fs::read(&self.part).map_err(MnistError::file(&self.part))?;
        let verified = Content::inflated(&self.part, &bytes).and_then(|content| self.file.verify(&content));
        if verified.is_err() {
            std::fs::remove_file(&self.part).map_err(MnistError::file(&self.part))?;
        }
        verified
    }
}

/// Opens the part for writing from byte `start`.
fn open_part(path: &Path, start: u64) -> std::io::Result<File> {
    match start {
        0 => File::create(path),
        _ => OpenOptions::new().append(true).open(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
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
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/mnist/");
        std::fs::read(format!("{folder}{}", file.gzipped_name())).unwrap()
    }

    /// Answer of the server to one request.
    enum Answer {
        /// The whole file, or the requested range.
        Well,
        /// The whole file, whatever range is requested.
        WithoutRanges,
        /// The first bytes of what is requested, then the connection breaks.
        Until(usize),
        /// As `Well`, with one byte changed.
        Damaged,
        NotFound,
    }

    /// A server that gives these answers in order and records the requested ranges.
    struct Server {
        url: String,
        ranges: Arc<Mutex<Vec<Option<usize>>>>,
    }

    impl Server {
        fn new(file: &DataFile, answers: impl IntoIterator<Item = Answer>) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/digits/", listener.local_addr().unwrap());
            let ranges = Arc::new(Mutex::new(Vec::new()));
            let (noted, content) = (ranges.clone(), published(file));
            let path = format!("GET /digits/{} ", file.gzipped_name());
            let answers: Vec<Answer> = answers.into_iter().collect();
            std::thread::spawn(move || {
                for answer in answers {
                    let (stream, _) = listener.accept().unwrap();
                    let (line, range) = request(&stream);
                    assert!(line.starts_with(&path), "{line}");
                    noted.lock().unwrap().push(range);
                    reply(stream, &content, range, &answer);
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

    fn reply(mut stream: TcpStream, content: &[u8], range: Option<usize>, answer: &Answer) {
        let start = match answer {
            Answer::WithoutRanges => 0,
            _ => range.unwrap_or(0),
        };
        let mut body = content.get(start..).unwrap_or_default().to_vec();
        let status = match (answer, start) {
            (Answer::NotFound, _) => "404 Not Found".into(),
            (_, 0) => "200 OK".into(),
            _ if body.is_empty() => "416 Range Not Satisfiable".into(),
            _ => format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{}", content.len() - 1, content.len()),
        };
        let length = body.len();
        match answer {
            Answer::Until(count) => body.truncate(*count),
            Answer::Damaged => body[length / 2] ^= 1,
            _ => {}
        }
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        // The client may have gone.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
    }

    fn fetched(file: DataFile, server: &Server, folder: &Path) -> Result<Vec<String>, MnistError> {
        let mut seen = Vec::new();
        fetch_files(&[file], folder, &server.url, &mut |download| {
            seen.push(match download {
                Download::Present { .. } => "present".into(),
                Download::Again { problem, .. } => format!("again: {problem}"),
                Download::Done { .. } => "done".into(),
                Download::Progress { received, total, .. } => format!("{received} of {}", total.unwrap()),
            });
        })?;
        let path = folder.join(file.gzipped_name());
        assert_eq!(std::fs::read(path).unwrap(), published(&file));
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
        Ok(seen)
    }

    #[test]
    fn a_file_is_downloaded_once() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(&LABELS, [Answer::Well]);
        let seen = fetched(LABELS, &server, folder.path()).unwrap();
        assert_eq!(seen, ["129 of 129", "done"]);
        assert_eq!(fetched(LABELS, &server, folder.path()).unwrap(), ["present"]);
        assert_eq!(server.ranges(), [None]);
    }

    #[test]
    fn a_broken_download_resumes() {
        let folder = tempfile::tempdir().unwrap();
        let answers = [Answer::Until(10_000), Answer::Until(5_000), Answer::Well];
        let server = Server::new(&IMAGES, answers);
        let seen = fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [None, Some(10_000), Some(15_000)]);
        assert_eq!(seen.iter().filter(|s| s.starts_with("again")).count(), 2);
        assert_eq!(seen[seen.len() - 2], "31045 of 31045");
    }

    #[test]
    fn an_abandoned_download_resumes() {
        let folder = tempfile::tempdir().unwrap();
        let broken = Server::new(&IMAGES, (0..TRIES).map(|_| Answer::Until(100)));
        let error = fetched(IMAGES, &broken, folder.path()).unwrap_err();
        assert!(matches!(error, MnistError::Download { .. }), "{error}");
        let server = Server::new(&IMAGES, [Answer::Well]);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [Some(100 * TRIES)]);
    }

    #[test]
    fn a_server_without_ranges_sends_everything_again() {
        let folder = tempfile::tempdir().unwrap();
        let answers = [Answer::Until(10_000), Answer::WithoutRanges];
        let server = Server::new(&IMAGES, answers);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [None, Some(10_000)]);
    }

    #[test]
    fn damaged_files_are_downloaded_again() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(&IMAGES, [Answer::Damaged, Answer::Well]);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [None, None]);
        // A part of another file: there is nothing after it, and its checksum is wrong.
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("t10k-images-idx3-ubyte.gz.part");
        std::fs::write(part, [0; 40_000]).unwrap();
        let server = Server::new(&IMAGES, [Answer::Well, Answer::Well]);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [Some(40_000), None]);
    }

    #[test]
    fn a_wrong_file_never_gets_the_final_name() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(&IMAGES, (0..TRIES).map(|_| Answer::Damaged));
        let error = fetched(IMAGES, &server, folder.path()).unwrap_err().to_string();
        assert!(error.contains("t10k-images-idx3-ubyte.gz.part"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let server = Server::new(&IMAGES, (0..TRIES).map(|_| Answer::NotFound));
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
