//! Memory of a training step: few feature maps, and no large allocation after the first steps. A program of
//! its own, because its global allocator counts the allocations of the whole process.

// A counting allocator is the only way to see every allocation, and allocators are unsafe to write.
#![allow(unsafe_code)]

mod common;

use common::random;
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{GaugeGraph, GeometryOptions};
use gemcnn_nn::layers::{Regular, ResidualBlockConfig};
use gemcnn_nn::{Builder, FeatureType, GraphBatch, Method, Module, Optimiser, Parameters, Stream, Tape, Workspace};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Allocations above this size count as large.
const LARGE: usize = 64 * 1024;

static LARGE_ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is handed on to the system's allocator unchanged; counting touches no memory
// that is allocated.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Relaxed);
        count(size);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(size: usize) {
    if size > LARGE {
        LARGE_ALLOCATIONS.fetch_add(1, Relaxed);
    }
    let live = LIVE.fetch_add(size, Relaxed) + size;
    PEAK.fetch_max(live, Relaxed);
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test in this file: counters are shared by all threads of the process.
#[test]
fn memory_of_a_warm_training_step() {
    let mesh = shapes::grid(65, 106, Cells::Triangles).unwrap();
    assert_eq!(mesh.vertex_count(), 6890);
    let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
    let batch = GraphBatch::<f32>::new([&graph]).unwrap();
    let hidden = FeatureType::uniform(16, 2);
    let x = random::<f32>(6890 * 80, 1);
    let target = random::<f32>(6890 * 80, 2);
    for regular in [Regular::relu(5), Regular::relu(5).with_batch_norm()] {
        let mut parameters = Parameters::<f32>::new();
        let blocks: Vec<_> = (0..3)
            .map(|index| {
                let config = ResidualBlockConfig {
                    nonlinearity: Arc::new(regular.clone()),
                    ..ResidualBlockConfig::new(hidden.clone(), hidden.clone())
                };
                let builder = &mut Builder::new(&mut parameters, index);
                config.init(&format!("block{index}"), builder).unwrap()
            })
            .collect();
        let mut optimiser = Optimiser::new(Method::adam(), &parameters).unwrap();
        let mut workspace = Workspace::default();
        let before = LIVE.load(Relaxed);
        PEAK.store(before, Relaxed);
        let mut large = 0;
        for step in 0..4 {
            if step == 2 {
                large = LARGE_ALLOCATIONS.load(Relaxed);
            }
            parameters.clear_gradients();
            let stream = Stream { seed: 1, step };
            let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
            let mut y = tape.input(hidden.clone(), &x).unwrap();
            for block in &blocks {
                y = block.forward(&mut tape, (&batch).into(), y).unwrap();
            }
            let loss = tape.mean_square(y, &target).unwrap();
            tape.backward(&loss).unwrap();
            parameters.clip_gradients(1.0).unwrap();
            optimiser.step(&mut parameters, 1e-3).unwrap();
        }
        let new = LARGE_ALLOCATIONS.load(Relaxed) - large;
        assert_eq!(new, 0, "large allocations in two warm steps");
        let map = 6890 * 80 * 4;
        let peak = (PEAK.load(Relaxed) - before) as f64 / map as f64;
        let pool = workspace.pool().usage().peak_bytes as f64 / map as f64;
        println!("peak: {peak:.2} maps, of which features {pool:.2}");
        assert!(peak <= 20.0, "{peak:.2} feature maps");
        assert_eq!(workspace.pool().usage().live_bytes, 0);
    }
}
