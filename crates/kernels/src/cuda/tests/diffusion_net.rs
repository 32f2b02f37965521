//! The block of DiffusionNet, also where it has a kernel of its own: 128 channels and eigenvectors, on compute
//! capability 9.0.

use super::*;
use crate::Scratch;
use crate::diffusion::{Spectra, basis_width};
use crate::diffusion_net::{self, DiffusionNet, Weights};
use crate::dropout::cuda::DeviceStream;

const STREAMS: [Stream; 2] = [Stream { seed: 5, step: 3 }, Stream { seed: 6, step: 3 }];
const SALT: u64 = 1 << 40 | 7;

/// Random parameters. Biases of +-8 and +-24 keep all numbers away from the kink of the ReLU: rounding to tf32 would
/// flip one in some thousand, and each of them changes gradients by a whole contribution of a vertex.
fn parameters(op: &DiffusionNet) -> Weights<Vec<f32>> {
    let c = op.channels;
    let scaled =
        |count: usize, seed, scale: f32| -> Vec<f32> { random(count, seed).iter().map(|v| scale * v).collect() };
    let signs = |size: f32| (0..c).map(move |i| if i % 2 == 0 { size } else { -size });
    let scale = 0.9 / (c as f32).sqrt();
    Weights {
        log_times: scaled(c, 11, 1.0),
        bands: scaled(c, 12, 1.0),
        product: scaled(2 * c * c, 13, scale),
        scalars: scaled(2 * c * c, 14, scale),
        scalars_bias: signs(8.0).collect(),
        invariants: scaled(c * c, 15, scale),
        hidden: scaled(c * c, 16, scale),
        hidden_bias: signs(24.0).collect(),
        update: scaled(c * c, 17, scale),
        update_bias: scaled(c, 18, 1.0),
    }
}

#[test]
fn blocks_of_diffusion_net() {
    let Some(device) = device() else { return };
    let mut checks = Checks::new(device);
    // On a GPU with 132 multiprocessors: a tile for each of them, then three tiles that are divided.
    let many: Vec<u32> = (0..=135).map(|mesh| 128 * mesh).collect();
    let some = &[0, 131, 131, 132, 460][..];
    // Sizes of x and of the gradient of y: 16 bits do not hold all of them without scales.
    for (offsets, channels, columns, dropout, (x_size, dy_size)) in [
        (some, 128, &[128][..], 0.4, (1.0, 1.0)),
        (some, 128, &[128], 0.4, (1e-4, 1e-7)),
        (some, 128, &[128], 0.0, (1.0, 1e6)),
        (&many, 128, &[128], 0.4, (1.0, 1.0)),
        // Many slabs, and sums of many of them.
        (&[0, 3000], 128, &[128], 0.4, (1.0, 1.0)),
        (&[0, 130, 260, 390], 128, &[128, 6], 0.0, (1.0, 1.0)),
        (&[0, 131, 150], 12, &[9], 0.4, (1.0, 1.0)),
    ] {
        let op = DiffusionNet { channels, columns: columns.to_vec(), dropout };
        let (rows, meshes) = (offsets[offsets.len() - 1] as usize, offsets.len() - 1);
        let positive = |count, seed| -> Vec<f32> {
            let values = random(count, seed);
            values.iter().map(|value| value.abs()).collect()
        };
        let mut bases: Vec<f32> = random(rows * basis_width(columns), 1);
        let gradients = bases.len() - rows * 2 * columns[0];
        let (scalars, gradients) = bases.split_at_mut(gradients);
        scalars.iter_mut().for_each(|value| *value *= 0.4);
        gradients.iter_mut().for_each(|value| *value *= 0.2);
        let eigenvalues = positive(meshes * columns.iter().sum::<usize>(), 3);
        // Smaller on large meshes: projections are sums over vertices, and diffused scalars would come near the kinks.
        let most = offsets.windows(2).map(|pair| pair[1] - pair[0]).max();
        let unit = (400.0 / most.unwrap_or(0) as f32).min(1.0);
        let mass: Vec<f32> = (positive(rows, 2).iter()).map(|mass| unit * mass).collect();
        let sized = |size: f32, seed| -> Vec<f32> {
            let values = random(rows * channels, seed);
            values.iter().map(|value| size * value).collect()
        };
        let (x, dy) = (sized(x_size, 6), sized(dy_size, 7));
        let weights = parameters(&op);
        // Of the gradients, to which the backward pass adds.
        let start: f32 = x_size * dy_size;

        let [m, b, e] = [&mass, &bases, &eigenvalues].map(|values| wide(values));
        let spectra = Spectra { mass: &m[..], bases: &b, eigenvalues: &e, packed: &[] };
        let w = weights.each_ref().map(|values| wide(values));
        let w = w.each_ref().map(|values| &values[..]);
        let mut scratch = Scratch::new();
        let lengths = op.saved(rows, meshes);
        let mut saved = lengths.try_map(|length| Ok::<_, KernelError>(vec![0.0; length])).unwrap();
        let mut y = vec![0.0; x.len()];
        diffusion_net::forward(
            &op,
            offsets,
            spectra,
            w,
            (dropout > 0.0).then_some(STREAMS),
            &wide(&x),
            &mut y,
            saved.each_mut().map(|values| &mut values[..]),
            &mut scratch,
        )
        .unwrap();
        let near = |values: &[f64]| values.iter().filter(|&&v| v > 0.0 && v < 0.1).count();
        assert_eq!((near(&saved.first), near(&saved.second)), (0, 0));
        let mut dx = vec![0.0; x.len()];
        let mut gradients = w.map(|values| vec![f64::from(start); values.len()]).into_array();
        let each = gradients.each_mut().map(|values| &mut values[..]);
        diffusion_net::backward(
            &op,
            offsets,
            dropout > 0.0,
            spectra,
            w,
            saved.each_mut().map(|values| &mut values[..]),
            &wide(&dy),
            Some(&mut dx),
            Weights::from_array(each),
            &mut scratch,
        )
        .unwrap();
        let [times, bands, a, scalars, b1, p, hidden, b2, update, b3] = &gradients;
        let expected = [
            ("y", &y[..]),
            ("dx", &dx),
            ("log times", times),
            ("bands", bands),
            ("product", a),
            ("scalars", scalars),
            ("bias of scalars", b1),
            ("invariants", p),
            ("hidden", hidden),
            ("bias of hidden", b2),
            ("update", update),
            ("bias of update", b3),
        ];
        let label = format!("{channels} channels, {columns:?}, {rows} rows, {meshes} meshes, x {x_size}, dy {dy_size}");
        let turn = std::cell::Cell::new(false);
        checks.check(&label, expected, |device| {
            let up = |values: &[f32]| device.upload(values).unwrap();
            let (m, b, e) = (up(&mass), up(&bases), up(&eigenvalues));
            let spectra =
                Spectra { mass: m.view(), bases: b.view(), eigenvalues: e.view(), packed: DeviceSlice::empty() };
            // Every second time the block packs the bases itself.
            let packed = diffusion_net::cuda::packed_bases(device, columns, offsets, spectra);
            let packed = packed.unwrap();
            let spectra = match turn.replace(!turn.get()) {
                true => spectra,
                false => Spectra { packed: packed.view(), ..spectra },
            };
            let w = weights.each_ref().map(|values| up(values));
            let w = w.each_ref().map(DeviceBuffer::view);
            let streams = STREAMS.map(|stream| {
                let seed = stream.seed ^ SALT;
                DeviceStream::new(device, Stream { seed, ..stream }).unwrap()
            });
            let streams = streams.each_ref().map(|stream| (stream, SALT));
            let lengths = diffusion_net::cuda::saved(device, &op, rows, meshes);
            let poisoned = |length| poisoned(device, length);
            let mut saved = lengths.try_map(|length| Ok::<_, KernelError>(poisoned(length))).unwrap();
            let (x, dy) = (up(&x), up(&dy));
            let (mut y, mut dx) = (poisoned(x.len()), poisoned(x.len()));
            diffusion_net::cuda::forward(
                device,
                &op,
                offsets,
                spectra,
                w,
                (dropout > 0.0).then_some(streams),
                x.view(),
                y.view_mut(),
                saved.each_mut().map(DeviceBuffer::view_mut),
            )
            .unwrap();
            let mut gradients = w.map(|values| up(&vec![start; values.len()])).into_array();
            let each = gradients.each_mut().map(DeviceBuffer::view_mut);
            diffusion_net::cuda::backward(
                device,
                &op,
                offsets,
                dropout > 0.0,
                spectra,
                w,
                saved.each_mut().map(DeviceBuffer::view_mut),
                dy.view(),
                Some(dx.view_mut()),
                Weights::from_array(each),
            )
            .unwrap();
            let [times, bands, a, scalars, b1, p, hidden, b2, update, b3] = gradients;
            [y, dx, times, bands, a, scalars, b1, p, hidden, b2, update, b3]
        });
    }
    checks.finish("diffusion_net");
}
