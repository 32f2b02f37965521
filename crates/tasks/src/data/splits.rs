//! Assignment of meshes to splits.

use super::description::{DESCRIPTION_FILE, OneOrMany, PerSplit, SplitDescription};
use super::groups::Groups;
use super::meshes::{Item, Names};
use super::pattern::Pattern;
use super::split::Split;
use super::table::read_rows;
use crate::{DataError, TaskError};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::path::Path;

/// Meshes of each split, as indices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Splits {
    splits: [Vec<usize>; 3],
    /// Seed of random splits.
    seed: u64,
}

/// Default fractions.
const DEFAULT_FRACTIONS: PerSplit<f64> = PerSplit { train: Some(0.8), validation: None, test: Some(0.2) };

impl Splits {
    /// The first `train` meshes for training, the others for testing.
    pub fn first(train: usize, count: usize) -> Self {
        Self { splits: [(0..train).collect(), Vec::new(), (train..count).collect()], seed: 0 }
    }

    /// Moves whole groups of the training split to the validation split, with about a share of its meshes.
    pub fn hold_out_groups(&mut self, share: f64, groups: &Groups) {
        let [training, validation, _] = &mut self.splits;
        let count = share * training.len() as f64;
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(1);
        [*validation, *training] = groups.draw(training, count, &mut random);
    }

    /// Moves a share of the training split to the validation split, at random, and returns the number of these meshes.
    /// Every class has about the same share. Both splits keep at least one mesh; nothing moves if there is one mesh.
    pub fn hold_out(&mut self, share: f64, class: impl Fn(usize) -> Option<u32>) -> usize {
        let [training, validation, _] = &mut self.splits;
        let count = training.len();
        if count < 2 {
            return 0;
        }
        let moved = ((share * count as f64).round() as usize).clamp(1, count - 1);
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        // The first stream has drawn the splits.
        random.set_stream(1);
        let mut order = std::mem::take(training);
        order.shuffle(&mut random);
        // The order stays random within a class. Then every `count / moved`-th mesh is moved.
        order.sort_by_key(|&item| class(item));
        let before = |place: usize| (2 * place * moved + count) / (2 * count);
        for (place, item) in order.into_iter().enumerate() {
            if before(place + 1) > before(place) { validation.push(item) } else { training.push(item) }
        }
        training.sort_unstable();
        validation.sort_unstable();
        moved
    }

    /// Moves all meshes to the test split.
    pub fn move_to_test(&mut self) {
        let [train, validation, test] = &mut self.splits;
        test.append(train);
        test.append(validation);
        test.sort_unstable();
    }

    /// Takes a mesh out of its split.
    pub fn remove(&mut self, item: usize) {
        let splits = self.splits.iter_mut();
        splits.for_each(|split| split.retain(|&other| other != item));
    }

    pub fn of(&self, split: Split) -> &[usize] {
        &self.splits[split as usize]
    }

    /// One group for testing, all others for training.
    pub fn fold([test, train]: [Vec<usize>; 2], seed: u64) -> Self {
        Self { splits: [train, Vec::new(), test], seed }
    }

    /// Assigns meshes to splits according to a description. Adds its problems to `problems`.
    pub fn new(
        folder: &Path,
        description: &SplitDescription,
        (items, groups): (&[Item], Option<&Groups>),
        problems: &mut Vec<TaskError>,
    ) -> Self {
        let seed = description.seed;
        if let Some(files) = &description.files {
            let mut assignment = Assignment::new(items);
            for split in Split::ALL {
                if let Some(file) = files.get(split) {
                    assignment.list(&folder.join(file), split, problems);
                }
            }
            return assignment.finish(files.train.is_none(), seed);
        }
        if let Some(table) = &description.table {
            let mut assignment = Assignment::new(items);
            assignment.table(&folder.join(table), problems);
            return assignment.finish(false, seed);
        }
        if let Some(patterns) = &description.patterns {
            let mut assignment = Assignment::new(items);
            for split in Split::ALL {
                for pattern in patterns.get(split).into_iter().flat_map(OneOrMany::as_slice) {
                    assignment.pattern(folder, &Pattern::new(pattern), split, problems);
                }
            }
            return assignment.finish(patterns.train.is_none(), seed);
        }
        let fractions = description.fractions.unwrap_or(DEFAULT_FRACTIONS);
        match groups {
            Some(groups) => Self::of_groups(groups, items, &fractions, seed),
            None => Self::at_random(items, &fractions, seed),
        }
    }

    /// Whole groups with about these fractions of the meshes. If there are too few groups for a validation split, it has
    /// single meshes.
    fn of_groups(groups: &Groups, items: &[Item], fractions: &PerSplit<f64>, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let all: Vec<usize> = (0..items.len()).collect();
        let [train, validation, test] = Split::ALL.map(|split| fractions.get(split).copied().unwrap_or(0.0));
        let count = |share: f64| share * items.len() as f64;
        let [test, mut rest] = groups.draw(&all, count(test), &mut random);
        if train + validation + fractions.get(Split::Test).unwrap_or(&0.0) < 1.0 - 1e-6 {
            [rest, _] = groups.draw(&rest, count(train + validation), &mut random);
        }
        let mut splits = Self { splits: [rest, Vec::new(), test], seed };
        let share = validation / (train + validation);
        match groups.are_enough(splits.of(Split::Train)) {
            _ if share == 0.0 => {}
            true => splits.hold_out_groups(share, groups),
            false => drop(splits.hold_out(share, |item| items[item].class())),
        }
        splits
    }

    /// True if a list or table of a description names a mesh.
    pub fn names(folder: &Path, description: &SplitDescription, items: &[Item], mesh: usize) -> bool {
        let names = Names::new(items);
        let named = |cells: &[String]| {
            let mut ways = cells.iter().take(1).cloned().chain([cells.join(" ")]);
            ways.any(|name| names.find(&name) == Ok(mesh))
        };
        let lists = description.files.iter().flat_map(|files| {
            let splits = Split::ALL.into_iter();
            splits.filter_map(move |split| files.get(split))
        });
        lists.chain(&description.table).any(|file| {
            let rows = read_rows(&folder.join(file)).unwrap_or_default();
            rows.iter().any(|(_, cells)| named(cells))
        })
    }

    /// Fractions of the meshes in random order, rounded. A split with a fraction has at least one mesh if there are
    /// enough, training first. Every class has about the same fractions.
    fn at_random(items: &[Item], fractions: &PerSplit<f64>, seed: u64) -> Self {
        let count = items.len();
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let share = |split| fractions.get(split).copied().unwrap_or(0.0);
        let mut sizes = Split::ALL.map(|split| match share(split) {
            0.0 => 0,
            share => ((share * count as f64).round() as usize).max(1),
        });
        // If these are too many, splits shrink to one mesh, training first. Then they lose their last mesh:
        // validation first, training last.
        for split in [Split::Train, Split::Validation, Split::Test] {
            while sizes.iter().sum::<usize>() > count && sizes[split as usize] > 1 {
                sizes[split as usize] -= 1;
            }
        }
        for split in [Split::Validation, Split::Test, Split::Train] {
            while sizes.iter().sum::<usize>() > count && sizes[split as usize] > 0 {
                sizes[split as usize] -= 1;
            }
        }
        let all = Split::ALL.map(share).iter().sum::<f64>() > 1.0 - 1e-6;
        if all {
            sizes[0] = count - sizes[1] - sizes[2];
        }
        let mut splits = Split::ALL.map(|_| Vec::new());
        if items.iter().any(|item| item.class().is_some()) {
            // The order stays random within a class. Each mesh goes to the split that lags behind most.
            order.sort_by_key(|&item| items[item].class());
            let unused = count - sizes.iter().sum::<usize>();
            let sizes = [sizes[0], sizes[1], sizes[2], unused];
            let mut filled = [0; 4];
            for (place, item) in order.into_iter().enumerate() {
                let lag = |split: usize| {
                    let due = sizes[split] as i128 * (place as i128 + 1);
                    due - filled[split] as i128 * count as i128
                };
                let split = (0..4).rev().max_by_key(|&split| lag(split)).unwrap_or(0);
                filled[split] += 1;
                if let Some(split) = splits.get_mut(split) {
                    split.push(item);
                }
            }
        } else {
            let mut rest = order.into_iter();
            for (split, size) in splits.iter_mut().zip(sizes) {
                split.extend(rest.by_ref().take(size));
            }
        }
        splits.iter_mut().for_each(|split| split.sort_unstable());
        Self { splits, seed }
    }
}

/// PerSplit that are assigned so far.
struct Assignment<'a> {
    items: &'a [Item],
    names: Names<'a>,
    split_of: Vec<Option<Split>>,
}

impl<'a> Assignment<'a> {
    fn new(items: &'a [Item]) -> Self {
        Self { items, names: Names::new(items), split_of: vec![None; items.len()] }
    }

    fn put(&mut self, index: usize, split: Split) -> Result<(), String> {
        match self.split_of[index].replace(split) {
            Some(other) if other != split => {
                Err(format!("`{}` is in both {other} and {split}", self.items[index].name))
            }
            _ => Ok(()),
        }
    }

    fn list(&mut self, path: &Path, split: Split, problems: &mut Vec<TaskError>) {
        let rows = match read_rows(path) {
            Ok(rows) => rows,
            Err(error) => return problems.push(error),
        };
        for (line, cells) in rows {
            let name = cells.join(" ");
            let put = self.names.find(&name).and_then(|index| self.put(index, split));
            if let Err(problem) = put {
                problems.push(DataError::table(path, Some(line), problem).into());
            }
        }
    }

    fn table(&mut self, path: &Path, problems: &mut Vec<TaskError>) {
        let rows = match read_rows(path) {
            Ok(rows) => rows,
            Err(error) => return problems.push(error),
        };
        for (index, (line, cells)) in rows.iter().enumerate() {
            let put = match &cells[..] {
                [name, split, ..] => match Split::parse(split) {
                    Some(split) => self.names.find(name).and_then(|index| self.put(index, split)),
                    // A header.
                    None if index == 0 && !self.names.has(name) => Ok(()),
                    None => Err(format!("`{split}` is not train, validation or test")),
                },
                _ => Err("a row needs the name of a mesh and its split".into()),
            };
            if let Err(problem) = put {
                problems.push(DataError::table(path, Some(*line), problem).into());
            }
        }
    }

    fn pattern(&mut self, folder: &Path, pattern: &Pattern, split: Split, problems: &mut Vec<TaskError>) {
        let mut refuse = |problem: String| {
            problems.push(
                DataError::Description {
                    path: folder.join(DESCRIPTION_FILE),
                    problem: format!("split.patterns.{split}: {problem}"),
                }
                .into(),
            );
        };
        let mut any = false;
        for (index, item) in self.items.iter().enumerate() {
            if item.called().any(|name| pattern.matches(name)) {
                any = true;
                if let Err(problem) = self.put(index, split) {
                    refuse(problem);
                }
            }
        }
        if !any {
            refuse(format!("no mesh matches `{pattern}`"));
        }
    }

    /// The splits. The remaining meshes are for training if `rest_is_train`.
    fn finish(self, rest_is_train: bool, seed: u64) -> Splits {
        let rest = rest_is_train.then_some(Split::Train);
        let splits = Split::ALL.map(|split| {
            let is_in = |&index: &usize| self.split_of[index].or(rest) == Some(split);
            (0..self.items.len()).filter(is_in).collect()
        });
        Splits { splits, seed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_nn::Target;

    #[test]
    fn every_class_has_its_share_of_random_parts() {
        let sizes = [60, 20, 7, 1];
        let mut items = Vec::new();
        for (class, size) in sizes.into_iter().enumerate() {
            for number in 0..size {
                let mut item = Item::new(format!("{class}/{number}.off"), "");
                item.target = Target::Classes(class as u32);
                items.push(item);
            }
        }
        let fractions = PerSplit { train: Some(0.6), validation: Some(0.1), test: Some(0.2) };
        for seed in 0..5 {
            let splits = Splits::at_random(&items, &fractions, seed);
            for (split, total) in Split::ALL.into_iter().zip([53, 9, 18]) {
                assert_eq!(splits.of(split).len(), total);
                let share = fractions.get(split).unwrap();
                for (class, size) in sizes.into_iter().enumerate() {
                    let of_class = |&&item: &&usize| items[item].class() == Some(class as u32);
                    let found = splits.of(split).iter().filter(of_class).count();
                    let due = share * f64::from(size);
                    assert!((found as f64 - due).abs() < 1.5, "{found} of {size}");
                }
            }
            let mut all = Split::ALL.map(|split| splits.of(split)).concat();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 80);
            assert_eq!(splits, Splits::at_random(&items, &fractions, seed));
        }
    }

    #[test]
    fn every_class_has_its_share_of_the_validation_part() {
        // 60, 20 and 7 meshes of three classes, in turn as long as there are any.
        let class = |item: usize| Some(if item < 21 { item as u32 % 3 } else { u32::from(item >= 74) });
        let whole = Splits::first(87, 100);
        let counts = |split: &[usize]| {
            let mut counts = [0; 3];
            split.iter().for_each(|&item| counts[class(item).unwrap() as usize] += 1);
            counts
        };
        assert_eq!(counts(whole.of(Split::Train)), [60, 20, 7]);
        let held_out = |seed: u64, share: f64| {
            let mut splits = Splits { seed, ..whole.clone() };
            let moved = splits.hold_out(share, class);
            assert_eq!(splits.of(Split::Validation).len(), moved);
            assert_eq!(splits.of(Split::Test), whole.of(Split::Test));
            let mut all = [splits.of(Split::Train), splits.of(Split::Validation)].concat();
            all.sort_unstable();
            assert_eq!(all, whole.of(Split::Train));
            splits.of(Split::Validation).to_vec()
        };
        for seed in 0..5 {
            let found = counts(&held_out(seed, 0.2));
            for (found, size) in found.into_iter().zip([60.0, 20.0, 7.0]) {
                assert!((f64::from(found) - 0.2 * size).abs() < 1.0, "{found} of {size}");
            }
        }
        assert_eq!(held_out(1, 0.2), held_out(1, 0.2));
        assert_ne!(held_out(1, 0.2), held_out(2, 0.2));
        assert_eq!((held_out(1, 1e-9).len(), held_out(1, 0.999).len()), (1, 86));
        let mut single = Splits::first(1, 1);
        assert_eq!((single.hold_out(0.5, |_| None), single), (0, Splits::first(1, 1)));
    }
}
