//! Results of driver calls.

use super::{CudaError, Result};

/// The status of a driver call as a result.
pub(super) fn driver(call: &'static str, status: cudarc::driver::sys::CUresult) -> Result<()> {
    status.result().map_err(|error| CudaError::Call { call, problem: describe(&error) })
}

/// Description of an error of the driver.
pub(super) fn describe(error: &cudarc::driver::DriverError) -> String {
    match error.error_string() {
        Ok(text) => format!("{} ({:?})", text.to_string_lossy(), error.0),
        Err(_) => format!("{:?}", error.0),
    }
}
