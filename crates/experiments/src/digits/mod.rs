//! The MNIST digits: four IDX files, gzipped or not, from a directory or downloaded.
//!
//! ```
//! use gemcnn_experiments::digits::Mnist;
//! let digits = Mnist::sample()?;
//! assert_eq!((digits.train.len(), digits.test.len()), (600, 200));
//! assert_eq!(digits.train.labels()[0], 5);
//! # Ok::<(), gemcnn_experiments::digits::MnistError>(())
//! ```

mod error;
mod fetch;
mod files;
mod idx;

pub use error::MnistError;
pub use fetch::{BASE_URL, fetch};
pub use files::{DataFile, FILES};
pub use idx::{Digits, PIXELS, SIDE};

use files::Content;
use std::path::Path;

/// Number of classes.
pub const CLASSES: usize = 10;

/// The first digits of both parts of the data set, for tests and trials.
const SAMPLE: [(&str, &[u8]); 4] = [
    ("train-images", include_bytes!("../../mnist/train-images-idx3-ubyte.gz")),
    ("train-labels", include_bytes!("../../mnist/train-labels-idx1-ubyte.gz")),
    ("test-images", include_bytes!("../../mnist/t10k-images-idx3-ubyte.gz")),
    ("test-labels", include_bytes!("../../mnist/t10k-labels-idx1-ubyte.gz")),
];

/// The data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mnist {
    /// Training digits: 60,000.
    pub train: Digits,
    /// Test digits: 10,000.
    pub test: Digits,
}

impl Mnist {
    /// Reads the four files from a directory, each gzipped (with the extension `.gz`) or not, and checks
    /// their SHA-256 against the published data set.
    ///
    /// # Errors
    /// A file that is missing or unreadable, or differs from the published one.
    pub fn open(directory: &Path) -> Result<Self, MnistError> {
        files::check_present(directory)?;
        let [images, labels, test_images, test_labels] = FILES.map(|file| file.read(directory));
        Ok(Self { train: Digits::parse(&images?, &labels?)?, test: Digits::parse(&test_images?, &test_labels?)? })
    }

    /// The first 600 training digits and the first 200 test digits, which come with the program.
    ///
    /// # Errors
    /// Only if the program was built from damaged files.
    pub fn sample() -> Result<Self, MnistError> {
        let [images, labels, test_images, test_labels] = SAMPLE.map(|(name, bytes)| Content::inflated(name, bytes));
        Ok(Self { train: Digits::parse(&images?, &labels?)?, test: Digits::parse(&test_images?, &test_labels?)? })
    }
}
