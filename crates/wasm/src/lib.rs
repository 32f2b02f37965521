//! Predictions of a trained model in the browser.
//!
//! The page writes its input to memory that [`input`] gives, calls [`open`] once for a model and [`predict`] for each
//! mesh, and reads the result from [`output`]: text in UTF-8, which is the error if the call returned 0. A call that
//! panics ends the module; its message is in the output, and the page starts another one.

use gemcnn_mesh::parse_mesh;
use gemcnn_nn::{Device, Workspace};
use gemcnn_tasks::data::SurfaceFile;
use gemcnn_tasks::evaluation::Assessment;
use gemcnn_tasks::page::PredictionPage;
use gemcnn_tasks::train::TrainedModel;
use gemcnn_view::page::Page;
use std::error::Error;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of the next call, by index.
static INPUTS: Mutex<[Vec<u8>; 2]> = Mutex::new([Vec::new(), Vec::new()]);
static MODEL: Mutex<Option<TrainedModel>> = Mutex::new(None);
static OUTPUT: Mutex<String> = Mutex::new(String::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory for `length` bytes of an input of the next call: 0 or 1. Null for another index.
#[unsafe(no_mangle)]
pub extern "C" fn input(index: usize, length: usize) -> *mut u8 {
    match locked(&INPUTS).get_mut(index) {
        Some(bytes) => {
            *bytes = vec![0; length];
            bytes.as_mut_ptr()
        }
        None => std::ptr::null_mut(),
    }
}

/// Start of the output.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    locked(&OUTPUT).as_ptr()
}

/// Length of the output in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn output_length() -> usize {
    locked(&OUTPUT).len()
}

/// Opens a model. The inputs are the model file, and the file of its template, empty if it has none. Returns 1, or 0
/// with the error as the output.
#[unsafe(no_mangle)]
pub extern "C" fn open() -> u32 {
    std::panic::set_hook(Box::new(|panic| *locked(&OUTPUT) = panic.to_string()));
    answer(|[file, template]| {
        let mut model = TrainedModel::from_bytes(&file)?;
        if !template.is_empty() {
            model.template = Some(parse_mesh("template.ply".as_ref(), &template)?.mesh);
        }
        *locked(&MODEL) = Some(model);
        Ok(String::new())
    })
}

/// Predicts for a mesh file. The inputs are its name and its bytes. Returns 1, with the page of the prediction in JSON
/// as the output, or 0 with the error.
#[unsafe(no_mangle)]
pub extern "C" fn predict() -> u32 {
    answer(|[name, bytes]| {
        let name = String::from_utf8(name)?;
        let model = locked(&MODEL);
        let model = model.as_ref().ok_or("no model is open")?;
        let file = SurfaceFile::parse(Path::new(&name), &bytes, &model.config.features)?;
        let mut notes = Vec::new();
        let mut workspace = Workspace::new(Device::Cpu);
        let assessed = Assessment::of_file(model, &mut workspace, &name, file, &mut notes)?;
        let mut shown = PredictionPage::new(model);
        let mut page = Page::new(name);
        page.classes = shown.classes();
        let (mut mesh, _) = shown.mesh(assessed);
        (mesh.facts).extend(notes.into_iter().map(|note| ("Note".into(), note)));
        page.meshes.push(mesh);
        let page = page.encode()?;
        let blocks = serde_json::to_string(&page.blocks)?;
        Ok(format!("{{\"description\":{},\"blocks\":{blocks}}}", page.description))
    })
}

/// Runs a call with its inputs, and keeps its output.
fn answer(call: impl FnOnce([Vec<u8>; 2]) -> Result<String, Box<dyn Error>>) -> u32 {
    let inputs = std::mem::take(&mut *locked(&INPUTS));
    let result = call(inputs);
    let is_right = result.is_ok();
    *locked(&OUTPUT) = result.unwrap_or_else(|error| error.to_string());
    u32::from(is_right)
}
