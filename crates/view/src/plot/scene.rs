//! What a chart is made of once everything has its place: the common input of both outputs.

use super::font::Face;

/// Red, green and blue in sRGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

pub(super) const BLACK: Colour = Colour(0x22, 0x22, 0x22);

/// A place in units from the top left.
pub(super) type Point = (f64, f64);

/// Things to draw, one over the other, on white.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scene {
    pub width: f64,
    pub height: f64,
    pub items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item {
    /// An open line of at least two points.
    Line {
        points: Vec<Point>,
        stroke: Stroke,
        /// What lies outside is not drawn.
        clip: Option<Area>,
    },
    /// A filled polygon.
    Polygon {
        points: Vec<Point>,
        colour: Colour,
        opacity: f64,
        clip: Option<Area>,
    },
    /// A filled sign with a thin white rim.
    Marker {
        centre: Point,
        shape: Marker,
        colour: Colour,
    },
    Text(Text),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stroke {
    pub colour: Colour,
    pub width: f64,
    /// Lengths of dash and gap.
    pub dash: Option<[f64; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    pub fn holds(&self, (x, y): Point) -> bool {
        // Points on the edge belong to it, whatever rounding says.
        const SLACK: f64 = 1e-6;
        let inside = |v: f64, low: f64, high: f64| v >= low - SLACK && v <= high + SLACK;
        inside(x, self.left, self.right()) && inside(y, self.top, self.bottom())
    }
}

/// One line of text. What stands between `^{` and `}` is raised: `10^{-3}`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Text {
    pub text: String,
    /// Where the anchor of the baseline lies.
    pub at: Point,
    pub face: Face,
    pub anchor: Anchor,
    /// Reads from bottom to top.
    pub upward: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Part of a text at one height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run<'a> {
    pub text: &'a str,
    pub raised: bool,
}

/// Size of raised text, and how far it is raised, relative to the size of the text.
pub(super) const RAISED_SIZE: f64 = 0.72;
pub(super) const RAISED_BY: f64 = 0.36;

/// Cuts a text where it is raised.
pub(super) fn runs(text: &str) -> Vec<Run<'_>> {
    let mut runs = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("^{") {
        let Some((raised, after)) = after.split_once('}') else {
            break;
        };
        runs.push((before, false));
        runs.push((raised, true));
        rest = after;
    }
    runs.push((rest, false));
    runs.into_iter()
        .filter(|(text, _)| !text.is_empty())
        .map(|(text, raised)| Run { text, raised })
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
}

/// Half the width of a round marker, and the width of the white rim.
pub(super) const MARKER_RADIUS: f64 = 3.4;
pub(super) const MARKER_RIM: f64 = 0.8;

impl Marker {
    pub const ALL: [Self; 4] = [Self::Circle, Self::Square, Self::Triangle, Self::Diamond];

    /// Corners around a centre, with about the area of the round one; none for the round one.
    pub fn corners(self, (x, y): Point) -> Vec<Point> {
        let r = MARKER_RADIUS;
        let corners: &[Point] = match self {
            Self::Circle => &[],
            Self::Square => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            Self::Triangle => &[(0.0, -1.25), (1.15, 0.8), (-1.15, 0.8)],
            Self::Diamond => &[(0.0, -1.3), (1.1, 0.0), (0.0, 1.3), (-1.1, 0.0)],
        };
        corners
            .iter()
            .map(|(dx, dy)| (x + r * dx, y + r * dy))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_text_is_cut_out_and_stray_signs_stay() {
        let cut = |text| {
            let runs = runs(text).into_iter();
            runs.map(|run| (run.text.to_owned(), run.raised))
                .collect::<Vec<_>>()
        };
        let run = |text: &str, raised| (text.to_owned(), raised);
        assert_eq!(
            cut("10^{-3} s"),
            [run("10", false), run("-3", true), run(" s", false)]
        );
        assert_eq!(cut("a^{b"), [run("a^{b", false)]);
        assert_eq!(cut(""), []);
    }
}
