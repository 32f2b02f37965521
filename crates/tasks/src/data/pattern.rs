//! Patterns of file names: `*` for anything within a folder, `**` for any folders, `?` for one
//! character, and `{class}` for a piece of the name that is to be read.

use std::collections::HashSet;
use std::fmt;

/// A pattern, ready to be matched against paths with `/` between their parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Literal(char),
    /// `?`
    One,
    /// `*`
    Within,
    /// `**`
    Across,
    /// `**/`: nothing, or whole folders.
    Folders,
    /// `{class}`: the shortest piece of at least one character that lets the rest match.
    Class,
}

impl Pattern {
    /// A pattern as it is written.
    pub fn new(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (token, length) = match first {
                _ if rest.starts_with("{class}") => (Token::Class, "{class}".len()),
                _ if rest.starts_with("**/") => (Token::Folders, 3),
                _ if rest.starts_with("**") => (Token::Across, 2),
                '*' => (Token::Within, 1),
                '?' => (Token::One, 1),
                other => (Token::Literal(other), other.len_utf8()),
            };
            tokens.push(token);
            rest = &rest[length..];
        }
        Self {
            text: text.into(),
            tokens,
        }
    }

    /// Whether it has a part that is not literal.
    pub fn is_literal(&self) -> bool {
        let literal = |token: &Token| matches!(token, Token::Literal(_));
        self.tokens.iter().all(literal)
    }

    /// How many classes it reads off a name.
    pub fn class_count(&self) -> usize {
        let class = |token: &&Token| **token == Token::Class;
        self.tokens.iter().filter(class).count()
    }

    /// Whether the whole of a path matches.
    pub fn matches(&self, path: &str) -> bool {
        Matching::new(&self.tokens, path).run().is_some()
    }

    /// The piece of a path where the pattern has `{class}`, if the whole of it matches.
    pub fn class(&self, path: &str) -> Option<String> {
        let matching = Matching::new(&self.tokens, path);
        let letters = matching.path.clone();
        let (start, end) = matching.run()??;
        Some(letters.get(start..end)?.iter().collect())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One attempt at a match, which visits each pair of token and character at most once.
struct Matching<'a> {
    tokens: &'a [Token],
    path: Vec<char>,
    /// Pairs from where there is no match.
    failed: HashSet<(usize, usize)>,
}

impl<'a> Matching<'a> {
    fn new(tokens: &'a [Token], path: &str) -> Self {
        Self {
            tokens,
            path: path.chars().collect(),
            failed: HashSet::new(),
        }
    }

    /// Where the class lies, if the path matches.
    fn run(mut self) -> Option<Option<(usize, usize)>> {
        // Depth-first with an explicit stack: (token, character, class so far).
        let mut open = vec![(0, 0, None)];
        while let Some((token, at, class)) = open.pop() {
            if !self.failed.insert((token, at)) {
                continue;
            }
            let Some(&kind) = self.tokens.get(token) else {
                match at == self.path.len() {
                    true => return Some(class),
                    false => continue,
                }
            };
            let rest = &self.path[at..];
            let folder = rest.iter().position(|&c| c == '/').unwrap_or(rest.len());
            match kind {
                Token::Literal(letter) if rest.first() == Some(&letter) => {
                    open.push((token + 1, at + 1, class));
                }
                Token::One if folder > 0 => open.push((token + 1, at + 1, class)),
                Token::Literal(_) | Token::One => {}
                // The last one pushed is tried first: the shortest.
                Token::Within => {
                    open.extend((0..=folder).rev().map(|n| (token + 1, at + n, class)));
                }
                Token::Across => {
                    open.extend((0..=rest.len()).rev().map(|n| (token + 1, at + n, class)));
                }
                Token::Folders => {
                    let ends = rest.iter().enumerate().filter(|&(_, &c)| c == '/');
                    let ends: Vec<usize> = ends.map(|(n, _)| n + 1).collect();
                    open.extend(ends.iter().rev().map(|n| (token + 1, at + n, class)));
                    open.push((token + 1, at, class));
                }
                Token::Class => {
                    let found = |n| (token + 1, at + n, Some((at, at + n)));
                    open.extend((1..=folder).rev().map(found));
                }
            }
        }
        None
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
