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
