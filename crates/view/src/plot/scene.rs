//! A chart as shapes and texts at their final positions: the input of both file formats.

/// Position in units from the top left corner.
pub(super) type Point = (f64, f64);

pub(super) const BLACK: [u8; 3] = [0x22; 3];
pub(super) const WHITE: [u8; 3] = [0xff; 3];

/// Items on white, the last one on top.
#[derive(Debug)]
pub(super) struct Scene {
    pub width: f64,
    pub height: f64,
    pub items: Vec<Item>,
}

#[derive(Debug)]
pub(super) enum Item {
    Shape(Shape),
    Text(Text),
}

#[derive(Debug)]
pub(super) struct Shape {
    pub outline: Outline,
    /// Colour and opacity.
    pub fill: Option<([u8; 3], f64)>,
    pub stroke: Option<Stroke>,
    /// Everything outside is invisible.
    pub clip: Option<Area>,
}

#[derive(Debug)]
pub(super) enum Outline {
    Line(Vec<Point>),
    Polygon(Vec<Point>),
    /// Centre and radius.
    Circle(Point, f64),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Stroke {
    pub colour: [u8; 3],
    pub width: f64,
    /// Lengths of dash and gap.
    pub dash: Option<[f64; 2]>,
}

/// One line of text.
#[derive(Debug)]
pub(super) struct Text {
    pub text: String,
    pub font: Font,
    /// Position of the anchor on the baseline.
    pub at: Point,
    pub anchor: Anchor,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Font {
    pub size: f64,
    pub bold: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
    /// The middle of a text that reads from bottom to top.
    MiddleUpward,
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

    /// The point at fractions of the width, from the left, and of the height, from the bottom.
    pub fn at(&self, x: f64, y: f64) -> Point {
        (self.left + x * self.width, self.bottom() - y * self.height)
    }

    /// Whether a point is inside or, up to rounding, on the border.
    pub fn contains(&self, (x, y): Point) -> bool {
        const SLACK: f64 = 1e-6;
        let within = |v: f64, low: f64, high: f64| v >= low - SLACK && v <= high + SLACK;
        within(x, self.left, self.right()) && within(y, self.top, self.bottom())
    }
}
