//! Assignment of meshes to parts.

use super::description::{DESCRIPTION_FILE, OneOrMany, Parts, SplitDescription};
use super::meshes::{Item, Names};
use super::part::Part;
use super::pattern::Pattern;
use super::table::read_rows;
use crate::{DataError, TaskError};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::path::Path;

/// Meshes of each part, as indices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Split {
    parts: [Vec<usize>; 3],
    /// Seed of random parts.
    seed: u64,
}

/// Default fractions.
const DEFAULT_FRACTIONS: Parts<f64> = Parts { train: Some(0.8), validation: None, test: Some(0.2) };

impl Split {
    /// The first `train` meshes for training, the others for testing.
    pub fn first(train: usize, count: usize) -> Self {
        Self { parts: [(0..train).collect(), Vec::new(), (train..count).collect()], seed: 0 }
    }

    /// Moves a share of the training part to the validation part, at random, and returns the number of these meshes.
    /// Every class has about the same share. Both parts keep at least one mesh; nothing moves if there is one mesh.
    pub fn hold_out(&mut self, share: f64, class: impl Fn(usize) -> Option<u32>) -> usize {
        let [training, validation, _] = &mut self.parts;
        let count = training.len();
        if count < 2 {
            return 0;
        }
        let moved = ((share * count as f64).round() as usize).clamp(1, count - 1);
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        // The first stream has drawn the parts.
        random.set_stream(1);
        let mut order = std::mem::take(training);
        order.shuffle(&mut random);
        // The order stays random within a class. Then every `count / moved`-th mesh is moved.
        order.sort_by_key(|&item| class(item));
        let before = |place: usize| (2 * place * moved + count) / (2 * count);
        for (place, item) in order.into_iter().enumerate() {
            match before(place + 1) > before(place) {
                true => validation.push(item),
                false => training.push(item),
            }
        }
        training.sort_unstable();
        validation.sort_unstable();
        moved
    }

    /// Moves all meshes to the test part.
    pub fn move_to_test(&mut self) {
        let [train, validation, test] = &mut self.parts;
        test.append(train);
        test.append(validation);
        test.sort_unstable();
    }

    /// Takes a mesh out of its part.
    pub fn remove(&mut self, item: usize) {
        let parts = self.parts.iter_mut();
        parts.for_each(|part| part.retain(|&other| other != item));
    }

    pub fn part(&self, part: Part) -> &[usize] {
        &self.parts[part as usize]
    }

    /// Assigns meshes to parts according to a description. Adds its problems to `problems`.
    pub fn new(folder: &Path, description: &SplitDescription, items: &[Item], problems: &mut Vec<TaskError>) -> Self {
        let seed = description.seed;
        if let Some(files) = &description.files {
            let mut choice = Choice::new(items);
            for part in Part::ALL {
                if let Some(file) = files.get(part) {
                    choice.list(&folder.join(file), part, problems);
                }
            }
            return choice.finish(files.train.is_none(), seed);
        }
        if let Some(table) = &description.table {
            let mut choice = Choice::new(items);
            choice.table(&folder.join(table), problems);
            return choice.finish(false, seed);
        }
        if let Some(patterns) = &description.patterns {
            let mut choice = Choice::new(items);
            for part in Part::ALL {
                for pattern in patterns.get(part).into_iter().flat_map(OneOrMany::as_slice) {
                    choice.pattern(folder, &Pattern::new(pattern), part, problems);
                }
            }
            return choice.finish(patterns.train.is_none(), seed);
        }
        let fractions = description.fractions.unwrap_or(DEFAULT_FRACTIONS);
        Self::at_random(items, &fractions, seed)
    }

    /// True if a list or table of a description names a mesh.
    pub fn names(folder: &Path, description: &SplitDescription, items: &[Item], mesh: usize) -> bool {
        let names = Names::new(items);
        let named = |cells: &[String]| {
            let mut ways = cells.iter().take(1).cloned().chain([cells.join(" ")]);
            ways.any(|name| names.find(&name) == Ok(mesh))
        };
        let lists = description.files.iter().flat_map(|files| {
            let parts = Part::ALL.into_iter();
            parts.filter_map(move |part| files.get(part))
        });
        lists.chain(&description.table).any(|file| {
            let rows = read_rows(&folder.join(file)).unwrap_or_default();
            rows.iter().any(|(_, cells)| named(cells))
        })
    }

    /// Fractions of the meshes in random order, rounded. A part with a fraction has at least one mesh if there are
    /// enough, training first. Every class has about the same fractions.
    fn at_random(items: &[Item], fractions: &Parts<f64>, seed: u64) -> Self {
        let count = items.len();
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let share = |part| fractions.get(part).copied().unwrap_or(0.0);
        let mut sizes = Part::ALL.map(|part| match share(part) {
            0.0 => 0,
            share => ((share * count as f64).round() as usize).max(1),
        });
        // If these are too many, parts shrink to one mesh, training first. Then they lose their last mesh:
        // validation first, training last.
        for part in [Part::Train, Part::Validation, Part::Test] {
            while sizes.iter().sum::<usize>() > count && sizes[part as usize] > 1 {
                sizes[part as usize] -= 1;
            }
        }
        for part in [Part::Validation, Part::Test, Part::Train] {
            while sizes.iter().sum::<usize>() > count && sizes[part as usize] > 0 {
                sizes[part as usize] -= 1;
            }
        }
        let all = Part::ALL.map(share).iter().sum::<f64>() > 1.0 - 1e-6;
        if all {
            sizes[0] = count - sizes[1] - sizes[2];
        }
        let mut parts = Part::ALL.map(|_| Vec::new());
        if items.iter().any(|item| item.class().is_some()) {
            // The order stays random within a class. Each mesh goes to the part that lags behind most.
            order.sort_by_key(|&item| items[item].class());
            let unused = count - sizes.iter().sum::<usize>();
            let sizes = [sizes[0], sizes[1], sizes[2], unused];
            let mut filled = [0; 4];
            for (place, item) in order.into_iter().enumerate() {
                let lag = |part: usize| {
                    let due = sizes[part] as i128 * (place as i128 + 1);
                    due - filled[part] as i128 * count as i128
                };
                let part = (0..4).rev().max_by_key(|&part| lag(part)).unwrap_or(0);
                filled[part] += 1;
                if let Some(part) = parts.get_mut(part) {
                    part.push(item);
                }
            }
        } else {
            let mut rest = order.into_iter();
            for (part, size) in parts.iter_mut().zip(sizes) {
                part.extend(rest.by_ref().take(size));
            }
        }
        parts.iter_mut().for_each(|part| part.sort_unstable());
        Self { parts, seed }
    }
}

/// Parts that are assigned so far.
struct Choice<'a> {
    items: &'a [Item],
    names: Names<'a>,
    part_of: Vec<Option<Part>>,
}

impl<'a> Choice<'a> {
    fn new(items: &'a [Item]) -> Self {
        Self { items, names: Names::new(items), part_of: vec![None; items.len()] }
    }

    fn put(&mut self, index: usize, part: Part) -> Result<(), String> {
        match self.part_of[index].replace(part) {
            Some(other) if other != part => Err(format!("`{}` is in both {other} and {part}", self.items[index].name)),
            _ => Ok(()),
        }
    }

    fn list(&mut self, path: &Path, part: Part, problems: &mut Vec<TaskError>) {
        let rows = match read_rows(path) {
            Ok(rows) => rows,
            Err(error) => return problems.push(error),
        };
        for (line, cells) in rows {
            let name = cells.join(" ");
            let put = self.names.find(&name).and_then(|index| self.put(index, part));
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
                [name, part, ..] => match Part::parse(part) {
                    Some(part) => self.names.find(name).and_then(|index| self.put(index, part)),
                    // A header.
                    None if index == 0 && !self.names.has(name) => Ok(()),
                    None => Err(format!("`{part}` is not train, validation or test")),
                },
                _ => Err("a row needs the name of a mesh and its part".into()),
            };
            if let Err(problem) = put {
                problems.push(DataError::table(path, Some(*line), problem).into());
            }
        }
    }

    fn pattern(&mut self, folder: &Path, pattern: &Pattern, part: Part, problems: &mut Vec<TaskError>) {
        let mut refuse = |problem: String| {
            problems.push(
                DataError::Description {
                    path: folder.join(DESCRIPTION_FILE),
                    problem: format!("split.patterns.{part}: {problem}"),
                }
                .into(),
            );
        };
        let mut any = false;
        for (index, item) in self.items.iter().enumerate() {
            if item.called().any(|name| pattern.matches(name)) {
                any = true;
                if let Err(problem) = self.put(index, part) {
                    refuse(problem);
                }
            }
        }
        if !any {
            refuse(format!("no mesh matches `{pattern}`"));
        }
    }

    /// The parts. The remaining meshes are for training if `rest_is_train`.
    fn finish(self, rest_is_train: bool, seed: u64) -> Split {
        let rest = rest_is_train.then_some(Part::Train);
        let parts = Part::ALL.map(|part| {
            let is_in = |&index: &usize| self.part_of[index].or(rest) == Some(part);
            (0..self.items.len()).filter(is_in).collect()
        });
        Split { parts, seed }
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
        let fractions = Parts { train: Some(0.6), validation: Some(0.1), test: Some(0.2) };
        for seed in 0..5 {
            let split = Split::at_random(&items, &fractions, seed);
            for (part, total) in Part::ALL.into_iter().zip([53, 9, 18]) {
                assert_eq!(split.part(part).len(), total);
                let share = fractions.get(part).unwrap();
                for (class, size) in sizes.into_iter().enumerate() {
                    let of_class = |&&item: &&usize| items[item].class() == Some(class as u32);
                    let found = split.part(part).iter().filter(of_class).count();
                    let due = share * f64::from(size);
                    assert!((found as f64 - due).abs() < 1.5, "{found} of {size}");
                }
            }
            let mut all = Part::ALL.map(|part| split.part(part)).concat();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 80);
            assert_eq!(split, Split::at_random(&items, &fractions, seed));
        }
    }

    #[test]
    fn every_class_has_its_share_of_the_validation_part() {
        // 60, 20 and 7 meshes of three classes, in turn as long as there are any.
        let class = |item: usize| Some(if item < 21 { item as u32 % 3 } else { u32::from(item >= 74) });
        let whole = Split::first(87, 100);
        let counts = |part: &[usize]| {
            let mut counts = [0; 3];
            part.iter().for_each(|&item| counts[class(item).unwrap() as usize] += 1);
            counts
        };
        assert_eq!(counts(whole.part(Part::Train)), [60, 20, 7]);
        let held_out = |seed: u64, share: f64| {
            let mut split = Split { seed, ..whole.clone() };
            let moved = split.hold_out(share, class);
            assert_eq!(split.part(Part::Validation).len(), moved);
            assert_eq!(split.part(Part::Test), whole.part(Part::Test));
            let mut all = [split.part(Part::Train), split.part(Part::Validation)].concat();
            all.sort_unstable();
            assert_eq!(all, whole.part(Part::Train));
            split.part(Part::Validation).to_vec()
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
        let mut single = Split::first(1, 1);
        assert_eq!((single.hold_out(0.5, |_| None), single), (0, Split::first(1, 1)));
    }
}
