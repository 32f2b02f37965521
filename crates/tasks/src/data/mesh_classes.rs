//! Classes of whole meshes, from tables, folders and names.

use super::classes::Classes;
use super::description::{Column, Description};
use super::meshes::{Item, Names};
use super::pattern::Pattern;
use super::table::read_rows;
use crate::{DataError, TaskError};
use std::collections::BTreeSet;
use std::path::Path;

/// Name or label of the class of each mesh; `None` if it is unknown.
fn mesh_classes(
    folder: &Path,
    description: &Description,
    items: &[Item],
    problems: &mut Vec<TaskError>,
) -> Result<Vec<Option<String>>, TaskError> {
    let target = &description.target;
    let unknown = |word: &String| {
        let label = word.parse();
        word.is_empty() || label.is_ok_and(|label| description.is_unknown(label))
    };
    let known = |word: Option<String>| word.filter(|word| !unknown(word));
    if let Some(table) = &target.table {
        let path = folder.join(table);
        let column = target.column.as_ref().and_then(|c| c.as_slice().first());
        let words = classes_in_table(&path, column, items, problems)?;
        let given = |word: &String| !word.eq_ignore_ascii_case("nan");
        let words = words.into_iter().map(|word| known(word.filter(given)));
        return Ok(words.collect());
    }
    let pattern = target.pattern.as_deref().map(Pattern::new);
    let word = |item: &Item| match &pattern {
        Some(pattern) => pattern
            .class(item.without_extension())
            .or_else(|| pattern.class(item.stem())),
        None => item.folder().map(String::from),
    };
    let words: Vec<Option<String>> = items.iter().map(word).collect();
    for (item, word) in items.iter().zip(&words) {
        if word.is_none() {
            let problem = match &pattern {
                Some(pattern) => format!("its name does not match target.pattern `{pattern}`"),
                None => "it is not in a folder with the name of its class".to_string(),
            };
            problems.push(DataError::target(&item.name, problem).into());
        }
    }
    Ok(words.into_iter().map(known).collect())
}

/// The class of each mesh in a table of names and classes.
fn classes_in_table(
    path: &Path,
    column: Option<&Column>,
    items: &[Item],
    problems: &mut Vec<TaskError>,
) -> Result<Vec<Option<String>>, TaskError> {
    let rows = read_rows(path)?;
    let mut refuse = |line: Option<usize>, problem: String| {
        problems.push(DataError::table(path, line, problem).into());
    };
    let place = match column {
        None => Some(1),
        Some(Column::Number(number)) => Some(*number),
        Some(Column::Name(name)) => {
            let header = rows.first().map(|(_, cells)| cells);
            header.and_then(|cells| cells.iter().position(|cell| cell == name))
        }
    };
    let Some(place) = place else {
        let line = rows.first().map(|(line, _)| *line);
        refuse(line, "the header does not contain target.column".into());
        return Ok(vec![None; items.len()]);
    };
    let names = Names::new(items);
    let mut words: Vec<Option<String>> = vec![None; items.len()];
    let mut named = vec![false; items.len()];
    for (row, (line, cells)) in rows.iter().enumerate() {
        let (Some(name), Some(word)) = (cells.first(), cells.get(place)) else {
            let problem = format!(
                "{} cell(s), but a row needs a name and a class",
                cells.len()
            );
            refuse(Some(*line), problem);
            continue;
        };
        match names.find(name) {
            Ok(index) if named[index] => refuse(Some(*line), format!("`{name}` occurs twice")),
            Ok(index) => {
                named[index] = true;
                words[index] = Some(word.clone());
            }
            // A header.
            Err(_) if row == 0 && !names.has(name) => {}
            Err(problem) => refuse(Some(*line), problem),
        }
    }
    for (item, named) in items.iter().zip(named) {
        if !named {
            refuse(None, format!("no row for `{}`", item.name));
        }
    }
    Ok(words)
}

/// Classes from words: labels in increasing order if all are integers, otherwise names in alphabetical order.
fn classes_from_words<'a>(words: impl Iterator<Item = &'a String>) -> Classes {
    let names: BTreeSet<&String> = words.collect();
    let labels: Option<BTreeSet<i64>> = names.iter().map(|name| name.parse().ok()).collect();
    match labels {
        Some(labels) => Classes::labelled(labels.into_iter().collect()),
        None => Classes::named(names.into_iter().cloned().collect(), Vec::new()),
    }
}

fn class_of_word(classes: &Classes, word: &str) -> Option<u32> {
    let by_name = classes.names().iter().position(|name| name == word);
    match by_name {
        Some(class) => Some(class as u32),
        None => classes.class_of(word.parse().ok()?),
    }
}

/// Assigns classes to meshes and returns all classes, which are those of the meshes unless they are given.
pub(super) fn assign_classes(
    folder: &Path,
    description: &Description,
    items: &mut [Item],
    given: Option<Classes>,
    problems: &mut Vec<TaskError>,
) -> Result<Classes, TaskError> {
    let words = mesh_classes(folder, description, items, problems)?;
    let classes = given.unwrap_or_else(|| classes_from_words(words.iter().flatten()));
    for (item, word) in items.iter_mut().zip(&words) {
        let Some(word) = word else { continue };
        item.class = class_of_word(&classes, word);
        if item.class.is_none() {
            let names: Vec<String> = (0..classes.count()).map(|c| classes.name(c)).collect();
            let problem = format!("class `{word}` is not one of {}", names.join(", "));
            problems.push(DataError::target(&item.name, problem).into());
        }
    }
    Ok(classes)
}
