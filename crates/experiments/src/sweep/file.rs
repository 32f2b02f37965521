//! The file of a sweep.

use super::labelled_bodies::{BodyChange, LabelledBodies};
use gemcnn_mesh::remesh::RemeshKind;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::{BodiesConfig, DESCRIPTION_FILE, DataConfig, Split};
use gemcnn_tasks::train::{Precision, RunConfig};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// A sweep, as its file describes it: runs, tests, and tables of their results. `docs/experiments/README.md` shows how
/// to write one.
///
/// ```
/// use gemcnn_experiments::Sweep;
/// let text = "
///     title = 'How deep?'
///     [run]
///     task = 'segmentation'
///     data = { folder = 'teeth' }
///     [rows]
///     shallow = { model = { kind = 'surface', blocks = 2 } }
///     deep = { model = { kind = 'surface', blocks = 6 }, training = { rate = 5e-4 } }
/// ";
/// let sweep = Sweep::parse("depth.toml", text)?;
/// assert_eq!(sweep.config("", "deep", 7)?.training.rate, 5e-4);
/// # Ok::<(), gemcnn_tasks::TaskError>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// What is compared, in one line.
    pub title: String,
    /// Text above the tables.
    #[serde(default)]
    pub caption: String,
    /// First column of the tables (default `row`).
    #[serde(default = "row")]
    pub row_title: String,
    /// Titles of the labels of the rows: columns of text.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Runs of each row, with consecutive seeds (default 3).
    #[serde(default = "three")]
    pub seeds: u64,
    /// First seed (default 1).
    #[serde(default = "one")]
    pub first_seed: u64,
    /// Evaluations during each run (default: as `training.evaluate_every` says).
    pub evaluations: Option<u64>,
    /// Name of a picture of the first test mesh under all tests, for the first seed (default: none). Correspondence only.
    pub picture: Option<String>,
    /// A short trial.
    pub quick: Option<Quick>,
    /// The tests, if the user gives other data than those of `run` (default: all).
    pub given_data: Option<GivenData>,
    /// Makes the data of the runs: synthetic bodies with labelled parts.
    pub labelled_bodies: Option<LabelledBodies>,
    /// Configuration of all runs, as the file of a single run.
    pub run: toml::Table,
    /// Data sets and tasks on which all rows are compared (default: one, without a name).
    #[serde(default)]
    pub worlds: Named<World>,
    /// The rows: changes of the configuration.
    pub rows: Named<Row>,
    /// The tests of each run (default: `test`, on the test part).
    #[serde(default)]
    pub tests: Named<Test>,
    /// The tables (default: accuracy, or error in regression).
    #[serde(default)]
    pub tables: Vec<TableSpec>,
    /// The figures (default: none).
    #[serde(default)]
    pub figures: Vec<FigureSpec>,
    #[serde(skip)]
    pub(super) choices: Choices,
    /// Data by world, in place of those of the configuration.
    #[serde(skip)]
    data: BTreeMap<String, DataConfig>,
    #[serde(skip)]
    source: Source,
}

fn row() -> String {
    "row".into()
}

fn one() -> u64 {
    1
}

fn three() -> u64 {
    3
}

/// What the user of a sweep chooses besides its file. By default nothing is chosen.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// The short trial.
    pub quick: bool,
    /// The rows.
    pub rows: Option<Vec<String>>,
    /// The worlds.
    pub worlds: Option<Vec<String>>,
    /// Runs of each row.
    pub seeds: Option<u64>,
    /// First seed.
    pub first_seed: Option<u64>,
    /// Number of epochs of all runs.
    pub epochs: Option<u64>,
    /// Precision of matrix products on a GPU.
    pub precision: Option<Precision>,
    /// Folder of the data. In a sweep on synthetic bodies, a folder without a description is FAUST.
    pub data: Option<PathBuf>,
    /// Folders in place of those that the file names.
    pub folders: BTreeMap<String, PathBuf>,
    /// Folder of the *discretization-robust correspondence benchmark*.
    pub benchmark: Option<PathBuf>,
    /// Number of synthetic bodies.
    pub bodies: Option<usize>,
    /// Vertices of the synthetic bodies for training.
    pub vertices: Option<usize>,
    /// Seed of the synthetic bodies.
    pub body_seed: Option<u64>,
    /// Gives synthetic bodies meshes of their own.
    pub own_meshes: bool,
}

/// The text of a sweep, for messages and relative paths.
#[derive(Debug, Clone, Default)]
struct Source {
    path: String,
    text: String,
}

/// A short trial of a sweep.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    rows: Vec<String>,
    seeds: u64,
}

/// The tests on data of the user.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenData {
    /// Split of the data on which the tests are.
    pub split: Split,
    /// Names of the tests.
    pub tests: Vec<String>,
}

/// A row: changes of the configuration of the sweep.
#[derive(Debug, Clone, Deserialize)]
pub struct Row {
    /// Its labels, in the order of [`Sweep::labels`].
    #[serde(default)]
    pub labels: Vec<String>,
    /// An earlier row, whose changes come first.
    like: Option<String>,
    /// True if it is trained only when the user names it.
    #[serde(default)]
    on_request: bool,
    #[serde(flatten)]
    changes: toml::Table,
}

/// Data and a task on which all rows are compared.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// Changes of the configuration of the sweep; rows come after them.
    #[serde(default)]
    run: toml::Table,
    /// Changes of single rows.
    #[serde(default)]
    rows: BTreeMap<String, toml::Table>,
    /// The tests (default: those of the sweep).
    tests: Option<Named<Test>>,
}

/// A test of each run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Split of the data (default: test).
    #[serde(default = "test_split")]
    pub split: Split,
    /// Other data.
    pub data: Option<DataConfig>,
    /// Seed of random rotations (default: none).
    pub rotation: Option<u64>,
    /// Remesher (default: none).
    pub remesh: Option<RemeshKind>,
    /// Remeshes by marching tetrahedra, with this many cells times the square root of the number of vertices.
    pub lattice: Option<f64>,
    /// Seed of random frames (default: those of the model).
    pub frames: Option<u64>,
    /// Also compares predictions with those on the meshes as they are (default false).
    #[serde(default)]
    pub compare: bool,
    /// Seed of the remesher (default 1).
    #[serde(default = "one")]
    pub seed: u64,
    /// Folder of the *discretization-robust correspondence benchmark*, if the user has it, with the same kind of mesh.
    pub benchmark: Option<String>,
    /// How the labelled bodies differ from those of training.
    pub bodies: Option<BodyChange>,
    /// Refuses a mesh that cannot be used, instead of leaving it out (default true).
    #[serde(default = "yes")]
    pub strict: bool,
}

fn test_split() -> Split {
    Split::Test
}

fn yes() -> bool {
    true
}

/// A table. With a `value` it has a column for that value of each test, and one for the training time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    /// Text above the table.
    pub title: Option<String>,
    /// The columns.
    #[serde(default)]
    pub columns: Vec<ColumnSpec>,
    /// Place of the value in the evaluation of each test.
    pub value: Option<String>,
    /// Factor of the values (default 100).
    #[serde(default = "hundred")]
    pub scale: f64,
    /// Added after the factor (default 0).
    #[serde(default)]
    pub offset: f64,
    /// Decimals (default 2).
    #[serde(default = "two")]
    pub decimals: usize,
    /// Adds the worst rank of each row over all columns with values; says which values are best.
    pub worst_rank: Option<Best>,
    /// Makes a table for each world, instead of one with the columns of all (default false).
    #[serde(default)]
    pub each_world: bool,
}

/// Which values are best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Best {
    /// The highest ones.
    Highest,
    /// The lowest ones.
    Lowest,
}

/// A column of a table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSpec {
    /// Title; without a value, that of a label.
    pub title: String,
    /// Place of the value in the evaluation of the test; without a test, in the result of the run.
    pub value: Option<String>,
    /// The test.
    pub test: Option<String>,
    /// The world (default: the first one).
    pub world: Option<String>,
    /// Factor of the value (default 100).
    #[serde(default = "hundred")]
    pub scale: f64,
    /// Added after the factor (default 0).
    #[serde(default)]
    pub offset: f64,
    /// Decimals (default 2).
    #[serde(default = "two")]
    pub decimals: usize,
}

fn hundred() -> f64 {
    100.0
}

fn two() -> usize {
    2
}

/// A figure: a panel for each test, a curve for each row.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureSpec {
    /// File name without extension.
    pub file: String,
    /// Title.
    pub title: String,
    /// Horizontal axis.
    pub x: AxisSpec,
    /// Vertical axis.
    pub y: AxisSpec,
}

/// An axis of a figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisSpec {
    /// Place of a list of numbers in the evaluation of a test.
    pub value: String,
    /// Label.
    pub label: String,
    /// Factor of the numbers (default 1).
    #[serde(default = "unit")]
    pub scale: f64,
    /// Ends of the axis (default: of the numbers).
    pub limits: Option<[f64; 2]>,
    /// True for a logarithmic axis.
    #[serde(default)]
    pub log: bool,
}

fn unit() -> f64 {
    1.0
}

/// Values by name, in the order of the file.
#[derive(Debug, Clone)]
pub struct Named<T>(Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Named<T> {
    /// The value with a name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// All names.
    pub fn names(&self) -> Vec<&str> {
        self.iter().map(|(name, _)| name).collect()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Named(entries))
            }
        }
        from.deserialize_map(Entries(PhantomData))
    }
}

/// Puts settings over others: tables key by key, unless they are of another kind. The name of a kind is that of a table
/// with its default settings.
fn merge(settings: &mut toml::Table, changes: &toml::Table) {
    const KIND: &str = "kind";
    for (key, change) in changes {
        let (Some(old), toml::Value::Table(changes)) = (settings.get_mut(key), change) else {
            settings.insert(key.clone(), change.clone());
            continue;
        };
        if let toml::Value::String(kind) = old {
            *old = toml::Table::from_iter([(KIND.into(), kind.as_str().into())]).into();
        }
        match old {
            toml::Value::Table(old) if !changes.contains_key(KIND) || changes.get(KIND) == old.get(KIND) => {
                merge(old, changes);
            }
            old => *old = change.clone(),
        }
    }
}

impl Sweep {
    /// Reads the file of a sweep. Folders in it are relative to it.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key or name, or an invalid value, with its line.
    pub fn read(path: &Path) -> Result<Self, TaskError> {
        let text = gemcnn_mesh::read_text(path).map_err(TaskError::file(path))?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Reads a sweep from text. The path is for messages and relative folders.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(path: &str, text: &str) -> Result<Self, TaskError> {
        let parsed = toml::from_str(text);
        let mut sweep: Self = parsed.map_err(|error| TaskError::setting(path, error.to_string().trim_end()))?;
        sweep.source = Source { path: path.into(), text: text.into() };
        if sweep.tests.0.is_empty() {
            sweep.tests = toml::from_str("test = {}").map_err(crate::output::invalid("tests"))?;
        }
        sweep.check()?;
        Ok(sweep)
    }

    fn check(&self) -> Result<(), TaskError> {
        for (number, (name, row)) in self.rows.0.iter().enumerate() {
            let refuse = |key: &str, problem: String| Err(self.error(&["rows", name, key], problem));
            if let Some(like) = &row.like
                && !self.rows.0[..number].iter().any(|(earlier, _)| earlier == like)
            {
                return refuse("like", format!("`{like}` is not a row above `{name}`"));
            }
            if row.labels.len() > self.labels.len() {
                let (count, titles) = (row.labels.len(), self.labels.len());
                return refuse("labels", format!("{count} labels, but `labels` has {titles} titles"));
            }
        }
        if self.row_names().is_empty() || self.seeds == 0 {
            return Err(self.error(&["rows"], "there are no rows or no seeds to run"));
        }
        let (rows, worlds) = (self.rows.names(), self.worlds.names());
        for (key, names) in [("rows", &rows), ("worlds", &worlds), ("tests", &self.tests.names())] {
            if let Some(name) = names.iter().find(|name| name.is_empty() || name.contains(['/', '\\'])) {
                return Err(self.error(&[key, name], format!("`{name}` cannot be part of a file name")));
            }
        }
        if let Some(name) = self.quick.iter().flat_map(|quick| &quick.rows).find(|name| !rows.contains(&name.as_str()))
        {
            return Err(self.error(&["quick"], unknown("row", name, &rows)));
        }
        for (world, settings) in self.worlds.iter() {
            if let Some(row) = settings.rows.keys().find(|row| self.rows.get(row).is_none()) {
                return Err(self.error(&["worlds", world, "rows", row], unknown("row", row, &rows)));
            }
        }
        for column in self.tables.iter().flat_map(|table| &table.columns) {
            let refuse = |problem| Err(self.error(&["tables"], format!("column `{}`: {problem}", column.title)));
            if let Some(world) = &column.world
                && !worlds.contains(&world.as_str())
            {
                return refuse(unknown("world", world, &worlds));
            }
            let tests = self.tests(column.world.as_deref().or(worlds.first().copied()).unwrap_or_default());
            if let Some(test) = &column.test
                && tests.get(test).is_none()
            {
                return refuse(unknown("test", test, &tests.names()));
            }
            if column.value.is_none() && !self.labels.contains(&column.title) {
                return refuse("without a `value`, the title must be one of `labels`".into());
            }
        }
        let mut pairs = self.world_names().into_iter().flat_map(|world| rows.iter().map(move |row| (world, row)));
        pairs.try_for_each(|(world, row)| self.config(world, row, 1).map(drop))
    }

    /// Names of the worlds to run; a single empty one if the sweep has none.
    pub fn world_names(&self) -> Vec<&str> {
        match &self.choices.worlds {
            Some(worlds) => worlds.iter().map(String::as_str).collect(),
            None if self.worlds.0.is_empty() => vec![""],
            None => self.worlds.names(),
        }
    }

    /// Names of the rows to run.
    pub fn row_names(&self) -> Vec<&str> {
        match &self.choices.rows {
            Some(rows) => rows.iter().map(String::as_str).collect(),
            None => self.rows.iter().filter(|(_, row)| !row.on_request).map(|(name, _)| name).collect(),
        }
    }

    /// All tests of a world.
    pub(super) fn tests(&self, world: &str) -> &Named<Test> {
        self.worlds.get(world).and_then(|world| world.tests.as_ref()).unwrap_or(&self.tests)
    }

    /// The tests on data that the user gave.
    pub(super) fn given_tests(&self) -> Option<&GivenData> {
        self.given_data.as_ref().filter(|_| self.choices.data.is_some())
    }

    /// A path of the file, which is relative to it, unless the user gave another one.
    pub(super) fn resolved(&self, data: DataConfig) -> DataConfig {
        let parent = Path::new(&self.source.path).parent().unwrap_or(Path::new(""));
        match data {
            DataConfig::Folder(folder) => {
                let given = folder.to_str().and_then(|name| self.choices.folders.get(name));
                DataConfig::Folder(given.cloned().unwrap_or_else(|| parent.join(folder)))
            }
            DataConfig::Faust(folder) => DataConfig::Faust(parent.join(folder)),
            bodies @ DataConfig::Bodies(_) => bodies,
        }
    }

    /// The configuration of a run. `world` is empty if the sweep has none.
    ///
    /// # Errors
    /// An unknown or invalid setting, with its line.
    pub fn config(&self, world: &str, row: &str, seed: u64) -> Result<RunConfig, TaskError> {
        let text = self.settings(world, row).to_string();
        let mut config = RunConfig::parse(&text).map_err(|error| self.locate(world, row, error))?;
        config.data = match self.data.get(world) {
            Some(data) => data.clone(),
            None => self.resolved(config.data),
        };
        let training = &mut config.training;
        training.seed = seed;
        training.epochs = self.choices.epochs.unwrap_or(training.epochs);
        training.precision = self.choices.precision.unwrap_or(training.precision);
        if let Some(evaluations) = self.evaluations {
            training.evaluate_every = training.epochs.div_ceil(evaluations.max(1));
        }
        let checked = training.clone().checked().map(drop).and_then(|()| config.augmentation.check());
        checked.map_err(|error| self.locate(world, row, error))?;
        Ok(config)
    }

    /// The configuration of a row as a table; that of all rows if there is no such row.
    pub(super) fn settings(&self, world: &str, row: &str) -> toml::Table {
        let (mut settings, world) = (self.run.clone(), self.worlds.get(world));
        if let Some(world) = world {
            merge(&mut settings, &world.run);
        }
        self.apply(&mut settings, row);
        if let Some(changes) = world.and_then(|world| world.rows.get(row)) {
            merge(&mut settings, changes);
        }
        settings
    }

    /// Puts the changes of a row over settings, after those of the row that it is like.
    fn apply(&self, settings: &mut toml::Table, row: &str) {
        if let Some(row) = self.rows.get(row) {
            if let Some(like) = &row.like {
                self.apply(settings, like);
            }
            merge(settings, &row.changes);
        }
    }
}

/// Choices of the user.
impl Sweep {
    /// Applies the choices of the user.
    ///
    /// # Errors
    /// A name that is not of a row or world, or a choice that has no meaning for this sweep.
    pub fn choose(&mut self, choices: Choices) -> Result<(), TaskError> {
        for (option, what, chosen, names) in [
            ("--rows", "row", &choices.rows, self.rows.names()),
            ("--worlds", "world", &choices.worlds, self.worlds.names()),
        ] {
            if let Some(name) = chosen.iter().flatten().find(|name| !names.contains(&name.as_str())) {
                return Err(TaskError::setting(option, unknown(what, name, &names)));
            }
        }
        let folders = self.folders();
        if let Some(name) = choices.folders.keys().find(|name| !folders.contains(name.as_str())) {
            let folders = folders.into_iter().collect::<Vec<_>>();
            return Err(TaskError::setting("--data", unknown("folder of this sweep", name, &folders)));
        }
        let reads_benchmark = self.tests.iter().any(|(_, test)| test.benchmark.is_some());
        for (option, is_refused, problem) in [
            ("--quick", choices.quick && self.quick.is_none(), "this sweep has no short trial"),
            (
                "--remeshed",
                choices.benchmark.is_some() && !reads_benchmark,
                "no test of this sweep reads the benchmark",
            ),
            (
                "--data",
                choices.data.is_some() && !self.worlds.0.is_empty(),
                "the worlds of this sweep have their own data; give NAME=DIR for a folder NAME of its file",
            ),
        ] {
            if is_refused {
                return Err(TaskError::setting(option, problem));
            }
        }
        if let Some(quick) = self.quick.as_ref().filter(|_| choices.quick) {
            self.seeds = quick.seeds;
            self.choices.rows = Some(quick.rows.clone());
        }
        self.seeds = choices.seeds.unwrap_or(self.seeds);
        self.first_seed = choices.first_seed.unwrap_or(self.first_seed);
        let rows = choices.rows.clone().or(self.choices.rows.take());
        self.choices = Choices { rows, ..choices };
        self.choose_data()
    }

    /// Folders of data that the file names.
    fn folders(&self) -> BTreeSet<&str> {
        let runs = [&self.run].into_iter().chain(self.worlds.iter().map(|(_, world)| &world.run));
        runs.filter_map(|run| run.get("data")?.get("folder")?.as_str()).collect()
    }

    /// Takes the data and the synthetic bodies that the user chose.
    fn choose_data(&mut self) -> Result<(), TaskError> {
        let Choices { bodies: count, vertices, body_seed, own_meshes, .. } = self.choices;
        let bodies = self.run.get("data").and_then(|data| data.get("bodies")?.clone().try_into::<BodiesConfig>().ok());
        if let Some(folder) = self.choices.data.clone() {
            self.labelled_bodies = None;
            let is_faust = bodies.is_some() && !folder.join(DESCRIPTION_FILE).exists();
            let data = if is_faust { DataConfig::Faust(folder) } else { DataConfig::Folder(folder) };
            self.set_data("", data);
        } else if (count, vertices, body_seed, own_meshes) != (None, None, None, false) {
            match (&mut self.labelled_bodies, bodies) {
                (Some(bodies), _) if body_seed.is_none() => {
                    bodies.count = count.unwrap_or(bodies.count);
                    bodies.vertices = vertices.unwrap_or(bodies.vertices);
                    bodies.own_meshes |= own_meshes;
                }
                (None, Some(bodies)) if !own_meshes => {
                    let (count, vertices) = (count.unwrap_or(bodies.count), vertices.unwrap_or(bodies.vertices));
                    let seed = body_seed.unwrap_or(bodies.seed);
                    self.set_data("", DataConfig::Bodies(BodiesConfig { count, vertices, seed, ..bodies }));
                }
                _ => {
                    let problem = "has no meaning in this sweep";
                    return Err(TaskError::setting("--bodies, --vertices, --body-seed or --unregistered", problem));
                }
            }
        }
        Ok(())
    }

    /// Sets the data of a world; of a sweep without worlds, for an empty name.
    pub(crate) fn set_data(&mut self, world: &str, data: DataConfig) {
        self.data.insert(world.into(), data);
    }
}

/// Messages with lines.
impl Sweep {
    /// An error at a key, by its path in the file.
    fn error(&self, path: &[&str], problem: impl Into<String>) -> TaskError {
        self.error_at(self.line(path, None), problem)
    }

    fn error_at(&self, line: Option<usize>, problem: impl Into<String>) -> TaskError {
        let line = line.map_or(String::new(), |line| format!(":{line}"));
        TaskError::setting(format!("{}{line}", self.source.path), problem)
    }

    /// Finds the key of an error of a run's configuration among those of the row, of the rows that it is like, of the
    /// world and of the sweep.
    fn locate(&self, world: &str, row: &str, error: TaskError) -> TaskError {
        let TaskError::Setting { what, problem } = error else { return error };
        // Excerpts are of the whole configuration, which is no file.
        let is_excerpt = |line: &&str| {
            let number = line.split('|').next().unwrap_or_default();
            line.starts_with("TOML parse error")
                || (line.contains('|') && number.trim().chars().all(|c| c.is_ascii_digit()))
        };
        let excerpt =
            problem.lines().filter(is_excerpt).filter_map(|line| Some(line.split_once('|')?.1.split_once('=')?.0));
        // After the wrong key, messages list the keys that there are.
        let wrong = problem.split(", expected").next().unwrap_or_default();
        let quoted = wrong.split('`').skip(1).step_by(2);
        let mut keys: Vec<&str> = excerpt.map(str::trim).chain(quoted).collect();
        keys.extend(what.rsplit('.').next());
        let mut places = vec![vec!["worlds", world, "rows", row]];
        let mut next = Some(row);
        while let Some(name) = next {
            places.push(vec!["rows", name]);
            next = self.rows.get(name).and_then(|row| row.like.as_deref());
        }
        places.extend([vec!["worlds", world, "run"], vec!["run"]]);
        let found = keys.iter().find_map(|key| places.iter().find_map(|place| self.line(place, Some(key))));
        let lines: Vec<&str> = problem.lines().filter(|line| !is_excerpt(line) && !line.is_empty()).collect();
        let what = if what == "configuration" { String::new() } else { format!("{what}: ") };
        let world = if world.is_empty() { String::new() } else { format!("world `{world}`, ") };
        let line = found.or_else(|| self.line(&["rows", row], None));
        self.error_at(line, format!("{world}row `{row}`: {what}{}", lines.join("; ")))
    }

    /// The line of a key at a path, or of a key of any depth below it.
    fn line(&self, path: &[&str], within: Option<&str>) -> Option<usize> {
        let text = &self.source.text;
        let table = DeTable::parse(text).ok()?;
        let (mut table, mut start) = (table.get_ref(), None);
        for (depth, name) in path.iter().enumerate() {
            let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
            start = Some(key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) => table = inner,
                _ if depth + 1 == path.len() && within.is_none() => {}
                _ => return None,
            }
        }
        let start = match within {
            Some(key) => key_below(table, key),
            None => start,
        };
        start.map(|start| 1 + text[..start].matches('\n').count())
    }
}

/// Where a key stands in a table or a table below it.
fn key_below(table: &DeTable<'_>, name: &str) -> Option<usize> {
    table.iter().find_map(|(key, value)| match value.get_ref() {
        _ if key.get_ref() == name => Some(key.span().start),
        DeValue::Table(inner) => key_below(inner, name),
        _ => None,
    })
}

fn unknown(what: &str, name: &str, names: &[&str]) -> String {
    format!("`{name}` is not a {what}; there are {}", names.join(", "))
}
