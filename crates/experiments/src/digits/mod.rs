//! The MNIST digits: their four IDX files, gzipped or not, from a directory or from the net.
//!
//! ```
//! use gemcnn_experiments::digits::Mnist;
//! let few = Mnist::few()?;
//! assert_eq!((few.train.len(), few.test.len()), (600, 200));
//! assert_eq!(few.train.labels()[0], 5);
//! # Ok::<(), gemcnn_experiments::digits::MnistError>(())
//! ```

mod error;
mod fetch;
mod files;
mod idx;

pub use error::MnistError;
pub use fetch::{BASE_URL, Download, fetch};
pub use files::{DataFile, FILES};
pub use idx::{Digits, PIXELS, SIDE};

use files::Content;
use std::path::Path;

/// Classes of the digits.
pub const CLASSES: usize = 10;

/// The first digits of both parts of the data set, for tests and first trials.
const FEW: [(&str, &[u8]); 4] = [
    (
        "train-images",
        include_bytes!("../../../../fixtures/mnist/train-images-idx3-ubyte.gz"),
    ),
    (
        "train-labels",
        include_bytes!("../../../../fixtures/mnist/train-labels-idx1-ubyte.gz"),
    ),
    (
        "test-images",
        include_bytes!("../../../../fixtures/mnist/t10k-images-idx3-ubyte.gz"),
    ),
    (
        "test-labels",
        include_bytes!("../../../../fixtures/mnist/t10k-labels-idx1-ubyte.gz"),
    ),
];

/// The data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mnist {
    /// Digits to learn from; 60,000 of them.
    pub train: Digits,
    /// Digits to test with; 10,000 of them.
    pub test: Digits,
}

impl Mnist {
    /// Reads the four files from a directory, each gzipped (with the ending `.gz`) or not, and
    /// compares their SHA-256 with that of the published data set.
    ///
    /// # Errors
    /// A file that is missing, cannot be read, or is not the published one.
    pub fn open(directory: &Path) -> Result<Self, MnistError> {
        files::check_present(directory)?;
        let [images, labels, test_images, test_labels] = FILES.map(|file| file.read(directory));
        Ok(Self {
            train: Digits::parse(&images?, &labels?)?,
            test: Digits::parse(&test_images?, &test_labels?)?,
        })
    }

    /// The first 600 digits to learn from and the first 200 to test with, which come with the program.
    ///
    /// # Errors
    /// None, unless the program was built from a damaged copy of its files.
    pub fn few() -> Result<Self, MnistError> {
        let [images, labels, test_images, test_labels] =
            FEW.map(|(name, bytes)| Content::inflated(name, bytes));
        Ok(Self {
            train: Digits::parse(&images?, &labels?)?,
            test: Digits::parse(&test_images?, &test_labels?)?,
        })
    }
}
