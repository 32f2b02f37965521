//! Patterns of file names.
//!
//! | pattern | matches |
//! | --- | --- |
//! | `*` | any characters within a folder |
//! | `**` | any characters, across folders |
//! | `**/` | nothing, or whole folders |
//! | `?` | one character other than `/` |
//! | `[0-9a]`, `[!0-9]` | one character of a set, or outside it |
//! | `{class}` | the shortest part of a name, of at least one character, that lets the rest match |

use regex_lite::{Regex, escape};
use std::fmt;

/// A pattern for paths with `/` between their parts.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    /// `None` for a pattern too long to be compiled, which matches nothing.
    regex: Option<Regex>,
    is_literal: bool,
    class_count: usize,
}

impl Pattern {
    /// Compiles a pattern. A `[` that begins no valid set stands for itself.
    pub fn new(text: &str) -> Self {
        let mut regex = String::new();
        let mut is_literal = true;
        let mut class_count = 0;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            // Lazy repetitions: of several matches the one with the shortest parts is found.
            let special = match first {
                '{' if rest.starts_with("{class}") => Some(("([^/]+?)".into(), "{class}".len())),
                '*' if rest.starts_with("**/") => Some(("(?:.*?/)??".into(), 3)),
                '*' if rest.starts_with("**") => Some((".*?".into(), 2)),
                '*' => Some(("[^/]*?".into(), 1)),
                '?' => Some(("[^/]".into(), 1)),
                '[' => set(rest),
                _ => None,
            };
            is_literal &= special.is_none();
            class_count += usize::from(rest.starts_with("{class}"));
            let length = first.len_utf8();
            let (piece, length) = special.unwrap_or_else(|| (escape(&rest[..length]), length));
            regex += &piece;
            rest = &rest[length..];
        }
        Self { text: text.into(), regex: Regex::new(&format!("^(?s:{regex})$")).ok(), is_literal, class_count }
    }

    /// True if it matches itself only.
    pub fn is_literal(&self) -> bool {
        self.is_literal
    }

    /// Number of `{class}` in it.
    pub fn class_count(&self) -> usize {
        self.class_count
    }

    /// True if the whole path matches.
    pub fn matches(&self, path: &str) -> bool {
        self.regex.as_ref().is_some_and(|regex| regex.is_match(path))
    }

    /// The part of a path at `{class}`, if the whole path matches.
    pub fn class(&self, path: &str) -> Option<String> {
        let found = self.regex.as_ref()?.captures(path)?.get(1)?;
        Some(found.as_str().into())
    }
}

/// The set of characters that a pattern begins with, as a regular expression, and its length in the
/// pattern. `None` if there is no valid set.
fn set(text: &str) -> Option<(String, usize)> {
    let end = text.find(']')?;
    let (negation, inside) = match text[1..end].strip_prefix('!') {
        Some(inside) => ("^/", inside),
        None => ("", &text[1..end]),
    };
    let mut set = format!("[{negation}");
    for character in inside.chars() {
        if matches!(character, '\\' | '[' | '^' | '&' | '~') {
            set.push('\\');
        }
        set.push(character);
    }
    set.push(']');
    (!inside.is_empty() && Regex::new(&set).is_ok()).then_some((set, end + 1))
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_within_folders_and_double_stars_do_not() {
        for (pattern, path, matches) in [
            ("*.ply", "a.ply", true),
            ("*.ply", "b/a.ply", false),
            ("**/*.ply", "a.ply", true),
            ("**/*.ply", "c/b/a.ply", true),
            ("**/*.ply", "c/b/a.obj", false),
            ("c/**", "c/b/a.obj", true),
            ("scan?.off", "scan1.off", true),
            ("scan?.off", "scan12.off", false),
            ("?", "/", false),
            ("", "", true),
            ("scan[0-9].off", "scan7.off", true),
            ("scan[0-9].off", "scanx.off", false),
            ("scan[!0-9].off", "scanx.off", true),
            ("a[!x]b", "a/b", false),
            ("[é^\\]", "^", true),
            ("[é^\\]", "é", true),
            ("[9-0]", "[9-0]", true),
            ("a[", "a[", true),
            ("(a|b).{2}", "(a|b).{2}", true),
            ("caf?", "café", true),
            ("*é*", "caférine", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(path), matches, "{pattern}");
        }
    }

    #[test]
    fn the_class_is_the_shortest_piece_that_fits() {
        for (pattern, path, class) in [
            ("{class}-*", "cat-01-a", Some("cat")),
            ("*_{class}", "tr_reg_007", Some("reg_007")),
            ("**/{class}/*", "shapes/dog/3", Some("dog")),
            ("{class}-*", "-01", None),
            ("x*", "xyz", None),
        ] {
            let found = Pattern::new(pattern).class(path);
            assert_eq!(found.as_deref(), class, "{pattern}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = Pattern::new(&"*a".repeat(200));
        assert!(!pattern.matches(&"a".repeat(199)));
        assert!(pattern.matches(&"a".repeat(200)));
    }
}
