//! A pool of threads for each process.
//!
//! The global pool of rayon does not survive a fork: a forked worker of a `DataLoader` would wait for threads that
//! exist in its parent only. Here pools are told apart by process and size. They form a list that only grows, without
//! a lock that a fork could copy while it is held.
//!
//! Operators are short. The thread that calls them first is therefore part of a pool of its own: to hand an operator to
//! another thread and to wake up again takes longer than the operator does on a small mesh.

use crate::errors;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// The number of threads that was set; 0 if none was.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);
/// More threads than any machine has.
const MAX_THREADS: usize = 1024;
/// `torch.get_num_threads`, once `gemcnn.torch` is imported.
static FOLLOWED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// The pool that was made last.
static POOLS: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());

struct Node {
    process: u32,
    threads: usize,
    pool: ThreadPool,
    next: *const Node,
}

/// The number of threads in use: the one that was set, else that of PyTorch if it is used, else one for each core.
fn threads(py: Python<'_>) -> PyResult<usize> {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen > 0 {
        return Ok(chosen);
    }
    match FOLLOWED.get(py) {
        Some(followed) => followed.call0(py)?.extract(py),
        None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
    }
}

fn pool(threads: usize) -> PyResult<&'static ThreadPool> {
    let process = std::process::id();
    let mut node = POOLS.load(Ordering::Acquire).cast_const();
    // SAFETY: nodes are never freed, and are complete before they are in the list.
    while let Some(found) = unsafe { node.as_ref() } {
        if (found.process, found.threads) == (process, threads) {
            return Ok(&found.pool);
        }
        node = found.next;
    }
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    let node =
        Box::leak(Box::new(Node { process, threads, pool: pool.map_err(errors::task)?, next: std::ptr::null() }));
    let mut first = POOLS.load(Ordering::Acquire);
    loop {
        node.next = first;
        match POOLS.compare_exchange(first, node, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(&node.pool),
            Err(other) => first = other,
        }
    }
}

/// The pool of this process.
pub fn current(py: Python<'_>) -> PyResult<&'static ThreadPool> {
    pool(threads(py)?)
}

/// Runs `work` on a pool, without the GIL. A panic, which is a bug of ours, becomes an exception.
fn install<R: Send>(py: Python<'_>, pool: &ThreadPool, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(|| pool.install(work))));
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        errors::internal(format!("a bug in gemcnn, please report it: {text}"))
    })
}

/// Runs `work` on the pool of this process, without the GIL.
pub fn work<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    install(py, current(py)?, work)
}

thread_local! {
    /// The pool that this thread is part of.
    static OWN: Cell<Option<&'static Node>> = const { Cell::new(None) };
}

/// The pool of this size that the calling thread is part of. A thread can be part of one only, and rayon never frees
/// it, so there is one in a process.
fn own(threads: usize) -> Option<&'static ThreadPool> {
    static CLAIMED: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    if let Some(node) = OWN.get() {
        return ((node.process, node.threads) == (process, threads)).then_some(&node.pool);
    }
    if CLAIMED.swap(process, Ordering::Relaxed) == process {
        return None;
    }
    let pool = ThreadPoolBuilder::new().num_threads(threads).use_current_thread();
    let node: &Node = Box::leak(Box::new(Node { process, threads, pool: pool.build().ok()?, next: std::ptr::null() }));
    OWN.set(Some(node));
    Some(&node.pool)
}

/// Runs an operator, in the calling thread if it has a pool of its own, without the GIL.
pub fn operate<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    let threads = threads(py)?;
    let pool = match own(threads) {
        Some(own) => own,
        None => pool(threads)?,
    };
    install(py, pool, work)
}

#[pyfunction]
fn set_num_threads(threads: usize) -> PyResult<()> {
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(errors::operator(format!("`threads` must be an integer from 1 to {MAX_THREADS}, not {threads}")));
    }
    CHOSEN.store(threads, Ordering::Relaxed);
    Ok(())
}

#[pyfunction]
fn get_num_threads(py: Python<'_>) -> PyResult<usize> {
    threads(py)
}

/// Takes the number of threads from a function, unless one was set.
#[pyfunction]
fn follow_num_threads(py: Python<'_>, function: Py<PyAny>) {
    // A second import of `gemcnn.torch` changes nothing.
    let _ = FOLLOWED.set(py, function);
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(set_num_threads, module)?)?;
    module.add_function(wrap_pyfunction!(get_num_threads, module)?)?;
    module.add_function(wrap_pyfunction!(follow_num_threads, module)?)
}
