//! A small stroke font: every printable ASCII character as lines and arcs of a pen.
//!
//! Coordinates are in units of 1/14 of the size of the text, `y` upwards from the baseline; capitals are
//! 10 high, small letters 7.2, and letters reach 3 below the line.

use super::scene::{Point, RAISED_BY, RAISED_SIZE, runs};

/// Units in the size of a text.
const EM: f64 = 14.0;
/// Widths of the pen in units, for plain and for bold text.
const PEN: f64 = 1.25;
const BOLD_PEN: f64 = 1.9;
/// Degrees between the corners of an arc.
const ARC_STEP: f64 = 12.0;

/// Advance and strokes of the characters from space to tilde. Commands of the pen:
/// `M x y` begins a stroke, `L x y` draws a line, `A cx cy rx ry from to` draws part of an ellipse (degrees
/// counterclockwise) after a line to its beginning, `O cx cy rx ry` is a stroke around a whole one,
/// `D x y` a dot.
const GLYPHS: [(f64, &str); 95] = [
    (4.0, ""),
    (3.4, "M 1.7 10 L 1.7 3.2 D 1.7 0.3"),
    (5.0, "M 1.5 10 L 1.5 7 M 3.5 10 L 3.5 7"),
    (
        8.6,
        "M 3 10 L 2 0 M 6.6 10 L 5.6 0 M 1 6.7 L 7.8 6.7 M 0.8 3.3 L 7.6 3.3",
    ),
    (
        8.0,
        "A 4 7.1 2.4 2 35 240 A 4 3 2.6 2.1 60 -150 M 4 11 L 4 -0.9",
    ),
    (11.6, "O 3 7.6 1.9 2.4 O 8.6 2.4 1.9 2.4 M 8.6 10 L 3 0"),
    (
        9.4,
        "M 8.4 0 L 2.6 6.9 A 4 8.1 1.8 1.9 215 -45 L 2.4 4.5 A 3.7 2.5 2.5 2.5 130 300 L 8.2 4.8",
    ),
    (3.0, "M 1.5 10 L 1.5 7"),
    (4.4, "A 5.5 3.5 4 8 125 235"),
    (4.4, "A -1.1 3.5 4 8 55 -55"),
    (
        6.0,
        "M 3 10 L 3 5.6 M 1.1 8.9 L 4.9 6.7 M 4.9 8.9 L 1.1 6.7",
    ),
    (8.4, "M 4.2 1.6 L 4.2 7.6 M 1.2 4.6 L 7.2 4.6"),
    (3.4, "M 1.8 0.6 L 1 -2"),
    (5.4, "M 1.1 3.8 L 4.3 3.8"),
    (3.4, "D 1.7 0.2"),
    (5.0, "M 0.7 -1 L 4.3 10.6"),
    (8.0, "O 4 5 2.7 5"),
    (8.0, "M 1.9 8 L 4.6 10 L 4.6 0"),
    (8.0, "A 4 7.3 2.6 2.7 175 -32 L 1.3 0 L 6.8 0"),
    (
        8.0,
        "A 3.8 7.55 2.4 2.45 155 -90 L 2.8 5.1 M 3.8 5.1 A 3.8 2.55 2.8 2.55 90 -155",
    ),
    (8.0, "M 5.4 0 L 5.4 10 L 1 3 L 7.2 3"),
    (
        8.0,
        "M 6.3 10 L 2.1 10 L 1.7 5.2 A 3.9 3.3 2.9 3.3 125 -150",
    ),
    (8.0, "O 4 3.2 2.7 3.2 M 1.3 3.2 A 4.6 4 3.3 6 180 65"),
    (8.0, "M 1.3 10 L 6.8 10 L 3.2 0"),
    (8.0, "O 4 7.6 2.35 2.4 O 4 2.6 2.8 2.6"),
    (8.0, "O 4 6.8 2.7 3.2 M 6.7 6.8 A 3.4 6 3.3 6 0 -115"),
    (3.4, "D 1.7 0.3 D 1.7 6.4"),
    (3.4, "D 1.7 6.4 M 1.8 0.6 L 1 -2"),
    (8.4, "M 7 8 L 1.4 4.6 L 7 1.2"),
    (8.4, "M 1.2 6.2 L 7.2 6.2 M 1.2 3 L 7.2 3"),
    (8.4, "M 1.4 8 L 7 4.6 L 1.4 1.2"),
    (
        7.0,
        "A 3.4 7.6 2.3 2.4 170 -45 L 3.4 4.4 L 3.4 3.2 D 3.4 0.3",
    ),
    (
        13.0,
        "O 6.3 4 2.1 2.4 M 8.4 6.4 L 8.4 2.9 A 9.8 2.9 1.4 1.4 180 330 A 6.4 4 5 5.8 -10 305",
    ),
    (9.0, "M 0.9 0 L 4.5 10 L 8.1 0 M 2.1 3.3 L 6.9 3.3"),
    (
        8.6,
        "M 1.5 5.2 L 4.4 5.2 A 4.4 7.6 2.5 2.4 -90 90 L 1.5 10 L 1.5 0 L 4.6 0 A 4.6 2.6 2.8 2.6 -90 90",
    ),
    (9.0, "A 5 5 3.8 5 50 310"),
    (9.4, "M 1.5 0 L 1.5 10 L 4 10 A 4 5 4.2 5 90 -90 L 1.5 0"),
    (8.0, "M 6.9 10 L 1.5 10 L 1.5 0 L 6.9 0 M 1.5 5.2 L 6.2 5.2"),
    (7.6, "M 6.7 10 L 1.5 10 L 1.5 0 M 1.5 5.1 L 6 5.1"),
    (9.6, "A 5 5 3.8 5 50 315 L 8.3 2.2 L 8.3 4.7 L 5.5 4.7"),
    (9.4, "M 1.5 0 L 1.5 10 M 7.9 0 L 7.9 10 M 1.5 5.2 L 7.9 5.2"),
    (3.4, "M 1.7 0 L 1.7 10"),
    (6.6, "M 5.1 10 L 5.1 2.8 A 2.9 2.8 2.2 2.8 0 -170"),
    (8.6, "M 1.5 0 L 1.5 10 M 7.4 10 L 1.5 3.9 M 3.7 6.2 L 7.8 0"),
    (7.4, "M 1.5 10 L 1.5 0 L 6.8 0"),
    (11.0, "M 1.5 0 L 1.5 10 L 5.5 2.2 L 9.5 10 L 9.5 0"),
    (9.4, "M 1.5 0 L 1.5 10 L 7.9 0 L 7.9 10"),
    (10.0, "O 5 5 3.9 5"),
    (
        8.2,
        "M 1.5 0 L 1.5 10 L 4.4 10 A 4.4 7.3 2.8 2.7 90 -90 L 1.5 4.6",
    ),
    (10.0, "O 5 5 3.9 5 M 5.8 2.4 L 8.6 -0.9"),
    (
        8.6,
        "M 1.5 0 L 1.5 10 L 4.4 10 A 4.4 7.4 2.7 2.6 90 -90 L 1.5 4.8 M 4.5 4.8 L 7.6 0",
    ),
    (8.4, "A 4.2 7.5 2.6 2.5 35 240 A 4.2 2.5 2.9 2.5 60 -150"),
    (8.0, "M 0.8 10 L 7.2 10 M 4 10 L 4 0"),
    (9.2, "M 1.4 10 L 1.4 3.4 A 4.6 3.4 3.2 3.4 180 360 L 7.8 10"),
    (8.6, "M 0.8 10 L 4.3 0 L 7.8 10"),
    (12.4, "M 0.8 10 L 3.5 0 L 6.2 9.6 L 8.9 0 L 11.6 10"),
    (8.6, "M 1 10 L 7.6 0 M 7.6 10 L 1 0"),
    (8.4, "M 0.8 10 L 4.2 4.8 L 7.6 10 M 4.2 4.8 L 4.2 0"),
    (8.2, "M 1.2 10 L 7 10 L 1.1 0 L 7.2 0"),
    (4.4, "M 3.6 11 L 1.5 11 L 1.5 -2 L 3.6 -2"),
    (5.0, "M 0.7 10.6 L 4.3 -1"),
    (4.4, "M 0.8 11 L 2.9 11 L 2.9 -2 L 0.8 -2"),
    (7.0, "M 1.2 6 L 3.5 10 L 5.8 6"),
    (7.0, "M 0.3 -2 L 6.7 -2"),
    (4.0, "M 1 10.4 L 2.6 8.4"),
    (
        7.6,
        "A 3.8 4.9 2.3 2.3 155 0 L 6.1 0 M 6.1 4.2 L 3.4 4.1 A 3.4 2.05 2.2 2.05 90 270 L 3.9 0 A 3.9 2.4 2.2 2.4 270 360",
    ),
    (8.0, "M 1.4 10 L 1.4 0 O 4.1 3.6 2.7 3.6"),
    (7.0, "A 4 3.6 2.8 3.6 48 312"),
    (8.0, "M 6.6 10 L 6.6 0 O 3.9 3.6 2.7 3.6"),
    (7.6, "M 1.2 3.8 L 6.5 3.8 A 3.85 3.6 2.65 3.6 3 312"),
    (4.6, "A 4 8 1.7 2 80 180 L 2.3 0 M 0.7 7 L 4.2 7"),
    (
        8.0,
        "O 3.9 3.6 2.7 3.6 M 6.6 7.2 L 6.6 -0.4 A 4 -0.4 2.6 2.6 0 -150",
    ),
    (
        7.8,
        "M 1.4 10 L 1.4 0 M 1.4 4.4 A 3.9 4.4 2.5 2.8 180 0 L 6.4 0",
    ),
    (3.2, "M 1.6 7.2 L 1.6 0 D 1.6 9.8"),
    (3.4, "M 1.9 7.2 L 1.9 -1 A 0.3 -1 1.6 2 0 -85 D 1.9 9.8"),
    (
        7.2,
        "M 1.4 10 L 1.4 0 M 5.9 7.2 L 1.4 2.7 M 3.2 4.5 L 6.3 0",
    ),
    (3.2, "M 1.6 10 L 1.6 0"),
    (
        11.6,
        "M 1.4 7.2 L 1.4 0 M 1.4 4.8 A 3.6 4.8 2.2 2.4 180 0 L 5.8 0 M 5.8 4.8 A 8 4.8 2.2 2.4 180 0 L 10.2 0",
    ),
    (
        7.8,
        "M 1.4 7.2 L 1.4 0 M 1.4 4.4 A 3.9 4.4 2.5 2.8 180 0 L 6.4 0",
    ),
    (8.0, "O 4 3.6 2.8 3.6"),
    (8.0, "M 1.4 7.2 L 1.4 -3 O 4.1 3.6 2.7 3.6"),
    (8.0, "M 6.6 7.2 L 6.6 -3 O 3.9 3.6 2.7 3.6"),
    (5.0, "M 1.4 7.2 L 1.4 0 M 1.4 4.2 A 4.4 4.2 3 3 180 92"),
    (6.8, "A 3.4 5.35 2 1.85 35 240 A 3.4 1.85 2.3 1.85 60 -150"),
    (
        4.8,
        "M 2.2 9.3 L 2.2 1.8 A 3.8 1.8 1.6 1.8 180 285 M 0.7 7 L 4.2 7",
    ),
    (
        7.8,
        "M 1.4 7.2 L 1.4 2.8 A 3.9 2.8 2.5 2.8 180 360 M 6.4 7.2 L 6.4 0",
    ),
    (7.0, "M 0.8 7.2 L 3.5 0 L 6.2 7.2"),
    (10.0, "M 0.8 7.2 L 2.9 0 L 5 6.9 L 7.1 0 L 9.2 7.2"),
    (7.0, "M 0.9 7.2 L 6.1 0 M 6.1 7.2 L 0.9 0"),
    (
        7.0,
        "M 0.8 7.2 L 3.6 0.1 M 6.3 7.2 L 3.2 -1.1 A 1.4 -0.8 1.9 2.2 -15 -95",
    ),
    (6.8, "M 1 7.2 L 5.7 7.2 L 0.9 0 L 5.9 0"),
    (
        5.0,
        "M 4.2 11 A 4.2 9.5 1.7 1.5 90 180 L 2.5 6.2 L 1.2 4.5 L 2.5 2.8 L 2.5 -0.5 A 4.2 -0.5 1.7 1.5 180 270",
    ),
    (3.4, "M 1.7 11 L 1.7 -2"),
    (
        5.0,
        "M 0.8 11 A 0.8 9.5 1.7 1.5 90 0 L 2.5 6.2 L 3.8 4.5 L 2.5 2.8 L 2.5 -0.5 A 0.8 -0.5 1.7 1.5 0 -90",
    ),
    (8.4, "A 2.7 4.1 1.6 1.3 190 40 A 5.7 5.1 1.6 1.3 220 370"),
];

/// Drawn for every other character: a box.
const UNKNOWN: (f64, &str) = (8.0, "M 1.5 0 L 1.5 10 L 6.5 10 L 6.5 0 L 1.5 0");

fn glyph(character: char) -> (f64, &'static str) {
    let place = (character as usize).checked_sub(' ' as usize);
    let found = place.and_then(|place| GLYPHS.get(place));
    found.copied().unwrap_or(UNKNOWN)
}

/// How a text is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Face {
    pub size: f64,
    pub bold: bool,
}

impl Face {
    pub const fn plain(size: f64) -> Self {
        Self { size, bold: false }
    }

    pub const fn bold(size: f64) -> Self {
        Self { size, bold: true }
    }

    fn pen_units(self) -> f64 {
        if self.bold { BOLD_PEN } else { PEN }
    }

    /// Width of the pen.
    pub fn pen(self) -> f64 {
        self.pen_units() * self.size / EM
    }

    /// Letters keep their distance however wide the pen.
    fn advance(self, character: char) -> f64 {
        glyph(character).0 + self.pen_units() - PEN
    }

    /// Width of a text.
    pub fn width(self, text: &str) -> f64 {
        let runs = runs(text).into_iter().map(|run| {
            let units: f64 = run.text.chars().map(|c| self.advance(c)).sum();
            units * if run.raised { RAISED_SIZE } else { 1.0 }
        });
        runs.sum::<f64>() * self.size / EM
    }

    /// The strokes of a text, from the left end of its baseline, `y` downwards.
    pub fn strokes(self, text: &str) -> Vec<Vec<Point>> {
        let mut strokes = Vec::new();
        let mut left = 0.0;
        for run in runs(text) {
            let (scale, rise) = match run.raised {
                true => (RAISED_SIZE * self.size / EM, RAISED_BY * self.size),
                false => (self.size / EM, 0.0),
            };
            for character in run.text.chars() {
                let place = |(x, y): Point| (left + scale * x, -rise - scale * y);
                for stroke in pen_strokes(glyph(character).1) {
                    strokes.push(stroke.into_iter().map(place).collect());
                }
                left += scale * self.advance(character);
            }
        }
        strokes
    }
}

/// Follows the commands of a glyph.
fn pen_strokes(commands: &str) -> Vec<Vec<Point>> {
    let mut strokes: Vec<Vec<Point>> = vec![Vec::new()];
    let mut words = commands.split_ascii_whitespace();
    while let Some(command) = words.next() {
        let mut number = || {
            words
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or(0.0)
        };
        match command {
            "M" => strokes.push(vec![(number(), number())]),
            "D" => strokes.push(arc((number(), number()), (0.15, 0.15), 0.0, 360.0)),
            "O" => {
                let (centre, radii) = ((number(), number()), (number(), number()));
                strokes.push(arc(centre, radii, 0.0, 360.0));
            }
            "A" => {
                let (centre, radii) = ((number(), number()), (number(), number()));
                let corners = arc(centre, radii, number(), number());
                if let Some(stroke) = strokes.last_mut() {
                    stroke.extend(corners);
                }
            }
            _ => {
                let point = (number(), number());
                if let Some(stroke) = strokes.last_mut() {
                    stroke.push(point);
                }
            }
        }
    }
    strokes.retain(|stroke| stroke.len() > 1);
    strokes
}

fn arc((cx, cy): Point, (rx, ry): Point, from: f64, to: f64) -> Vec<Point> {
    let steps = ((to - from).abs() / ARC_STEP).ceil().max(1.0);
    (0..=steps as usize)
        .map(|step| {
            let angle = (from + (to - from) * step as f64 / steps).to_radians();
            (cx + rx * angle.cos(), cy + ry * angle.sin())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printable_character_has_strokes_of_its_own_inside_its_advance() {
        let mut seen = Vec::new();
        for character in '!'..='~' {
            let (advance, commands) = glyph(character);
            for word in commands.split_ascii_whitespace() {
                let known = ["M", "L", "A", "O", "D"].contains(&word);
                assert!(known || word.parse::<f64>().is_ok(), "{character}: {word}");
            }
            let strokes = pen_strokes(commands);
            assert!(!strokes.is_empty(), "{character}");
            for &(x, y) in strokes.iter().flatten() {
                assert!((0.2..=advance - 0.2).contains(&x), "{character}: x {x}");
                assert!((-3.1..=11.1).contains(&y), "{character}: y {y}");
            }
            assert!(!seen.contains(&commands), "{character} looks like another");
            seen.push(commands);
        }
        assert_eq!(glyph('\u{3b8}'), UNKNOWN);
        assert_eq!(glyph('\n'), UNKNOWN);
    }

    #[test]
    fn raised_text_is_smaller_and_higher() {
        let face = Face::plain(14.0);
        assert!(face.width("10^{-3}") < face.width("10-3"));
        assert!(face.width("10") < Face::bold(14.0).width("10"));
        let lowest = |text| {
            let points = face.strokes(text).into_iter().flatten();
            points.map(|(_, y)| y).fold(f64::MIN, f64::max)
        };
        assert!(lowest("^{3}") < lowest("3") - 4.0);
    }
}
