//! The same maps over runs of channels, rows in parallel.

use super::{Dot, Grouping, Norm, NormBackward, Scale};
use crate::parallel::for_rows;
use crate::{Host, Real};

pub(super) fn norm<T: Real>(Norm { features, epsilon, rows, x, y }: Norm<'_, Host<T>>) {
    products(Dot { features, grouping: Grouping::Irreps, rows, a: x, b: x, y }, Some(T::of(epsilon)));
}

pub(super) fn dot<T: Real>(pass: Dot<'_, Host<T>>) {
    products(pass, None);
}

/// `y = <a, b>`, or the root of its sum with epsilon.
fn products<T: Real>(Dot { features, grouping, a, b, y, .. }: Dot<'_, Host<T>>, epsilon: Option<T>) {
    let (runs, width) = (grouping.runs(features), features.dimension());
    for_rows(
        y,
        grouping.count(features),
        #[inline(always)]
        |row, y| {
            let (a, b) = (&a[row * width..][..width], &b[row * width..][..width]);
            y.fill(T::zero());
            for run in &runs {
                let (a, b) = (&a[run.start..][..run.length], &b[run.start..][..run.length]);
                let products = a.iter().zip(b).map(|(&a, &b)| a * b);
                match grouping {
                    Grouping::Irreps => {
                        let sums = y[run.scalar..].iter_mut().zip(products);
                        sums.for_each(|(sum, product)| *sum += product);
                    }
                    Grouping::Heads(_) => y[run.scalar] += products.sum(),
                }
            }
            if let Some(epsilon) = epsilon {
                y.iter_mut().for_each(|y| *y = (*y + epsilon).sqrt());
            }
        },
    );
}

pub(super) fn scale<T: Real>(Scale { features, grouping, x, factors, y, .. }: Scale<'_, Host<T>>) {
    let (runs, width) = (grouping.runs(features), features.dimension());
    let count = grouping.count(features);
    for_rows(
        y,
        width,
        #[inline(always)]
        |row, y| {
            let (x, factors) = (&x[row * width..][..width], &factors[row * count..][..count]);
            for run in &runs {
                let x = &x[run.start..][..run.length];
                let pairs = y[run.start..][..run.length].iter_mut().zip(x);
                match grouping {
                    Grouping::Irreps => {
                        let all = pairs.zip(&factors[run.scalar..]);
                        all.for_each(|((y, &x), &factor)| *y = factor * x);
                    }
                    Grouping::Heads(_) => {
                        let factor = factors[run.scalar];
                        pairs.for_each(|(y, &x)| *y = factor * x);
                    }
                }
            }
        },
    );
}

pub(super) fn norm_backward<T: Real>(NormBackward { features, epsilon, x, dy, dx, .. }: NormBackward<'_, Host<T>>) {
    let epsilon = T::of(epsilon);
    let (width, count) = (features.dimension(), Grouping::Irreps.count(features));
    for_rows(
        dx,
        width,
        #[inline(always)]
        |row, mut dx| {
            let (mut x, mut dy) = (&x[row * width..][..width], &dy[row * count..][..count]);
            for (order, channels) in features.orders() {
                let (dy_here, dy_rest) = dy.split_at(channels);
                let (xa, x_rest) = x.split_at(channels);
                let (da, dx_rest) = dx.split_at_mut(channels);
                (x, dx, dy) = (x_rest, dx_rest, dy_rest);
                if order == 0 {
                    for ((da, &xa), &dy) in da.iter_mut().zip(xa).zip(dy_here) {
                        *da = dy * xa / (xa * xa + epsilon).sqrt();
                    }
                    continue;
                }
                let (xb, x_rest) = x.split_at(channels);
                let (db, dx_rest) = dx.split_at_mut(channels);
                (x, dx) = (x_rest, dx_rest);
                let places = da.iter_mut().zip(db).zip(xa.iter().zip(xb));
                for (((da, db), (&xa, &xb)), &dy) in places.zip(dy_here) {
                    let factor = dy / (xa * xa + xb * xb + epsilon).sqrt();
                    *da = factor * xa;
                    *db = factor * xb;
                }
            }
        },
    );
}
