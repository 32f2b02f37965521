//! Sums over rows in two stages, and products that are sums over rows.

use super::{
    Arg, CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Operand, Product, Result, args,
    check_length, to_u32,
};

pub(crate) const SOURCE: KernelSource = KernelSource::new("reduce", include_str!("reduce.cu"));

/// How rows and columns are divided among blocks, each of which computes one partial sum. Depends on the
/// sizes only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    /// Rows of one block.
    pub rows_of_block: usize,
    /// Partial sums of each column.
    pub count: usize,
    /// Blocks: partial sums, and runs of columns.
    pub blocks: (usize, usize),
    /// Threads: columns, and rows at a time.
    pub threads: (usize, usize),
}

/// Smallest number of rows of a partial sum, for kernels that only sum, and for those that compute more for each row.
pub(crate) const MIN_ROWS: usize = 32;
pub(crate) const MIN_COMPUTED_ROWS: usize = 16;
/// Largest number of partial sums.
const MAX_PARTS: usize = 512;

impl Pieces {
    pub fn new(rows: usize, columns: usize, least_rows: usize) -> Self {
        let rows_of_block = rows.div_ceil(MAX_PARTS).max(least_rows);
        let count = rows.div_ceil(rows_of_block);
        let threads = column_threads(columns);
        Self { rows_of_block, count, blocks: (count, columns.div_ceil(threads.0)), threads }
    }
}

/// Threads of a block over columns and rows, at most 256.
pub(crate) fn column_threads(columns: usize) -> (usize, usize) {
    let columns = columns.max(1);
    let across = columns.div_ceil(columns.div_ceil(128));
    (across, 256 / across)
}

/// `result[c] += sum over rows of x[row * stride + c]` for the first `columns` columns.
pub(crate) fn add_column_sums(
    device: &CudaDevice,
    x: DeviceSlice<'_, f32>,
    (rows, stride, columns): (usize, usize, usize),
    result: &DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let partials = ColumnPartials::new(device, x, (rows, stride, columns))?;
    partials.add_to(device, result)
}

/// Most rows and columns whose sums need no partial sums: a block of threads for each column takes no longer than the
/// launch of another kernel.
const FEW_ROWS: usize = 8192;
const FEW_COLUMNS: usize = 64;

/// Columns that are still to be summed: partial sums in f64, `[parts, columns]`, or few rows as they are.
#[derive(Debug)]
pub(crate) struct ColumnPartials<'a> {
    partials: DeviceBuffer<f64>,
    /// Empty if there are partial sums.
    x: DeviceSlice<'a, f32>,
    /// Number of rows of `partials` or `x`, and the distance between them.
    rows: usize,
    stride: usize,
    columns: usize,
}

/// Columns, and the results to which their sums are added.
pub(crate) type Columns<'a> = (&'a ColumnPartials<'a>, &'a DeviceSliceMut<'a, f32>);

impl<'a> ColumnPartials<'a> {
    /// Those of the first `columns` columns of `x`.
    pub fn new(device: &CudaDevice, x: DeviceSlice<'a, f32>, shape: (usize, usize, usize)) -> Result<Self> {
        Self::of_rows(device, x, shape)?.in_parts(device)
    }

    /// The same, all rows of which are still to be summed.
    pub fn of_rows(
        device: &CudaDevice,
        x: DeviceSlice<'a, f32>,
        (rows, stride, columns): (usize, usize, usize),
    ) -> Result<Self> {
        Ok(Self { partials: device.buffer(0)?, x, rows, stride, columns })
    }

    /// The same with partial sums, unless there are few rows.
    pub fn in_parts(self, device: &CudaDevice) -> Result<Self> {
        let few = self.rows <= FEW_ROWS && self.columns <= FEW_COLUMNS;
        if self.x.is_empty() || few {
            return Ok(self);
        }
        let pieces = Pieces::new(self.rows, self.columns, MIN_ROWS);
        let mut partials: DeviceBuffer<f64> = device.buffer(pieces.count * self.columns)?;
        // SAFETY: the rows lie in `x`, as the operator checked, and there is a partial sum for each block
        // and column.
        unsafe {
            let function = device.function(SOURCE, &[], "column_partials")?;
            let arguments =
                args![self.x, self.stride, self.rows, self.columns, pieces.rows_of_block, &partials.view_mut()];
            function.run(pieces.blocks, pieces.threads, arguments)?;
        }
        Ok(Self::of_partials(partials, self.columns))
    }

    /// True if they are the first `columns` columns of all rows of `x`.
    pub fn are_columns_of(&self, x: DeviceSlice<'_, f32>, columns: usize) -> bool {
        self.columns == columns && self.x.address == x.address && self.rows * self.stride == x.len()
    }

    /// Partial sums that were made elsewhere, `[parts, columns]`.
    pub fn of_partials(partials: DeviceBuffer<f64>, columns: usize) -> Self {
        Self { rows: partials.len() / columns.max(1), x: DeviceSlice::empty(), partials, stride: columns, columns }
    }

    /// No columns.
    pub fn none(device: &CudaDevice) -> Result<Self> {
        Ok(Self::of_partials(device.buffer(0)?, 0))
    }

    /// Arguments of `add_column` there.
    fn arguments(&self, result: &DeviceSliceMut<'_, f32>) -> [Arg; 5] {
        *args![&self.partials, self.x, self.rows, self.stride, result]
    }

    /// `result[c] += sum of column c`.
    pub fn add_to(&self, device: &CudaDevice, result: &DeviceSliceMut<'_, f32>) -> Result<()> {
        let function = device.function(SOURCE, &[], "add_column_sums")?;
        // SAFETY: there are as many numbers of each column, and a result for each.
        unsafe { function.run((self.columns, 1), (256, 1), &self.arguments(result)) }
    }
}

/// `y[row][i] = bias[i]` for the first numbers of each row.
pub(crate) fn fill_rows(
    device: &CudaDevice,
    y: &DeviceSliceMut<'_, f32>,
    (rows, width): (usize, usize),
    bias: DeviceSlice<'_, f32>,
) -> Result<()> {
    if bias.is_empty() || rows == 0 {
        return Ok(());
    }
    let threads = column_threads(bias.len());
    let rows_of_block = 16 * threads.1;
    let blocks = (rows.div_ceil(rows_of_block), bias.len().div_ceil(threads.0));
    let function = device.function(SOURCE, &[], "fill_rows")?;
    // SAFETY: `y` has `rows` rows of `width` numbers, and a bias is no longer than a row, as the operator
    // checked.
    unsafe { function.run(blocks, threads, args![y, width, rows, bias, bias.len(), rows_of_block]) }
}

/// A linear map with entries -1, 0 and 1: expands parameters to the entries of a matrix, or folds its
/// gradient back.
#[derive(Debug)]
pub(crate) struct SignedTable {
    entries: DeviceBuffer<i32>,
    /// Each result with its terms, in the order of their first places.
    rows: DeviceBuffer<i32>,
    terms: usize,
    count: usize,
}

impl SignedTable {
    /// A table of `count` results with at most `terms` terms each, from `(result, place, negative)`.
    pub fn new(
        device: &CudaDevice,
        count: usize,
        terms: usize,
        parts: impl IntoIterator<Item = (usize, usize, bool)>,
    ) -> Result<Self> {
        let mut entries = vec![0i32; count * terms];
        for (result, place, negative) in parts {
            let entry = i32::try_from(place + 1).map_err(|_| crate::KernelError::Setting {
                operator: "weights",
                problem: format!("{place} weights are too many"),
            })?;
            let row = &mut entries[result * terms..(result + 1) * terms];
            if let Some(free) = row.iter_mut().find(|entry| **entry == 0) {
                *free = if negative { -entry } else { entry };
            }
        }
        let mut order: Vec<i32> = (0..to_u32("weights", count)? as i32).collect();
        let terms_of = |result: i32| &entries[result as usize * terms..][..terms];
        order.sort_by_key(|&result| terms_of(result).first().map(|entry| entry.unsigned_abs()));
        let rows: Vec<i32> = (order.iter()).flat_map(|&result| [&[result], terms_of(result)].concat()).collect();
        Ok(Self { entries: device.upload(&entries)?, rows: device.upload(&rows)?, terms, count })
    }

    /// Sums the terms of every result. Sources and results may be split over two slices each.
    pub fn apply(
        &self,
        device: &CudaDevice,
        [from, from_rest]: [DeviceSlice<'_, f32>; 2],
        [to, to_rest]: [&DeviceSliceMut<'_, f32>; 2],
        add: bool,
    ) -> Result<()> {
        let Self { entries, terms, count, .. } = self;
        let function = device.function(SOURCE, &[], "signed_terms")?;
        let (add, lengths) = (u32::from(add), [from.len(), to.len()]);
        let arguments = args![entries, *terms, *count, from, from_rest, lengths[0], to, to_rest, lengths[1], add];
        // SAFETY: the table was made for sources and results of these lengths, which the operators
        // check.
        unsafe { function.over(*count, arguments) }
    }

    /// The table: for each result its terms, 1 + the place of a source, negative for its negative, or 0 for none.
    pub fn entries(&self) -> &DeviceBuffer<i32> {
        &self.entries
    }

    /// Adds the terms of every result, summed over `count` partial sums of `size` numbers each. Results may be split
    /// over two slices. In the same launch, adds sums of columns to a result of their own.
    pub fn fold_partials(
        &self,
        device: &CudaDevice,
        partials: DeviceSlice<'_, f32>,
        (count, size): (usize, usize),
        [to, to_rest]: [&DeviceSliceMut<'_, f32>; 2],
        (columns, column_sums): Columns<'_>,
    ) -> Result<()> {
        assert!(count * size <= partials.len(), "too few partial sums");
        let function = device.function(SOURCE, &[], "fold_partials")?;
        let first: &[Arg] = args![&self.rows, self.terms, self.count, partials, count, size, to, to_rest, to.len()];
        let arguments = [first, &columns.arguments(column_sums)].concat();
        // SAFETY: the table was made for sources of `size` numbers and results of these lengths, which the operators
        // check; there are as many partial sums as the assertion says, and a result for each column.
        unsafe { function.run((self.count.div_ceil(32) + columns.columns, 1), (32, 8), &arguments) }
    }
}

/// Products `a^T b` that sum over rows, computed as partial products over slabs of rows: one product with few
/// results and many rows would leave most of the device idle.
#[derive(Debug)]
pub(crate) struct RowProducts {
    partials: DeviceBuffer<f32>,
    /// Length of a partial result.
    size: usize,
    slabs: usize,
    /// True once the slabs, and the remaining rows, hold sums.
    begun: [bool; 2],
}

/// One product over the rows of a slab.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowProduct<'a> {
    /// `[rows, m]`, and the stride of its rows.
    pub a: (DeviceSlice<'a, f32>, usize),
    /// `[rows, n]`, likewise.
    pub b: (DeviceSlice<'a, f32>, usize),
    pub m: usize,
    pub n: usize,
    /// Where the `[m, n]` result starts in a partial result.
    pub place: usize,
}

impl RowProducts {
    /// For results of `size` numbers, at most `largest` of which are of one product, over `rows` rows at a time.
    pub fn new(device: &CudaDevice, rows: usize, (size, largest): (usize, usize)) -> Result<Self> {
        // A block of threads of cuBLAS has about 128 x 128 results, and every multiprocessor takes one.
        let most = device.multiprocessors();
        let wanted = most * (128 * 128) / largest.max(1);
        let slabs = divisor(rows, wanted.min(rows / 128).clamp(1, most.max(1)));
        Ok(Self { partials: device.buffer((slabs + 1) * size)?, size, slabs, begun: [false; 2] })
    }

    /// Adds products over the same `rows` rows.
    pub fn add(&mut self, device: &CudaDevice, rows: usize, products: &[RowProduct<'_>]) -> Result<()> {
        let of_slab = rows / self.slabs;
        let rest = rows - of_slab * self.slabs;
        let parts = [(0, of_slab, self.slabs), (self.slabs, rest, 1)];
        for (begun, (slab, rows_of_part, batches)) in self.begun.iter_mut().zip(parts) {
            if rows_of_part == 0 {
                continue;
            }
            let first = slab * of_slab;
            for product in products {
                let &RowProduct { a: (a, a_stride), b: (b, b_stride), m, n, place } = product;
                let a = Operand::new(a.from(first * a_stride), a_stride).transposed().batched(rows_of_part * a_stride);
                let b = Operand::new(b.from(first * b_stride), b_stride).batched(rows_of_part * b_stride);
                let product = Product { m, n, k: rows_of_part, a, b, add: *begun, batches };
                let to = self.partials.view_mut().slice(slab * self.size + place..usize::MAX);
                product.run(device, &to, (n, self.size))?;
            }
            *begun = true;
        }
        Ok(())
    }

    /// The partial products, and their number.
    pub fn partials(&self) -> (DeviceSlice<'_, f32>, usize) {
        let [slabs, rest] = self.begun;
        let count = if slabs { self.slabs } else { 0 } + usize::from(rest);
        (self.partials.view(), count)
    }

    /// `result = sum of the partial products`, or `result += it`.
    pub fn finish(self, device: &CudaDevice, result: &DeviceSliceMut<'_, f32>, add: bool) -> Result<()> {
        let (partials, count) = self.partials();
        sum_partials(device, partials, count, result, add)
    }

    /// `result += sum of the partial products`, and in the same launch the sums of columns.
    pub fn finish_with(
        self,
        device: &CudaDevice,
        result: &DeviceSliceMut<'_, f32>,
        columns: Columns<'_>,
    ) -> Result<()> {
        let (partials, count) = self.partials();
        sum_partials_and(device, partials, count, (result, true), columns)
    }
}

/// `result = sum over partials`, or `result += it`; a partial is as long as the result.
pub(crate) fn sum_partials(
    device: &CudaDevice,
    partials: DeviceSlice<'_, f32>,
    count: usize,
    result: &DeviceSliceMut<'_, f32>,
    add: bool,
) -> Result<()> {
    let none = ColumnPartials::none(device)?;
    let columns = (&none, &DeviceSliceMut::empty());
    sum_partials_and(device, partials, count, (result, add), columns)
}

/// The same, and in the same launch the sums of columns.
pub(crate) fn sum_partials_and(
    device: &CudaDevice,
    partials: DeviceSlice<'_, f32>,
    count: usize,
    (result, add): (&DeviceSliceMut<'_, f32>, bool),
    (columns, column_sums): Columns<'_>,
) -> Result<()> {
    assert!(count * result.len() <= partials.len(), "too few partial sums");
    let function = device.function(SOURCE, &[], "sum_partials")?;
    // SAFETY: there are as many partials as the assertion says, and a result for each column.
    unsafe {
        function.run(
            (result.len().div_ceil(32) + columns.columns, 1),
            (32, 8),
            &[args![partials, count, result.len(), result, u32::from(add)], &columns.arguments(column_sums)[..]]
                .concat(),
        )
    }
}

/// Copies four parts to `packed`, one after the other, or with `add` adds those of `packed` to them.
pub(crate) fn copy_parts(
    device: &CudaDevice,
    operator: &'static str,
    parts: [DeviceSlice<'_, f32>; 4],
    packed: DeviceSlice<'_, f32>,
    add: bool,
) -> Result<()> {
    let total = parts.iter().map(DeviceSlice::len).sum();
    check_length(operator, "packed weights", packed, total)?;
    let [a, b, c, d] = parts;
    let function = device.function(SOURCE, &[], "copy_parts")?;
    // SAFETY: lengths were checked above.
    unsafe { function.over(total, args![packed, a, a.len(), b, b.len(), c, c.len(), d, d.len(), u32::from(add)]) }
}

/// The largest divisor of `rows` from half of `wanted` to `wanted`, else `wanted`: so that no rows remain, if
/// possible.
pub(crate) fn divisor(rows: usize, wanted: usize) -> usize {
    let candidates = (wanted.div_ceil(2)..=wanted).rev();
    let mut exact = candidates.filter(|&n| rows.is_multiple_of(n));
    exact.next().unwrap_or(wanted).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_divide_the_rows_where_they_can() {
        assert_eq!(divisor(55_120, 128), 106);
        assert_eq!(divisor(6890, 26), 26);
        assert_eq!(divisor(997, 3), 3);
        assert_eq!((divisor(0, 1), divisor(1, 1)), (1, 1));
    }

    #[test]
    fn every_column_and_row_has_a_thread() {
        for columns in [1, 3, 16, 80, 128, 129, 256, 6890] {
            let (across, down) = column_threads(columns);
            assert!(across * down <= 256 && across <= 128 && down >= 1);
            let pieces = Pieces::new(55_120, columns, MIN_ROWS);
            assert!(pieces.blocks.1 * pieces.threads.0 >= columns);
            assert!(pieces.count * pieces.rows_of_block >= 55_120);
        }
    }
}
