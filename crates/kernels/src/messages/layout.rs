//! Sizes of the kernels of a [`Chain`](super::chain::Chain), and how weights and features are padded for them.

use super::OPERATOR;
use crate::cuda::reduce::SignedTable;
use crate::cuda::tiles::{BACKWARD_WARPS, COLLECTORS, FORWARD_WARPS, OCTET, Octets, WARP_ROWS};
use crate::cuda::{CudaDevice, Define, DeviceBuffer, Result, to_u32};
use crate::regular::cuda::DevicePlan;
use crate::self_map::{SelfMap, blocks};
use crate::{FeatureType, irrep_dimension};

/// Most 16x8 tiles of gradients of weights in the registers of a warp.
const MAX_SUMS: usize = 30;

/// Sizes of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Of the features and of a layer.
    pub octets: Octets,
    pub layers: usize,
    pub is_update: bool,
}

impl Shape {
    pub fn input_width(&self) -> usize {
        self.octets.input_width()
    }

    pub fn width(&self) -> usize {
        self.octets.width()
    }

    /// Numbers of all matrices.
    pub fn matrices(&self) -> usize {
        self.width() * (2 * self.input_width() + (self.layers - 1) * self.width())
    }

    /// Numbers of all matrices and biases.
    pub fn weights(&self) -> usize {
        self.matrices() + self.layers * self.width()
    }

    /// Numbers of weights in shared memory.
    pub fn shared_weights(&self) -> usize {
        let stride = |inputs: usize| inputs.next_multiple_of(32);
        let inputs = stride(2 * self.input_width()) + (self.layers - 1) * stride(self.width());
        self.width() * inputs + self.layers * self.width()
    }

    pub fn forward_bytes(&self) -> usize {
        let stage = if self.is_update { 0 } else { FORWARD_WARPS * WARP_ROWS * self.octets.staged_row() };
        4 * (self.shared_weights() + stage)
    }

    pub fn backward_bytes(&self, warps: usize) -> usize {
        let row = 2 * self.input_width() + 4 + self.layers.max(2) * self.octets.row();
        4 * (self.shared_weights() + WARP_ROWS * warps * row)
    }

    /// Most warps that compute rows of a backward pass, if registers and `limit` bytes of shared memory suffice.
    pub fn backward_warps(&self, limit: usize) -> Option<usize> {
        let tiles = self.width() / OCTET;
        let of_next = (self.layers - 1) * tiles.div_ceil(COLLECTORS);
        let of_first = (2 * self.input_width() / OCTET).div_ceil(COLLECTORS);
        let sums = tiles.div_ceil(2) * (of_first + of_next);
        let fits = |&warps: &usize| self.backward_bytes(warps) <= limit;
        let warps = (1..=BACKWARD_WARPS).rev().find(fits);
        warps.filter(|_| sums <= MAX_SUMS && self.layers <= COLLECTORS)
    }

    pub fn defines(&self, plan: &DevicePlan, warps: usize, is_backward: bool) -> Vec<Define> {
        let numbers = [("LAYERS", self.layers), ("UPDATE", usize::from(self.is_update))];
        let octets = self.octets.defines(warps, is_backward, self.is_update);
        let text = |(name, value): (&'static str, usize)| (name, value.to_string());
        [plan.defines(), &octets, &numbers.map(text)].concat()
    }
}

/// Octets of each component and components of the padded type, and the place of each number of `kind` in a row of it.
pub(super) fn padded(kind: &FeatureType) -> ([usize; 2], Vec<usize>) {
    let most = kind.multiplicities().iter().copied().max().unwrap_or(0);
    let octets = most.div_ceil(OCTET);
    let places = kind.orders().flat_map(|(order, channels)| {
        let start = (2 * order).saturating_sub(1);
        (0..irrep_dimension(order))
            .flat_map(move |component| (0..channels).map(move |channel| (start + component) * OCTET * octets + channel))
    });
    ([octets, 2 * kind.highest_order() + 1], places.collect())
}

/// Tables of a chain on a device.
#[derive(Debug)]
pub(super) struct Tables {
    /// Padded weights from weights, and back.
    pub expand: SignedTable,
    pub fold: SignedTable,
    /// Number of each column of a padded row among the numbers of its type, or `u32::MAX`, and the other way round; of
    /// the features and of the result. `None` if nothing is padded.
    pub columns: [Option<[DeviceBuffer<u32>; 2]>; 2],
    /// Length of the weights.
    pub weights: usize,
}

/// Both directions of a table of columns, unless it is the identity.
fn column_tables(device: &CudaDevice, places: &[usize], width: usize) -> Result<Option<[DeviceBuffer<u32>; 2]>> {
    if places.len() == width {
        return Ok(None);
    }
    let mut numbers = vec![u32::MAX; width];
    let mut columns = Vec::with_capacity(places.len());
    for (number, &place) in places.iter().enumerate() {
        numbers[place] = to_u32(OPERATOR, number)?;
        columns.push(to_u32(OPERATOR, place)?);
    }
    Ok(Some([device.upload(&numbers)?, device.upload(&columns)?]))
}

/// A map of an update to features of type `kind`.
fn update_map(kind: &FeatureType, layer: usize) -> SelfMap {
    SelfMap {
        input: match layer {
            0 => kind.concatenated(kind),
            _ => kind.clone(),
        },
        output: kind.clone(),
        bias: true,
    }
}

impl Tables {
    /// Of a message function; places of the numbers of the features and of a layer in padded rows.
    pub fn messages(device: &CudaDevice, shape: &Shape, places: &[usize], hidden_places: &[usize]) -> Result<Self> {
        let (mut parts, mut from, mut to) = (Vec::new(), 0, 0);
        for layer in 0..shape.layers {
            let (columns, stride): (Vec<usize>, usize) = match layer {
                0 => {
                    let second = places.iter().map(|&place| place + shape.input_width());
                    let both = places.iter().copied().chain(second);
                    (both.collect(), 2 * shape.input_width())
                }
                _ => (hidden_places.to_vec(), shape.width()),
            };
            for &row in hidden_places {
                for &column in &columns {
                    parts.push((to + row * stride + column, from, false));
                    from += 1;
                }
            }
            to += shape.width() * stride;
        }
        for layer in 0..shape.layers {
            for &row in hidden_places {
                parts.push((shape.matrices() + layer * shape.width() + row, from, false));
                from += 1;
            }
        }
        let columns =
            [column_tables(device, places, shape.input_width())?, column_tables(device, hidden_places, shape.width())?];
        Self::new(device, shape, (parts, from), 1, columns)
    }

    /// Of an update of features of type `kind`.
    pub fn update(device: &CudaDevice, shape: &Shape, kind: &FeatureType) -> Result<Self> {
        let width = shape.width();
        let (mut parts, mut from, mut to) = (Vec::new(), 0, 0);
        for layer in 0..shape.layers {
            let map = update_map(kind, layer);
            let stride = if layer == 0 { 2 * width } else { width };
            for block in blocks(&map.input, kind) {
                for column in 0..block.in_width() {
                    // Each component of the first map has channels of features, then of messages.
                    let channels = kind.multiplicity(block.order);
                    let place = match layer {
                        0 => {
                            let (component, channel) = (column / (2 * channels), column % (2 * channels));
                            let end = channel / channels * width;
                            let start = kind.range(block.order).start;
                            end + start + component * channels + channel % channels
                        }
                        _ => block.in_start + column,
                    };
                    for row in 0..block.out_width() {
                        let part = block.part(row, column);
                        let result = to + (block.out_start + row) * stride + place;
                        parts.push((result, from + part.weight, part.negative));
                    }
                }
            }
            from += map.parameter_count();
            to += width * stride;
        }
        for layer in 0..shape.layers {
            for row in 0..kind.multiplicity(0) {
                parts.push((shape.matrices() + layer * width + row, from, false));
                from += 1;
            }
        }
        Self::new(device, shape, (parts, from), 2, [None, None])
    }

    fn new(
        device: &CudaDevice,
        shape: &Shape,
        (parts, weights): (Vec<(usize, usize, bool)>, usize),
        terms: usize,
        columns: [Option<[DeviceBuffer<u32>; 2]>; 2],
    ) -> Result<Self> {
        let back = parts.iter().map(|&(to, from, negative)| (from, to, negative));
        Ok(Self {
            fold: SignedTable::new(device, weights, terms, back)?,
            expand: SignedTable::new(device, shape.weights(), 1, parts.iter().copied())?,
            columns,
            weights,
        })
    }
}
