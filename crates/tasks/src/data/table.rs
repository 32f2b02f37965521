//! Text tables: `.csv` with commas, semicolons or tabs, `.txt` and `.seg` with spaces, and lists in `.json` files.
//!
//! An empty line is a row of unknown values, which readers of CSV skip, and a quote that is not closed on its
//! line is an error, not a cell that extends over the rest of the file. So the reader is our own.

use super::description::Column;
use crate::{DataError, Result, TaskError};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// A line number and the cells of the line.
pub(crate) type Row = (usize, Vec<String>);

/// Rows of cells with their line numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextTable {
    pub rows: Vec<Row>,
}

/// The rows of a list or table of names, without empty ones.
pub(crate) fn read_rows(path: &Path) -> Result<Vec<Row>> {
    let bytes = gemcnn_mesh::read_file(path).map_err(TaskError::file(path))?;
    let mut rows = TextTable::parse(path, &bytes)?.rows;
    rows.retain(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
    Ok(rows)
}

/// Rows of numbers of equal length. Unknown values are NaN.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NumberTable {
    /// Names of the columns, or empty.
    pub header: Vec<String>,
    pub columns: usize,
    /// Row after row.
    pub values: Vec<f64>,
}

impl NumberTable {
    pub fn rows(&self) -> usize {
        match self.columns {
            0 => 0,
            columns => self.values.len() / columns,
        }
    }
}

/// Separator of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separator {
    Character(char),
    Spaces,
}

/// Text in a column of labels.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// The cell of the first row, if it is neither empty nor a number.
    pub first: Option<String>,
    /// Other cells that are neither empty nor numbers, and how many there are.
    pub words: BTreeSet<String>,
    pub count: usize,
    /// The integers, and the number of cells that are numbers.
    pub integers: BTreeSet<i64>,
    pub numbers: usize,
}

impl TextTable {
    /// Extensions of tables, without that of JSON.
    const EXTENSIONS: [&str; 4] = ["csv", "txt", "seg", "eseg"];

    /// True if a path has the extension of a table.
    pub fn has_name(path: &Path) -> bool {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        extension == "json" || Self::EXTENSIONS.iter().any(|known| extension == *known)
    }

    /// The rows of a JSON file: its list, or its list `labels`.
    fn parse_json(path: &Path, bytes: &[u8]) -> Result<Self, DataError> {
        let refuse = |problem: String| DataError::table(path, None, problem);
        let mut value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| refuse(error.to_string()))?;
        if let Some(labels) = value.get_mut("labels") {
            value = labels.take();
        }
        let serde_json::Value::Array(list) = value else {
            return Err(refuse("the file has neither a list nor an object with a list `labels`".into()));
        };
        let row = |(at, cell): (usize, serde_json::Value)| match cell {
            serde_json::Value::Null => Ok((at + 1, vec![String::new()])),
            serde_json::Value::Number(number) => Ok((at + 1, vec![number.to_string()])),
            serde_json::Value::String(word) => Ok((at + 1, vec![word])),
            _ => Err(refuse(format!("element {at} of the list is neither a number nor a word"))),
        };
        Ok(Self { rows: list.into_iter().enumerate().map(row).collect::<Result<_, _>>()? })
    }

    /// The words of a column: the only one, or that which is selected. `None` if there is no such column.
    pub fn words(&self, columns: &[Column]) -> Option<Words> {
        let (_, first) = self.rows.first()?;
        let place = match columns {
            [] => Some(0).filter(|_| self.rows.iter().all(|(_, cells)| cells.len() == 1)),
            [Column::Number(number)] => Some(*number),
            [Column::Name(name)] => first.iter().position(|cell| cell == name),
            _ => None,
        }?;
        let mut found = Words::default();
        for (row, (_, cells)) in self.rows.iter().enumerate() {
            let Some(cell) = cells.get(place).filter(|cell| !cell.is_empty()) else { continue };
            match (cell.parse::<f64>(), cell.parse::<i64>()) {
                (Err(_), _) if row == 0 => found.first = Some(cell.clone()),
                (Err(_), _) => {
                    found.count += 1;
                    if !found.words.contains(cell) {
                        found.words.insert(cell.clone());
                    }
                }
                (Ok(_), integer) => {
                    found.numbers += 1;
                    found.integers.extend(integer);
                }
            }
        }
        Some(found)
    }

    /// Parses a table, with the separator of a `.csv` file if the path has this extension, otherwise with spaces.
    /// Lines that begin with `#` and empty lines at the end are skipped. Other empty lines are rows of one empty
    /// cell.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, DataError> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
            return Self::parse_json(path, bytes);
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
            DataError::table(path, Some(line), "the text is not UTF-8")
        })?;
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        let lines = lines(text);
        let separator = match is_csv {
            true => separator_of(lines.iter().map(|(_, line)| *line).find(|l| !l.is_empty())),
            false => Separator::Spaces,
        };
        let mut rows = Vec::with_capacity(lines.len());
        let mut end = 0;
        for (number, line) in lines {
            let cells = split(line, separator).map_err(|problem| DataError::table(path, Some(number), problem))?;
            let blank = is_one_empty(&cells) && !line.contains('"');
            rows.push((number, cells));
            if !blank {
                end = rows.len();
            }
        }
        rows.truncate(end);
        Ok(Self { rows })
    }

    /// The numbers of the table. An empty cell or `nan` is an unknown value. A first row with a word that is not in
    /// `names` is a header. Other words must be in `names`, which maps them to numbers.
    pub fn numbers(self, path: &Path, names: &HashMap<&str, f64>) -> Result<NumberTable, DataError> {
        let number = |cell: &str| match cell {
            "" => Some(f64::NAN),
            _ => cell.parse().ok().or_else(|| names.get(cell).copied()),
        };
        let filled = self.rows.iter().find(|(_, cells)| !is_one_empty(cells));
        let columns = filled.map_or(1, |(_, cells)| cells.len());
        let mut rows = self.rows.into_iter().peekable();
        let is_header = |(_, cells): &Row| cells.iter().any(|cell| number(cell).is_none());
        let header = match rows.next_if(is_header) {
            Some((_, cells)) => cells,
            None => Vec::new(),
        };
        let mut table = NumberTable { header, columns, values: Vec::new() };
        for (line, cells) in rows {
            // An empty line has one cell; it is a row of unknown values.
            let blank = cells.iter().all(String::is_empty);
            if cells.len() != table.columns && !blank {
                let remedy = match path.extension().is_some_and(|extension| extension == "csv") {
                    true => "correct this row",
                    false => "correct this row, or write words with spaces into a .csv file",
                };
                let (given, columns) = (cells.len(), table.columns);
                let problem = format!("{given} cell(s), but previous rows have {columns}; {remedy}");
                return Err(DataError::table(path, Some(line), problem));
            }
            if blank {
                table.values.extend(vec![f64::NAN; table.columns]);
                continue;
            }
            for (place, cell) in cells.iter().enumerate() {
                let value = number(cell).ok_or_else(|| {
                    let problem = match names.is_empty() {
                        true if table.columns > 1 => {
                            let column = match table.header.get(place) {
                                Some(name) => format!("{name:?}"),
                                None => place.to_string(),
                            };
                            format!(
                                "`{cell}` is not a number; if that column has the labels, select it in dataset.toml: \
                                 below [target], give `files` and `column = {column}`"
                            )
                        }
                        true => format!("`{cell}` is not a number"),
                        false => format!("`{cell}` is neither a number nor one of the classes"),
                    };
                    DataError::table(path, Some(line), problem)
                })?;
                table.values.push(value);
            }
        }
        Ok(table)
    }
}

/// True for the cells of an empty line.
fn is_one_empty(cells: &[String]) -> bool {
    matches!(cells, [only] if only.is_empty())
}

/// The lines without comments, with their numbers. Lines end with `\n`, `\r\n` or `\r`.
fn lines(text: &str) -> Vec<(usize, &str)> {
    text.split('\n')
        .flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_matches(' ')))
        .filter(|(_, line)| !line.starts_with('#'))
        .collect()
}

/// The first of tab, semicolon and comma that a line contains; a comma by default.
fn separator_of(line: Option<&str>) -> Separator {
    let line = line.unwrap_or_default();
    let found = ['\t', ';', ','].into_iter().find(|&c| line.contains(c));
    Separator::Character(found.unwrap_or(','))
}

/// The cells of a line. A cell in double quotes may contain separators, and two quotes for one.
fn split(line: &str, separator: Separator) -> Result<Vec<String>, String> {
    let between = match separator {
        Separator::Spaces if line.trim().is_empty() => return Ok(vec![String::new()]),
        Separator::Spaces => return Ok(line.split_whitespace().map(String::from).collect()),
        Separator::Character(character) => character,
    };
    let mut cells = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() && c != between);
        let (cell, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_cell(quoted)?,
            None => {
                let end = rest.find(between).unwrap_or(rest.len());
                (rest[..end].trim().to_string(), &rest[end..])
            }
        };
        cells.push(cell);
        let after = after.trim_start_matches(|c: char| c.is_whitespace() && c != between);
        match after.strip_prefix(between) {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(cells),
            None => return Err(format!("unexpected `{after}` after a quoted cell")),
        }
    }
}

/// A quoted cell after its opening quote, and the text after the closing one.
fn quoted_cell(text: &str) -> Result<(String, &str), String> {
    let mut cell = String::new();
    let mut rest = text;
    loop {
        let Some(end) = rest.find('"') else { return Err("a quote is not closed on its line".into()) };
        cell.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                cell.push('"');
                rest = more;
            }
            None => return Ok((cell, rest)),
        }
    }
}

/// Text as a cell of a CSV file, quoted if necessary.
///
/// ```
/// use gemcnn_tasks::data::csv_cell;
/// assert_eq!(csv_cell("molar"), "molar");
/// assert_eq!(csv_cell("left, \"upper\""), "\"left, \"\"upper\"\"\"");
/// ```
pub fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(name: &str, text: &str) -> Result<NumberTable, DataError> {
        let names = HashMap::from([("gum", 0.0), ("molar", 3.0)]);
        let path = Path::new(name);
        TextTable::parse(path, text.as_bytes())?.numbers(path, &names)
    }

    #[test]
    fn separators_headers_and_line_ends_are_found() {
        for (name, text) in [
            ("a.csv", "x,y\n1,2\n3,4\n"),
            ("a.csv", "x;y\r\n1;2\r\n3;4"),
            ("a.csv", "# made by hand\nx\ty\r1\t2\r3\t4\r\r"),
            ("a.CSV", "\"x\", \"y\"\n \"1\" ,2\n3,4\n\n\n"),
            ("a.txt", "\u{feff}x y\n1   2\n 3\t4 \n"),
        ] {
            let table = numbers(name, text).unwrap();
            assert_eq!((table.columns, table.rows()), (2, 2), "{text}");
            assert_eq!(table.values, [1.0, 2.0, 3.0, 4.0], "{text}");
            assert_eq!(table.header, ["x", "y"], "{text}");
        }
    }

    #[test]
    fn empty_cells_and_lines_are_unknown_and_names_are_numbers() {
        let table = numbers("a.seg", "1\n\nmolar\n-1\n\n").unwrap();
        assert_eq!(table.rows(), 4);
        assert!(table.values[1].is_nan());
        assert_eq!(table.values[2..], [3.0, -1.0]);
        let table = numbers("a.csv", "gum,,nan\n\n1,2,3").unwrap();
        assert_eq!((table.rows(), table.header.len()), (3, 0));
        let known = |values: &[f64]| values.iter().filter(|value| !value.is_nan()).count();
        assert_eq!(known(&table.values), 4);
        assert_eq!(numbers("a.txt", "").unwrap().rows(), 0);
    }

    #[test]
    fn unknown_rows_at_both_ends_are_kept() {
        for (name, text, columns, rows) in [
            ("a.csv", ",,\n1,2,3\n,,\n", 3, 3),
            ("a.csv", "\n1,2,3\n\n", 3, 2),
            ("a.csv", "x,y\n,\n1,2\n,\n\n", 2, 3),
            ("a.csv", "\"\"\n1\n\"\"\n", 1, 3),
            ("a.csv", "1\t2\n\t\n \n", 2, 2),
            ("a.txt", "\t\n1 2\n", 2, 2),
            ("a.txt", "1\n\t\n \n", 1, 1),
        ] {
            let table = numbers(name, text).unwrap();
            assert_eq!((table.columns, table.rows()), (columns, rows), "{text:?}");
        }
    }

    #[test]
    fn bad_lines_are_named() {
        for (text, [place, part]) in [
            ("1,2\n3\n", ["a.csv:2: ", "1 cell(s)"]),
            ("1\n# no\ntooth\n", ["a.csv:3: ", "`tooth`"]),
            ("1\n\"2\n", ["a.csv:2: ", "quote"]),
            ("\"1\"2\n", ["a.csv:1: ", "`2`"]),
        ] {
            let said = numbers("a.csv", text).unwrap_err().to_string();
            assert!(said.starts_with(place) && said.contains(part), "{said}");
        }
        let path = Path::new("a.txt");
        let error = TextTable::parse(path, b"1\n\xff\n").unwrap_err();
        assert!(matches!(error, DataError::Table { line: Some(2), .. }));
    }
}
