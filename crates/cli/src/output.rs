//! Output of commands: standard output, standard error, files and tables.

use crate::failure::Failure;
use serde::Serialize;
use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

/// Writes text to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::input(format!("cannot write to standard output: {error}")),
    })
}

/// Prints a line to standard error. Errors are ignored.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints a line to standard output during longer work, which continues if standard output is closed.
pub fn print_on(line: &str) -> Result<(), Failure> {
    match print(line) {
        Err(Failure::OutputClosed) => Ok(()),
        printed => printed,
    }
}

/// A result as a line of JSON.
pub fn json_line(result: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string(result).map_err(Failure::input)? + "\n")
}

/// Writes a file completely, or leaves the existing one.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    gemcnn_mesh::write_atomically(path, |file| file.write_all(bytes)).map_err(|error| {
        Failure::input(format!(
            "{}: cannot write: {error}; check that the folder exists, is writable and has free space",
            path.display()
        ))
    })
}

/// An integer with thousands separators: 13,776.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 vertex`, `13,776 vertices`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// `45 s`, `12 min`, `3 h 20 min`.
pub fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5999 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `640 MB`, `1.2 GB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{} MB", bytes.div_ceil(1_000_000)),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Aligned columns, the first to the left and the others to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            // Writing to a string does not fail.
            let _ = match column {
                0 => write!(text, "  {cell:<width$}", width = width(0).max(10)),
                _ => write!(text, "  {cell:>width$}", width = width(column)),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(count(1, "vertex", "vertices"), "1 vertex");
        assert_eq!(count(13776, "face", "faces"), "13,776 faces");
    }

    #[test]
    fn times_are_short() {
        for (seconds, text) in [(0, "0 s"), (99, "99 s"), (100, "2 min"), (5999, "100 min"), (12_000, "3 h 20 min")] {
            assert_eq!(time(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [(0, "0 MB"), (1, "1 MB"), (999_000_000, "999 MB"), (1_249_000_000, "1.2 GB")] {
            assert_eq!(size(bytes), text);
        }
    }
}
