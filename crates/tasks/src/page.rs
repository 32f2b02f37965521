//! Interactive pages of predictions, beside their targets where these are known.

use crate::data::{Classes, vectors};
use crate::evaluation::Assessment;
use crate::predict::{Prediction, template_colours};
use crate::train::TrainedModel;
use crate::{Element as Per, Task};
use gemcnn_mesh::{DVec3, Frame, Mesh, MeshReport};
use gemcnn_nn::{FeatureType, IGNORE};
use gemcnn_view::page::{ClassTable, Confusion, Element, Field, Page, PageMesh, Role, UNKNOWN, Values};

/// Meshes with more vertices have no frames in a page.
pub const MAX_FRAMES: usize = 200_000;
/// Largest number of features in a page.
const MAX_FEATURES: usize = 64;
/// Largest number of classes of a confusion matrix.
const MAX_CONFUSED: usize = 100;

/// How assessments become meshes of a page.
#[derive(Debug)]
pub struct PredictionPage<'a> {
    model: &'a TrainedModel,
    template: Option<Template<'a>>,
    /// Counts of predicted classes for each true class.
    confusion: Option<Vec<Vec<u64>>>,
}

/// The template of a correspondence.
#[derive(Debug)]
struct Template<'a> {
    mesh: &'a Mesh,
    colours: Vec<[u8; 3]>,
    /// Root of its area, the unit of errors.
    unit: f64,
}

impl<'a> PredictionPage<'a> {
    /// For the predictions of a model.
    pub fn new(model: &'a TrainedModel) -> Self {
        let template = model.template.as_ref().map(|mesh| Template {
            mesh,
            colours: template_colours(mesh),
            unit: MeshReport::new(mesh).area.sqrt().max(f64::MIN_POSITIVE),
        });
        let is_correspondence = model.config.task == Task::Correspondence;
        let classes = model.classes.as_ref().filter(|_| !is_correspondence);
        let count = classes.map(|classes| classes.count());
        let count = count.filter(|&count| count <= MAX_CONFUSED);
        Self { model, template, confusion: count.map(|count| vec![vec![0; count]; count]) }
    }

    /// Name of the score of [`mesh`](Self::mesh).
    pub fn score_name(&self) -> &'static str {
        match self.model.config.task {
            Task::Segmentation => "accuracy",
            Task::Correspondence => "mean error / √area",
            Task::Classification => "probability of the true class",
            Task::Regression => "root mean square error",
        }
    }

    /// True if a larger score is better.
    pub fn larger_is_better(&self) -> bool {
        matches!(self.model.config.task, Task::Segmentation | Task::Classification)
    }

    /// The tables of classes that the meshes refer to.
    pub fn classes(&self) -> Vec<ClassTable> {
        let classes = self.model.classes.as_ref().filter(|_| self.template.is_none());
        let names = |classes: &Classes| (0..classes.count()).map(|c| classes.name(c)).collect();
        let table = classes.map(|classes| ClassTable::new(names(classes)));
        table.into_iter().collect()
    }

    /// Adds what the meshes refer to: names of classes, and the template of a correspondence as the first mesh.
    pub fn prepare(&self, page: &mut Page) {
        page.classes = self.classes();
        page.meshes.extend(self.template());
    }

    /// The template of a correspondence as a mesh.
    pub fn template(&self) -> Option<PageMesh> {
        let template = self.template.as_ref()?;
        let points = (0..template.mesh.vertex_count() as u32).collect::<Vec<_>>();
        Some(PageMesh {
            fields: vec![field("colours", Values::Colours(template.colours.clone())), point("point", &points)],
            ..PageMesh::new("template", template.mesh.clone())
        })
    }

    /// The confusion of the classes so far.
    pub fn confusion(&self) -> Option<Confusion> {
        let classes = self.model.classes.as_ref()?;
        let counts = self.confusion.clone()?;
        Some(Confusion { names: (0..counts.len()).map(|class| classes.name(class)).collect(), counts })
    }

    /// A mesh with its fields, and its score if a target is known.
    pub fn mesh(&mut self, assessed: Assessment) -> (PageMesh, Option<f64>) {
        let mut facts = Vec::new();
        let (mut fields, score) = match (&assessed.prediction, &assessed.target) {
            (Prediction::MeshClass { class, probabilities }, target) => {
                let name = |class: u32| match &self.model.classes {
                    Some(classes) => classes.name(class as usize),
                    None => class.to_string(),
                };
                facts.push(("Prediction".into(), name(*class)));
                let labels = target.as_ref().classes();
                let truth = labels.and_then(|labels| labels.first().copied()).filter(|&label| label != IGNORE);
                if let Some(truth) = truth {
                    facts.push(("Truth".into(), name(truth)));
                    self.count(truth, *class);
                }
                let score = truth.and_then(|truth| probabilities.get(truth as usize));
                (Vec::new(), score.map(|&p| f64::from(p)))
            }
            (Prediction::Classes { classes, .. }, target) => {
                let truth = target.as_ref().classes().map(Vec::as_slice);
                match &self.template {
                    Some(template) => template.fields(classes, truth),
                    None => self.label_fields(classes, truth, assessed.probabilities.as_deref()),
                }
            }
            (Prediction::Values { kind, values, .. }, target) => {
                let truth = target.as_ref().values().map(Vec::as_slice);
                value_fields(kind, values, truth, &assessed.frames)
            }
        };
        match self.model.per {
            Per::Vertex => {}
            Per::Face => {
                fields.iter_mut().for_each(|field| field.on = Element::Face);
            }
            // A page shows fields of vertices and faces.
            Per::Edge => fields.clear(),
            Per::Mesh => {
                for field in fields.drain(..) {
                    if let Values::Numbers(numbers) = &field.values {
                        let words: Vec<String> = numbers.iter().map(f32::to_string).collect();
                        facts.push((field.name, words.join(" ")));
                    }
                }
            }
        }
        if let Some(score) = score {
            facts.push((self.score_name().into(), format!("{score:.4}")));
        }
        fields.extend(features(&assessed));
        let is_small = assessed.mesh.vertex_count() <= MAX_FRAMES;
        let mesh = PageMesh {
            frames: is_small.then_some(assessed.frames),
            fields,
            facts,
            ..PageMesh::new(assessed.name, assessed.mesh)
        };
        (mesh, score)
    }

    fn count(&mut self, truth: u32, prediction: u32) {
        let row = self.confusion.as_mut().and_then(|c| c.get_mut(truth as usize));
        if let Some(count) = row.and_then(|row| row.get_mut(prediction as usize)) {
            *count += 1;
        }
    }

    fn label_fields(
        &mut self,
        classes: &[u32],
        truth: Option<&[u32]>,
        probabilities: Option<&[f32]>,
    ) -> (Vec<Field>, Option<f64>) {
        let labels = |classes: Vec<u32>| Values::Labels { table: 0, classes };
        let mut fields = vec![field("prediction", labels(classes.to_vec())).with_role(Role::Prediction)];
        let width = self.model.network.output().dimension().max(1);
        let rows = probabilities.map(|all| all.chunks_exact(width));
        let mut score = None;
        if let Some(truth) = truth {
            let known = |&class: &u32| if class == IGNORE { UNKNOWN } else { class };
            let values = labels(truth.iter().map(known).collect());
            fields.insert(0, field("truth", values).with_role(Role::Truth));
            let pairs = truth.iter().zip(classes).filter(|(t, _)| **t != IGNORE);
            let (mut counted, mut right) = (0u64, 0u64);
            for (&truth, &class) in pairs {
                self.count(truth, class);
                counted += 1;
                right += u64::from(truth == class);
            }
            score = (counted > 0).then(|| right as f64 / counted as f64);
            if let Some(rows) = rows.clone() {
                let missing =
                    rows.zip(truth).map(|(row, &truth)| row.get(truth as usize).map_or(f32::NAN, |p| 1.0 - p));
                let errors = Values::Numbers(missing.collect());
                fields.push(field("1 − p(truth)", errors).with_role(Role::Error));
            }
        }
        if let (Some(rows), Some(names)) = (rows, &self.model.classes) {
            for class in 0..width {
                let column = rows.clone().map(|row| row[class]).collect();
                let name = format!("p({})", names.name(class));
                let column = field(name, Values::Numbers(column));
                fields.push(column.with_role(Role::Probability(class)));
            }
        }
        (fields, score)
    }
}

impl Template<'_> {
    fn fields(&self, points: &[u32], truth: Option<&[u32]>) -> (Vec<Field>, Option<f64>) {
        let colour = |&point: &u32| self.colours.get(point as usize).copied();
        let colours = points.iter().map(|p| colour(p).unwrap_or([128; 3])).collect();
        let mut fields = vec![field("colours", Values::Colours(colours)), point("point", points)];
        let Some(truth) = truth else { return (fields, None) };
        let place = |point: u32| self.mesh.vertices().get(point as usize);
        let errors: Vec<f32> = (truth.iter().zip(points))
            .map(|(&truth, &found)| match (place(truth), place(found)) {
                (Some(a), Some(b)) => (a.distance(*b) / self.unit) as f32,
                _ => f32::NAN,
            })
            .collect();
        let known: Vec<f64> = (errors.iter().filter(|e| e.is_finite())).map(|&error| f64::from(error)).collect();
        let score = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
        fields.push(field("error", Values::Numbers(errors)).with_role(Role::Error));
        (fields, score)
    }
}

/// Truth, prediction and error of each scalar and vector, and the root mean square error.
fn value_fields(
    kind: &FeatureType,
    values: &[f32],
    truth: Option<&[f32]>,
    frames: &[Frame],
) -> (Vec<Field>, Option<f64>) {
    let width = kind.dimension().max(1);
    let mut fields = Vec::new();
    let parts = [(Role::Truth, "truth", truth), (Role::Prediction, "prediction", Some(values))];
    for (role, name, all) in parts {
        let Some(all) = all else { continue };
        let rows = all.chunks_exact(width);
        for scalar in 0..kind.multiplicity(0) {
            let column = rows.clone().map(|row| row[scalar]).collect();
            let name = numbered(name, kind.multiplicity(0), scalar);
            fields.push(field(name, Values::Numbers(column)).with_role(role));
        }
        let count = kind.multiplicity(1);
        let coefficients: Vec<f32> = rows.flat_map(|row| row[kind.range(1)].iter().copied()).collect();
        let in_space = vectors::in_space(frames, &coefficients);
        for vector in 0..count {
            let column: Vec<DVec3> = in_space.iter().skip(vector).step_by(count).copied().collect();
            let name = numbered(&format!("{name} vectors"), count, vector);
            fields.push(field(name, Values::Vectors(column)).with_role(role));
        }
    }
    let Some(truth) = truth else { return (fields, None) };
    let rows = truth.chunks_exact(width).zip(values.chunks_exact(width));
    let squares: Vec<f64> = rows.map(|(a, b)| a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum()).collect();
    let errors = squares.iter().map(|square| square.sqrt() as f32).collect();
    fields.push(field("error", Values::Numbers(errors)).with_role(Role::Error));
    let known: Vec<f64> = squares.into_iter().filter(|s| s.is_finite()).collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    (fields, (!known.is_empty()).then(|| mean.sqrt()))
}

/// The scalar features of the vertices.
fn features(assessed: &Assessment) -> impl Iterator<Item = Field> {
    let width = assessed.kind.dimension().max(1);
    let scalars = assessed.kind.multiplicity(0).min(MAX_FEATURES);
    (0..scalars).map(move |channel| {
        let rows = assessed.features.chunks_exact(width);
        let column = rows.map(|row| row[channel]).collect();
        field(format!("feature {channel}"), Values::Numbers(column)).with_role(Role::Feature)
    })
}

fn numbered(name: &str, count: usize, index: usize) -> String {
    match count {
        1 => name.into(),
        _ => format!("{name} {index}"),
    }
}

fn field(name: impl Into<String>, values: Values) -> Field {
    Field::new(name, Element::Vertex, values)
}

fn point(name: &str, points: &[u32]) -> Field {
    let numbers = points.iter().map(|&point| point as f32).collect();
    field(name, Values::Numbers(numbers)).with_role(Role::Point)
}
