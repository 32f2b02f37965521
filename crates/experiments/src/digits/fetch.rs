//! Fetching the digits from the net.
//!
//! A file comes in as `NAME.gz.part` and is renamed when it is whole and its checksum is right. What is
//! there of a part after an interruption stays, and the next try asks for the rest only.

use super::files::Content;
use super::{DataFile, FILES, MnistError};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::Agent;
use ureq::http::{StatusCode, header};

/// Where the files are fetched from unless another address is given.
pub const BASE_URL: &str = "https://ossci-datasets.s3.amazonaws.com/mnist";

/// How often a file is asked for before giving up.
const TRIES: usize = 3;
/// Bytes read at once.
const PIECE: usize = 1 << 16;
/// No gzipped file of the data set is as large; more is not taken.
const MOST_BYTES: u64 = 64 << 20;

/// How fetching goes on, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Download<'d> {
    /// A file is there already.
    Present {
        /// Where.
        path: &'d Path,
    },
    /// Bytes of a file have come.
    Progress {
        /// Name of the file.
        name: &'d str,
        /// Bytes so far, those of an earlier try included.
        received: u64,
        /// Bytes in all, if the server says.
        total: Option<u64>,
    },
    /// A try failed and another one follows.
    Again {
        /// Name of the file.
        name: &'d str,
        /// Why.
        problem: &'d str,
    },
    /// A file is whole and right.
    Done {
        /// Where.
        path: &'d Path,
    },
}

/// Fetches what is missing of the four files into a directory, from `base_url` with the names
/// `train-images-idx3-ubyte.gz` and so on.
///
/// # Errors
/// A directory that cannot be written, a server that does not give the files, or files whose checksums
/// are wrong: of a file that was there already, too.
pub fn fetch(
    directory: &Path,
    base_url: &str,
    observer: &mut dyn FnMut(Download<'_>),
) -> Result<(), MnistError> {
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
            observer(Download::Present {
                path: &content.path,
            });
            continue;
        }
        let url = format!("{}/{}", base_url.trim_end_matches('/'), file.gzipped_name());
        let fetcher = Fetcher {
            agent: &agent,
            file,
            url,
            part: directory.join(format!("{}.part", file.gzipped_name())),
        };
        let path = directory.join(file.gzipped_name());
        fetcher.fetch(&path, observer)?;
        observer(Download::Done { path: &path });
    }
    Ok(())
}

/// One file on its way.
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
            let passing = matches!(
                error,
                MnistError::Download { .. }
                    | MnistError::Different { .. }
                    | MnistError::Format { .. }
            );
            if tries == TRIES || !passing {
                return Err(error);
            }
            tries += 1;
            observer(Download::Again {
                name: self.file.name,
                problem: &error.to_string(),
            });
        }
        std::fs::rename(&self.part, path).map_err(MnistError::file(path))
    }

    /// Asks for what is missing of the part, and appends it.
    fn download(&self, observer: &mut dyn FnMut(Download<'_>)) -> Result<(), MnistError> {
        let refuse = |problem: String| MnistError::Download {
            url: self.url.clone(),
            problem,
        };
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
            StatusCode::PARTIAL_CONTENT
                if text(header::CONTENT_RANGE).is_some_and(|r| r.starts_with(&continues)) =>
            {
                have
            }
            // The part is whole, or not of this file: its checksum tells.
            StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => return Ok(()),
            status => {
                return Err(refuse(format!(
                    "the server answers {status}: is this the address of the data set? --base-url gives another"
                )));
            }
        };
        let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        let total = length.map(|length| start + length);
        let mut part = open_part(&self.part, start).map_err(MnistError::file(&self.part))?;
        let mut body = response.into_body().into_reader();
        let (mut received, mut piece) = (start, vec![0; PIECE]);
        loop {
            let count = body
                .read(&mut piece)
                .map_err(|error| refuse(format!("after {received} bytes: {error}")))?;
            if count == 0 {
                break;
            }
            received += count as u64;
            if received > MOST_BYTES {
                return Err(refuse(format!("over {MOST_BYTES} bytes, too many for it")));
            }
            part.write_all(&piece[..count])
                .map_err(MnistError::file(&self.part))?;
            observer(Download::Progress {
                name: self.file.name,
                received,
                total,
            });
        }
        match total {
            Some(total) if received < total => {
                Err(refuse(format!("ended after {received} of {total} bytes")))
            }
            _ => Ok(()),
        }
    }

    /// Fails unless the part is the published file; a part that is not is removed.
    fn verify(&self) -> Result<(), MnistError> {
        let bytes = std::fs::read(&self.part).map_err(MnistError::file(&self.part))?;
        let verified =
            Content::inflated(&self.part, &bytes).and_then(|content| self.file.verify(&content));
        if verified.is_err() {
            std::fs::remove_file(&self.part).map_err(MnistError::file(&self.part))?;
        }
        verified
    }
}

/// The part, to be written from byte `start` on.
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

    /// The digits for testing that come with the project, as if they were all.
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

    /// How the server answers one request.
    enum Answer {
        /// All of it, or the range that is asked for.
        Well,
        /// All of it, whatever range is asked for.
        WithoutRanges,
        /// The first bytes of what is asked for, then the connection breaks.
        Until(usize),
        /// As well, but with one byte changed.
        Damaged,
        NotFound,
    }

    /// A server that gives the file as these answers say, one after the other, and notes the ranges that
    /// are asked for.
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

    /// First line of a request, and the byte from which on it asks.
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
            _ => format!(
                "206 Partial Content\r\nContent-Range: bytes {start}-{}/{}",
                content.len() - 1,
                content.len()
            ),
        };
        let length = body.len();
        match answer {
            Answer::Until(count) => body.truncate(*count),
            Answer::Damaged => body[length / 2] ^= 1,
            _ => {}
        }
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        // The client may have gone.
        let _ = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(&body));
    }

    fn fetched(file: DataFile, server: &Server, folder: &Path) -> Result<Vec<String>, MnistError> {
        let mut seen = Vec::new();
        fetch_files(&[file], folder, &server.url, &mut |download| {
            seen.push(match download {
                Download::Present { .. } => "present".into(),
                Download::Again { problem, .. } => format!("again: {problem}"),
                Download::Done { .. } => "done".into(),
                Download::Progress {
                    received, total, ..
                } => format!("{received} of {}", total.unwrap()),
            });
        })?;
        let path = folder.join(file.gzipped_name());
        assert_eq!(std::fs::read(path).unwrap(), published(&file));
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
        Ok(seen)
    }

    #[test]
    fn a_file_is_fetched_once_and_then_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(&LABELS, [Answer::Well]);
        let seen = fetched(LABELS, &server, folder.path()).unwrap();
        assert_eq!(seen, ["129 of 129", "done"]);
        assert_eq!(
            fetched(LABELS, &server, folder.path()).unwrap(),
            ["present"]
        );
        assert_eq!(server.ranges(), [None]);
    }

    #[test]
    fn a_broken_download_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let answers = [Answer::Until(10_000), Answer::Until(5_000), Answer::Well];
        let server = Server::new(&IMAGES, answers);
        let seen = fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [None, Some(10_000), Some(15_000)]);
        assert_eq!(seen.iter().filter(|s| s.starts_with("again")).count(), 2);
        assert_eq!(seen[seen.len() - 2], "31045 of 31045");
    }

    #[test]
    fn so_does_one_that_was_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let broken = Server::new(&IMAGES, (0..TRIES).map(|_| Answer::Until(100)));
        let error = fetched(IMAGES, &broken, folder.path()).unwrap_err();
        assert!(matches!(error, MnistError::Download { .. }), "{error}");
        let server = Server::new(&IMAGES, [Answer::Well]);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [Some(100 * TRIES)]);
    }

    #[test]
    fn a_server_without_ranges_gives_all_again() {
        let folder = tempfile::tempdir().unwrap();
        let answers = [Answer::Until(10_000), Answer::WithoutRanges];
        let server = Server::new(&IMAGES, answers);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [None, Some(10_000)]);
    }

    #[test]
    fn what_comes_damaged_or_was_is_fetched_anew() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(&IMAGES, [Answer::Damaged, Answer::Well]);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [None, None]);
        // A whole part of something else: there is nothing after it, and its checksum is wrong.
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("t10k-images-idx3-ubyte.gz.part");
        std::fs::write(part, [0; 40_000]).unwrap();
        let server = Server::new(&IMAGES, [Answer::Well, Answer::Well]);
        fetched(IMAGES, &server, folder.path()).unwrap();
        assert_eq!(server.ranges(), [Some(40_000), None]);
    }

    #[test]
    fn nothing_wrong_is_ever_kept_under_the_name_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(&IMAGES, (0..TRIES).map(|_| Answer::Damaged));
        let error = fetched(IMAGES, &server, folder.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("t10k-images-idx3-ubyte.gz.part"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let server = Server::new(&IMAGES, (0..TRIES).map(|_| Answer::NotFound));
        let error = fetched(IMAGES, &server, folder.path())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("404") && error.contains("--base-url"),
            "{error}"
        );
        // One that was there before is told of and left.
        let path = folder.path().join(LABELS.name);
        std::fs::write(&path, [0; 208]).unwrap();
        let error = fetched(LABELS, &server, folder.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("not the published file: SHA-256"), "{error}");
        assert!(path.exists());
    }
}
