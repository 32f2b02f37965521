//! Spirals and two layers against the numbers of an independent script.

use super::*;

#[derive(serde::Deserialize)]
struct Golden {
    positions: Vec<[f64; 3]>,
    faces: Vec<[u32; 3]>,
    x: Vec<Vec<f64>>,
    spiral: GoldenSpiral,
    feast: GoldenFeast,
}

#[derive(serde::Deserialize)]
struct GoldenSpiral {
    length: usize,
    dilation: usize,
    vertices: Vec<Vec<u32>>,
    weight: Vec<Vec<f64>>,
    bias: Vec<f64>,
    output: Vec<Vec<f64>>,
}

#[derive(serde::Deserialize)]
struct GoldenFeast {
    assign: Vec<Vec<f64>>,
    assign_bias: Vec<f64>,
    weight: Vec<Vec<Vec<f64>>>,
    bias: Vec<f64>,
    output: Vec<Vec<f64>>,
}

/// Numbers of `fixtures/golden/baselines.py`.
#[test]
fn spirals_and_feast_equal_an_independent_script() {
    let text = include_str!("../../../../../fixtures/golden/baselines.json");
    let golden: Golden = serde_json::from_str(text).unwrap();
    let points = golden.positions.iter().map(|&p| DVec3::from_array(p));
    let mesh = Mesh::new(points.collect(), golden.faces.iter().collect()).unwrap();
    let graph = graph(&mesh);
    let x = golden.x.concat();
    let spiral = &golden.spiral;
    assert_eq!((spiral.length, spiral.dilation), (LENGTH, 2));
    let spirals = gemcnn_mesh::patches::spirals(&mesh, LENGTH, 2);
    assert_eq!(spirals, spiral.vertices);
    // Weights are `[outputs, matrices, inputs]` here and `[matrices, outputs, inputs]` there.
    let feast = &golden.feast;
    let feast_weight = (0..OUTPUTS).flat_map(|o| feast.weight.iter().flat_map(move |m| &m[o]));
    for (layer, values, expected) in [
        (Layer::Spiral, vec![spiral.weight.concat(), spiral.bias.clone()], spiral.output.concat()),
        (
            Layer::Feast,
            vec![
                feast.assign.concat(),
                // A normalisation that adds the bias: scale, shift, mean, and variance without its epsilon.
                vec![1.0; MATRICES],
                feast.assign_bias.clone(),
                vec![0.0; MATRICES],
                vec![1.0 - 1e-5; MATRICES],
                feast_weight.copied().collect(),
                feast.bias.clone(),
            ],
            feast.output.concat(),
        ),
    ] {
        let (network, mut parameters) = layer.network::<f64>();
        for (parameter, values) in parameters.iter_mut().zip(values) {
            parameter.value_mut().copy_from_slice(&values);
        }
        let batch = layer.batch::<f64>(&[(&mesh, &graph)]);
        let mut workspace = Workspace::default();
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let x = tape.input(network.input().clone(), &x).unwrap();
        let y = network.forward(&mut tape, (&batch).into(), x).unwrap();
        let y = y.values().unwrap();
        assert_eq!(y.len(), expected.len());
        for (at, (found, expected)) in y.iter().zip(&expected).enumerate() {
            let off = (found - expected).abs();
            assert!(off < 1e-12, "{layer:?}, {at}: {found} is not {expected}");
        }
    }
}
