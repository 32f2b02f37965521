//! Pairs that cannot be matched, or hardly.

use super::{Bodies, Body, Settings, Trial};
use crate::output::{Table, invalid};
use gemcnn_matching::{Match, Matcher, Verdict};
use gemcnn_mesh::remesh::{Crop, MeshSize, RemeshKind, Resample, Simplify, carry_labels, carry_values, remesh};
use gemcnn_mesh::shapes::{Cells, icosphere, torus};
use gemcnn_mesh::{DVec3, Mesh};
use gemcnn_nn::Workspace;
use gemcnn_tasks::TaskError;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Tries each trouble with some pairs. The first body has the first meshing, the second one the fourth.
pub(super) fn run(
    settings: &Settings,
    bodies: &Bodies,
    matcher: &Matcher,
    workspace: &mut Workspace<f32>,
) -> Result<Vec<Trial>, TaskError> {
    let mut trials = Vec::new();
    for pair in 0..settings.troubled {
        let first = 2 * (settings.pairs + pair);
        let (a, b) = (bodies.body(first, 0)?, bodies.body(first + 1, 3)?);
        let on_a = matcher.shape(workspace, &a.mesh).map_err(invalid("first body"))?;
        for (trouble, other) in with_troubles(&b, first as u64)? {
            let on_b = matcher.shape(workspace, other.mesh()).map_err(invalid(trouble.clone()))?;
            let found = Match::new(&on_a, &on_b).map_err(invalid(trouble.clone()))?;
            let errors = match &other {
                Other::Body(b) => Some(bodies.errors(&a, b, &found.forward)?),
                Other::Unknown(_) => None,
            };
            trials.push(Trial {
                trouble,
                verdict: found.evidence.verdict(),
                evidence: found.evidence,
                error: errors.map(|[_, precise, _]| precise),
                flips: errors.map(|[.., flips]| flips),
            });
        }
    }
    Ok(trials)
}

/// The second mesh of a pair.
enum Other {
    /// With known places on the template.
    Body(Body),
    /// Without.
    Unknown(Mesh),
}

impl Other {
    fn mesh(&self) -> &Mesh {
        match self {
            Self::Body(body) => &body.mesh,
            Self::Unknown(mesh) => mesh,
        }
    }
}

fn with_troubles(b: &Body, seed: u64) -> Result<Vec<(String, Other)>, TaskError> {
    let moved = |place: &mut dyn FnMut(DVec3) -> DVec3| b.mesh.map_vertices(place).map_err(invalid("second body"));
    let places: Vec<f64> = b.places.iter().flat_map(|place| place.to_array()).collect();
    let remeshed = |kind: RemeshKind| {
        let remeshed = remesh(&b.mesh, &kind, seed).map_err(invalid("trouble"))?;
        let places = carry_values(&remeshed.sources, 3, &places);
        Ok::<_, TaskError>(Other::Body(Body {
            nearest: carry_labels(&remeshed.sources, &b.nearest),
            places: places.chunks_exact(3).map(DVec3::from_slice).collect(),
            mesh: remeshed.mesh,
        }))
    };
    let with = |mesh: Mesh| Other::Body(Body { mesh, places: b.places.clone(), nearest: b.nearest.clone() });
    let mut found = vec![
        ("none".to_owned(), with(b.mesh.clone())),
        ("inside out".into(), with(b.mesh.clone().with_reversed_faces())),
        ("300 vertices".into(), remeshed(Simplify { size: MeshSize::Vertices(300) }.into())?),
    ];
    let unit = gemcnn_mesh::vertex_areas(&b.mesh).iter().sum::<f64>().sqrt();
    for noise in [0.005, 0.01, 0.02] {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // Uniform numbers with this standard deviation.
        let mut draw = || 12f64.sqrt() * noise * unit * (random.random::<f64>() - 0.5);
        let noisy = moved(&mut |point| point + DVec3::new(draw(), draw(), draw()))?;
        found.push((format!("noise of {noise}"), with(noisy)));
    }
    for holes in [3, 10] {
        found.push((format!("{holes} holes"), remeshed(Crop { share: 0.0, holes }.into())?));
    }
    for share in [0.05, 0.1, 0.3, 0.5] {
        found.push((format!("{:.0} % cut off", 100.0 * share), remeshed(Crop { share, holes: 0 }.into())?));
    }
    let mirrored = moved(&mut |point| DVec3::new(-point.x, point.y, point.z))?.with_reversed_faces();
    found.push(("mirrored".into(), Other::Unknown(mirrored)));
    let pair = |distance: f64| {
        let shifts = [DVec3::ZERO, distance * unit * DVec3::X];
        Mesh::side_by_side(shifts.map(|shift| (&b.mesh, shift))).map_err(invalid("two bodies"))
    };
    found.push(("two bodies".into(), Other::Unknown(pair(2.0)?)));
    let glued = remesh(&pair(0.15)?, &Resample { resolution: 60 }, seed).map_err(invalid("two bodies"))?;
    found.push(("two bodies, grown together".into(), Other::Unknown(glued.mesh)));
    found.push(("sphere".into(), Other::Unknown(icosphere(4).map_err(invalid("sphere"))?)));
    let ring = torus(80, 30, 1.0, 0.4, Cells::Triangles).map_err(invalid("torus"))?;
    found.push(("torus".into(), Other::Unknown(ring)));
    Ok(found)
}

/// A row for each trouble.
pub(super) fn to_markdown(trials: &[Trial]) -> String {
    if trials.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        "second mesh",
        "good",
        "doubtful",
        "meaningless",
        "mean error x 100",
        "flips (%)",
        "return (%)",
        "agree (%)",
        "reversed (%)",
        "torn (%)",
        "likeness",
    ]);
    let mut troubles: Vec<&str> = Vec::new();
    for trial in trials {
        if !troubles.contains(&&*trial.trouble) {
            troubles.push(&trial.trouble);
        }
    }
    for trouble in troubles {
        let chosen: Vec<&Trial> = trials.iter().filter(|trial| trial.trouble == trouble).collect();
        let count = |verdict: Verdict| chosen.iter().filter(|trial| trial.verdict == verdict).count().to_string();
        let mean = |value: &dyn Fn(&Trial) -> Option<f64>, digits: usize| {
            let values: Option<Vec<f64>> = chosen.iter().map(|trial| value(trial)).collect();
            values.map_or("-".into(), |values| {
                format!("{:.digits$}", values.iter().sum::<f64>() / values.len().max(1) as f64)
            })
        };
        table.row([
            trouble.to_owned(),
            count(Verdict::Good),
            count(Verdict::Doubtful),
            count(Verdict::Meaningless),
            mean(&|trial| trial.error, 2),
            mean(&|trial| trial.flips.map(|flips| 100.0 * flips), 1),
            mean(&|trial| Some(100.0 * trial.evidence.bijectivity), 1),
            mean(&|trial| Some(100.0 * trial.evidence.agreement), 1),
            mean(&|trial| Some(100.0 * trial.evidence.reversed), 1),
            mean(&|trial| Some(100.0 * trial.evidence.torn), 1),
            mean(&|trial| Some(trial.evidence.likeness), 2),
        ]);
    }
    format!("\nWhat the bundled model says where the second mesh has a trouble, and how far its map is off.\n\n{table}")
}
