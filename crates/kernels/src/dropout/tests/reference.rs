//! One random word for each unit, unit by unit.

use crate::dropout::{Dropout, scale, threshold};
use crate::random::Stream;
use crate::{KernelError, Real};

/// `y` from `x`.
pub fn forward<T: Real>(config: &Dropout, stream: Stream, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    let units = config.units()?;
    let width = config.kind.dimension().max(1);
    let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
    for (vertex, (x, y)) in rows.enumerate() {
        for run in config.runs() {
            for channel in 0..run.channels {
                let unit = vertex * units + run.unit + channel;
                let kept = u64::from(stream.word(unit as u64)) >= threshold(config.probability);
                let factor = if kept { scale(config.probability) } else { 0.0 };
                let place = run.start + channel;
                y[place] = x[place] * T::of(factor);
            }
        }
    }
    Ok(())
}
