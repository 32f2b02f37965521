//! Errors of operators, and checks of their arguments.

/// The label of a row without a label.
pub(crate) const NO_LABEL: u32 = u32::MAX;

/// Why an operator rejects its arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// A buffer has the wrong length.
    #[error("{operator}: `{buffer}` has {found} values, but needs {expected}")]
    Length {
        /// Name of the operator.
        operator: &'static str,
        /// Name of the buffer.
        buffer: &'static str,
        /// Its length.
        found: usize,
        /// The required length.
        expected: usize,
    },
    /// A setting is out of range.
    #[error("{operator}: {problem}")]
    Setting {
        /// Name of the operator.
        operator: &'static str,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// A label is not a class.
    #[error(
        "{operator}: row {row} has the label {label}, but there are {classes} classes (labels count from 0; {ignore} marks a row without label)",
        ignore = NO_LABEL
    )]
    Label {
        /// Name of the operator.
        operator: &'static str,
        /// The row.
        row: usize,
        /// Its label.
        label: u32,
        /// Number of classes.
        classes: usize,
    },
    /// Arguments on different devices.
    #[error("an argument is on another device; put it on the device of the others")]
    OtherDevice,
    /// An operator that runs on the CPU only.
    #[error("{operator} has no CUDA version; run it on the CPU")]
    NoCudaVersion {
        /// Name of the operator.
        operator: &'static str,
    },
    /// The arrays of a graph, or of clusters, do not fit together.
    #[error("graph arrays: {problem}")]
    Graph {
        /// What is wrong, and where.
        problem: String,
    },
}

/// Checks the length of a buffer of an operator.
///
/// # Errors
/// [`KernelError::Length`] with the names of operator and buffer.
pub fn check_length<T>(
    operator: &'static str,
    buffer: &'static str,
    values: &[T],
    expected: usize,
) -> Result<(), KernelError> {
    check_count(operator, buffer, values.len(), expected)
}

/// Checks the length of a buffer on any device.
pub(crate) fn check_count(
    operator: &'static str,
    buffer: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), KernelError> {
    if found == expected { Ok(()) } else { Err(KernelError::Length { operator, buffer, found, expected }) }
}

/// Checks that a buffer holds `vertices` rows of `width` values.
pub(crate) fn check_rows<T>(
    operator: &'static str,
    buffer: &'static str,
    values: &[T],
    vertices: usize,
    width: usize,
) -> Result<(), KernelError> {
    check_length(operator, buffer, values, vertices.saturating_mul(width))
}

/// Checks that mesh offsets rise from 0, and gives the number of vertices.
pub(crate) fn check_mesh_offsets(mesh_offsets: &[u32]) -> Result<usize, KernelError> {
    let problem = match mesh_offsets.last() {
        None => "there are no mesh offsets".into(),
        Some(&last) if mesh_offsets[0] != 0 || !mesh_offsets.is_sorted() => {
            format!("mesh offsets do not rise from 0 to {last}")
        }
        Some(&last) => return Ok(last as usize),
    };
    Err(KernelError::Graph { problem })
}
