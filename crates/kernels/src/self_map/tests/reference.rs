//! The equivariant linear map exactly as in its formula, channel pair by channel pair.

use crate::Real;
use crate::self_map::{SelfMap, blocks};

/// The same as [`Forward`](crate::self_map::Forward).
pub fn forward<T: Real>(op: &SelfMap, vertices: usize, x: &[T], weight: &[T], bias: &[T], y: &mut [T]) {
    y.fill(T::zero());
    for vertex in 0..vertices {
        let x = &x[vertex * op.input.dimension()..];
        let y = &mut y[vertex * op.output.dimension()..];
        for (i, &bias) in bias.iter().enumerate() {
            y[i] = bias;
        }
        for block in blocks(&op.input, &op.output) {
            for i in 0..block.out_channels {
                for j in 0..block.in_channels {
                    let (cosine, sine) = (block.in_start + j, block.in_start + block.in_channels + j);
                    let to = block.out_start + i;
                    let a = weight[block.a(i, j)];
                    y[to] += a * x[cosine];
                    if block.order > 0 {
                        let b = weight[block.b(i, j)];
                        y[to] += b * x[sine];
                        y[to + block.out_channels] += a * x[sine] - b * x[cosine];
                    }
                }
            }
        }
    }
}

/// The same as [`Backward`](crate::self_map::Backward).
#[allow(clippy::too_many_arguments)]
pub fn backward<T: Real>(
    op: &SelfMap,
    vertices: usize,
    x: &[T],
    weight: &[T],
    dy: &[T],
    dx: &mut [T],
    dweight: &mut [T],
    dbias: &mut [T],
) {
    dx.fill(T::zero());
    for vertex in 0..vertices {
        let (from, to) = (vertex * op.input.dimension(), vertex * op.output.dimension());
        let (x, dx, dy) = (&x[from..], &mut dx[from..], &dy[to..]);
        for (i, dbias) in dbias.iter_mut().enumerate() {
            *dbias += dy[i];
        }
        for block in blocks(&op.input, &op.output) {
            for i in 0..block.out_channels {
                for j in 0..block.in_channels {
                    let (cosine, sine) = (block.in_start + j, block.in_start + block.in_channels + j);
                    let to = block.out_start + i;
                    let a = weight[block.a(i, j)];
                    dx[cosine] += a * dy[to];
                    dweight[block.a(i, j)] += dy[to] * x[cosine];
                    if block.order > 0 {
                        let (b, dy_cos, dy_sin) = (weight[block.b(i, j)], dy[to], dy[to + block.out_channels]);
                        dx[cosine] -= b * dy_sin;
                        dx[sine] += b * dy_cos + a * dy_sin;
                        dweight[block.a(i, j)] += dy_sin * x[sine];
                        dweight[block.b(i, j)] += dy_cos * x[sine] - dy_sin * x[cosine];
                    }
                }
            }
        }
    }
}
