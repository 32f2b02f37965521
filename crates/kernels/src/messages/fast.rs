//! The same maps as gathers, rows in parallel.

use super::{Gather, GatherBackward, Reduce, ReduceBackward};
use crate::parallel::for_rows;
use crate::rotated_sum::{Term, add_rotated};
use crate::{Aggregation, GraphView, Host, Real};

fn back<T: Real>([c, s]: [T; 2]) -> [T; 2] {
    [c, -s]
}

/// The vertex `p` of the edge `p <- q`.
#[inline(always)]
fn centre<T: Real>(graph: GraphView<'_, T>, edge: usize) -> usize {
    graph.neighbours()[graph.reverse()[edge] as usize] as usize
}

pub(super) fn gather<T: Real>(Gather { features, range, graph, x, z }: Gather<'_, Host<T>>) {
    let width = features.dimension();
    for_rows(
        z,
        2 * width,
        #[inline(always)]
        |row, z| {
            let edge = range.start + row;
            let phases = &graph.phases()[edge];
            let (own, neighbour) = z.split_at_mut(width);
            for (vertex, phase, z) in [
                (centre(graph, edge), back(phases.angle), own),
                (graph.neighbours()[edge] as usize, phases.transport, neighbour),
            ] {
                z.fill(T::zero());
                let term = Term::new(vertex, phase);
                add_rotated(features, &term, &x[vertex * width..][..width], z);
            }
        },
    );
}

pub(super) fn gather_backward<T: Real>(GatherBackward { features, range, graph, dz, dx }: GatherBackward<'_, Host<T>>) {
    let width = features.dimension();
    for_rows(
        dx,
        width,
        #[inline(always)]
        |vertex, dx| {
            for edge in graph.row(vertex) {
                let outgoing = graph.reverse()[edge] as usize;
                for (edge, phase, part) in
                    [(edge, graph.phases()[edge].angle, 0), (outgoing, back(graph.phases()[outgoing].transport), width)]
                {
                    if range.contains(&edge) {
                        let row = edge - range.start;
                        let dz = &dz[row * 2 * width + part..][..width];
                        add_rotated(features, &Term::new(row, phase), dz, dx);
                    }
                }
            }
        },
    );
}

pub(super) fn reduce<T: Real>(Reduce { features, range, graph, values, y }: Reduce<'_, Host<T>>) {
    if range.is_empty() {
        return;
    }
    let (width, offsets) = (features.dimension(), graph.offsets());
    // The vertices of the first and of the last edge.
    let vertex_of = |edge: usize| offsets.partition_point(|&start| start as usize <= edge) - 1;
    let (first, last) = (vertex_of(range.start), vertex_of(range.end - 1));
    for_rows(
        &mut y[first * width..(last + 1) * width],
        width,
        #[inline(always)]
        |place, y| {
            let row = graph.row(first + place);
            let scale = Aggregation::Mean.scale(row.len());
            for edge in row.start.max(range.start)..row.end.min(range.end) {
                let source = edge - range.start;
                let term = Term { scale, ..Term::new(source, graph.phases()[edge].angle) };
                add_rotated(features, &term, &values[source * width..][..width], y);
            }
        },
    );
}

pub(super) fn reduce_backward<T: Real>(
    ReduceBackward { features, range, graph, dy, dvalues }: ReduceBackward<'_, Host<T>>,
) {
    let width = features.dimension();
    for_rows(
        dvalues,
        width,
        #[inline(always)]
        |row, dvalues| {
            let edge = range.start + row;
            let vertex = centre(graph, edge);
            let term = Term {
                scale: Aggregation::Mean.scale(graph.row(vertex).len()),
                ..Term::new(vertex, back(graph.phases()[edge].angle))
            };
            dvalues.fill(T::zero());
            add_rotated(features, &term, &dy[vertex * width..][..width], dvalues);
        },
    );
}
