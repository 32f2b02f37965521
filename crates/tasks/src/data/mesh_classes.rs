//! Classes and values of whole meshes, from tables, folders and names.

use super::classes::Classes;
use super::description::{Column, Description};
use super::meshes::{Item, Names};
use super::pattern::Pattern;
use super::problems::Problems;
use super::table::{NumberTable, Row, read_rows};
use crate::{DataError, Result, TaskError};
use gemcnn_nn::Target;
use std::collections::BTreeSet;
use std::path::Path;

/// Name or label of the class of each mesh; `None` if it is unknown.
fn mesh_classes(
    folder: &Path,
    description: &Description,
    items: &[Item],
    problems: &mut Problems,
) -> Result<Vec<Option<String>>> {
    let target = &description.target;
    let unknown = |word: &String| {
        let label = word.parse();
        word.is_empty() || label.is_ok_and(|label| description.is_unknown(label))
    };
    let known = |word: Option<String>| word.filter(|word| !unknown(word));
    if let Some(table) = &target.table {
        let path = folder.join(table);
        let column = target.column.as_ref().and_then(|c| c.as_slice().first());
        let words = words_in_table(&path, column, items, problems)?;
        let given = |word: &String| !word.eq_ignore_ascii_case("nan");
        let words = words.into_iter().map(|word| known(word.filter(given)));
        return Ok(words.collect());
    }
    let pattern = target.pattern.as_deref().map(Pattern::new);
    let word = |item: &Item| match &pattern {
        Some(pattern) => pattern.class(item.without_extension()).or_else(|| pattern.class(item.stem())),
        None => item.folder().map(String::from),
    };
    let words: Vec<Option<String>> = items.iter().map(word).collect();
    for (number, (item, word)) in items.iter().zip(&words).enumerate() {
        if word.is_none() {
            let problem = match &pattern {
                Some(pattern) => format!("its name does not match target.pattern `{pattern}`"),
                None => "it is not in a folder with the name of its class".to_string(),
            };
            problems.of(number, DataError::target(&item.name, problem).into());
        }
    }
    Ok(words.into_iter().map(known).collect())
}

/// The cell of each mesh in a column of a table, by default the second one.
pub(super) fn words_in_table(
    path: &Path,
    column: Option<&Column>,
    items: &[Item],
    problems: &mut Problems,
) -> Result<Vec<Option<String>>> {
    let mut rows = read_rows(path)?;
    if path.extension().is_some_and(|extension| extension == "cla") {
        rows = rows_of_list(path, &rows, items)?;
    }
    let place = match column {
        None => Some(1),
        Some(column) => place_of(&rows, column),
    };
    let Some(place) = place else {
        problems.push(no_column(path, &rows));
        return Ok(vec![None; items.len()]);
    };
    let of_meshes = rows_of_meshes(path, &rows, place + 1, items, problems);
    let word = |cells: Option<&[String]>| Some(cells?.get(place)?.clone());
    Ok(of_meshes.into_iter().map(word).collect())
}

/// The rows of a classification list of the Princeton Shape Benchmark, also used by SHREC: `PSB 1`, the numbers of
/// classes and meshes, and for each class its name, that of the class above it and the number of its meshes, which
/// follow. Meshes may be called by the number alone that is in their names.
pub(super) fn rows_of_list(path: &Path, rows: &[Row], items: &[Item]) -> Result<Vec<Row>> {
    let refuse = |line: usize, problem: &str| TaskError::from(DataError::table(path, Some(line), problem));
    let names = Names::new(items);
    let prefix = items.first().map_or("", |item| item.stem().trim_end_matches(|c: char| c.is_ascii_digit()));
    let mut found = Vec::new();
    let mut rest = rows.get(2..).unwrap_or_default().iter();
    while let Some((line, cells)) = rest.next() {
        let count = match &cells[..] {
            [_, _, count] => count.parse::<usize>().ok(),
            _ => None,
        };
        let count =
            count.ok_or_else(|| refuse(*line, "expected a class, the one above it and its number of meshes"))?;
        for _ in 0..count {
            let Some((line, mesh)) = rest.next() else {
                return Err(refuse(*line, "the list ends before the last mesh of this class"));
            };
            let mesh = mesh.join(" ");
            let called = if names.has(&mesh) { mesh } else { format!("{prefix}{mesh}") };
            found.push((*line, vec![called, cells[0].clone()]));
        }
    }
    Ok(found)
}

/// Place of a column in the rows of a table.
fn place_of(rows: &[Row], column: &Column) -> Option<usize> {
    match column {
        Column::Number(number) => Some(*number),
        Column::Name(name) => {
            let (_, header) = rows.first()?;
            header.iter().position(|cell| cell == name)
        }
    }
}

fn no_column(path: &Path, rows: &[Row]) -> TaskError {
    let line = rows.first().map(|(line, _)| *line);
    DataError::table(path, line, "the header does not contain the column").into()
}

/// The cells of the row of each mesh, in a table with a name in the first column and at least `width` columns.
fn rows_of_meshes<'r>(
    path: &Path,
    rows: &'r [Row],
    width: usize,
    items: &[Item],
    problems: &mut Problems,
) -> Vec<Option<&'r [String]>> {
    let mut refuse = |line: usize, problem: String| {
        problems.push(DataError::table(path, Some(line), problem).into());
    };
    let names = Names::new(items);
    let mut found = vec![None; items.len()];
    for (row, (line, cells)) in rows.iter().enumerate() {
        let Some(name) = cells.first().filter(|_| cells.len() >= width) else {
            let problem = format!("{} cell(s), but a row needs {width}", cells.len());
            refuse(*line, problem);
            continue;
        };
        match names.find(name) {
            Ok(index) if found[index].is_some() => {
                refuse(*line, format!("`{name}` occurs twice"));
            }
            Ok(index) => found[index] = Some(&cells[..]),
            // A header.
            Err(_) if row == 0 && !names.has(name) => {}
            Err(problem) => refuse(*line, problem),
        }
    }
    for (number, (item, found)) in items.iter().zip(&found).enumerate() {
        if found.is_none() {
            let problem = format!("it has no row in {}", path.display());
            problems.of(number, DataError::target(&item.name, problem).into());
        }
    }
    found
}

/// The cells in some places; empty where there is none.
fn chosen(cells: &[String], places: &[usize]) -> Vec<String> {
    let cell = |&place: &usize| cells.get(place).cloned().unwrap_or_default();
    places.iter().map(cell).collect()
}

/// Assigns the values of a table to meshes: the chosen columns, or all after the first.
pub(super) fn assign_values(
    path: &Path,
    description: &Description,
    items: &mut [Item],
    problems: &mut Problems,
) -> Result<()> {
    let rows = read_rows(path)?;
    let columns = rows.iter().map(|(_, cells)| cells.len()).max().unwrap_or(0);
    let places: Option<Vec<usize>> = match &description.target.column {
        None => Some((1..columns).collect()),
        Some(chosen) => (chosen.as_slice().iter()).map(|column| place_of(&rows, column)).collect(),
    };
    let Some(places) = places else {
        problems.push(no_column(path, &rows));
        return Ok(());
    };
    let width = places.iter().max().map_or(2, |last| last + 1);
    let found: Vec<Option<Vec<String>>> = rows_of_meshes(path, &rows, width, items, problems)
        .into_iter()
        .map(|cells| cells.map(|cells| chosen(cells, &places)))
        .collect();
    // The first row is a header unless its values are numbers.
    let is_number = |cell: &str| cell.is_empty() || cell.parse::<f64>().is_ok();
    let header = rows
        .first()
        .map(|(_, cells)| cells)
        .filter(|cells| places.iter().any(|&place| cells.get(place).is_some_and(|cell| !is_number(cell))));
    let header = header.map_or(Vec::new(), |cells| chosen(cells, &places));
    for (place, (item, cells)) in items.iter_mut().zip(found).enumerate() {
        let Some(cells) = cells else { continue };
        let number = |cell: &String| if cell.is_empty() { Some(f64::NAN) } else { cell.parse().ok() };
        if let Some(word) = cells.iter().find(|cell| number(cell).is_none()) {
            let problem = format!("`{word}` in {} is not a number", path.display());
            problems.of(place, DataError::target(&item.name, problem).into());
            continue;
        }
        let values = cells.iter().filter_map(number).collect();
        item.target = Target::Values(NumberTable { header: header.clone(), columns: cells.len(), values });
    }
    Ok(())
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

/// Assigns classes to meshes and returns all classes, which are those of the meshes unless they are given.
pub(super) fn assign_classes(
    folder: &Path,
    description: &Description,
    items: &mut [Item],
    given: Option<Classes>,
    problems: &mut Problems,
) -> Result<Classes> {
    let words = mesh_classes(folder, description, items, problems)?;
    let classes = given.unwrap_or_else(|| classes_from_words(words.iter().flatten()));
    for (number, (item, word)) in items.iter_mut().zip(&words).enumerate() {
        let Some(word) = word else { continue };
        match classes.named_or_labelled(word) {
            Some(class) => item.target = Target::Classes(class as u32),
            None => {
                let names: Vec<String> = (0..classes.count()).map(|c| classes.name(c)).collect();
                let problem = format!("class `{word}` is not one of {}", names.join(", "));
                problems.of(number, DataError::target(&item.name, problem).into());
            }
        }
    }
    Ok(classes)
}
