//! Machines without a GPU get an error that says what is missing, never a panic.

use crate::cuda::{CudaDevice, CudaError};

#[test]
fn asking_for_a_device_never_panics() {
    match CudaDevice::new(0) {
        Ok(device) => println!("found {}", device.name()),
        Err(error) => {
            let text = error.to_string();
            println!("{text}");
            assert!(text.len() > 20, "{text}");
            assert_eq!(error == CudaError::NotBuilt, !cfg!(feature = "cuda"));
        }
    }
}

#[test]
fn a_device_number_beyond_the_last_is_told() {
    if let Err(error) = CudaDevice::new(usize::MAX) {
        assert!(
            matches!(
                error,
                CudaError::Ordinal { .. } | CudaError::NoDriver | CudaError::NoDevice { .. } | CudaError::NotBuilt
            ),
            "{error}"
        );
    } else {
        panic!("there is no device with that number");
    }
}
