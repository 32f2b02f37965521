//! The key of a picture: classes and their colours, or a colour bar.

use super::font;
use super::raster;
use super::scene::{Anchor, BLACK, Font, Item, Outline, Point, Scene, Shape, Stroke, Text};
use crate::render::{Picture, colour_map};

/// Distances in units: between rows, around everything, and the side of a swatch.
const ROW: f64 = 16.0;
const MARGIN: f64 = 12.0;
const SWATCH: f64 = 10.0;
const FONT: Font = Font { size: 10.0, bold: false };
/// Largest width of a column of names; longer ones are cut off.
const WIDEST: f64 = 160.0;
/// Slices of a colour bar.
const SLICES: usize = 100;

/// The key of a picture.
#[derive(Debug, Clone, PartialEq)]
pub enum Key {
    /// Names and colours of classes.
    Classes(Vec<(String, [u8; 3])>),
    /// The numbers of the first and the last colour of [`colour_map`].
    Range {
        /// The number of the first colour.
        low: f64,
        /// The number of the last colour.
        high: f64,
    },
}

impl Key {
    /// A picture with the key to the right of it. A key without classes leaves it as it is.
    pub fn beside(&self, picture: &Picture) -> Picture {
        let height = f64::from(picture.height()) / raster::SCALE;
        let scene = match self {
            Self::Classes(classes) if classes.is_empty() => return picture.clone(),
            Self::Classes(classes) => of_classes(classes, height),
            Self::Range { low, high } => of_range([*low, *high], height),
        };
        let (width, key) = raster::pixels(&scene);
        let columns = picture.width() as usize;
        let rows = picture.pixels().chunks_exact(columns).enumerate();
        let white = vec![[255; 3]; width as usize];
        let mut pixels = Vec::with_capacity(picture.pixels().len() + key.len());
        for (row, left) in rows {
            pixels.extend_from_slice(left);
            let right = key.chunks_exact(width as usize).nth(row);
            let right = right.unwrap_or(&white);
            pixels.extend(right.iter().map(|&[r, g, b]| [r, g, b, 255]));
        }
        Picture::new(picture.width() + width, picture.height(), pixels)
    }
}

fn text(text: impl Into<String>, at: Point) -> Item {
    Item::Text(Text { text: text.into(), font: FONT, at, anchor: Anchor::Start })
}

fn rectangle([left, top]: [f64; 2], [width, height]: [f64; 2], fill: Option<[u8; 3]>) -> Item {
    let (right, bottom) = (left + width, top + height);
    Item::Shape(Shape {
        outline: Outline::Polygon(vec![(left, top), (right, top), (right, bottom), (left, bottom)]),
        fill: fill.map(|colour| (colour, 1.0)),
        stroke: fill.is_none().then_some(Stroke { colour: BLACK, width: 0.5, dash: None }),
        clip: None,
    })
}

fn width_of(word: &str) -> f64 {
    FONT.size * font::typeset(word, FONT.bold).0
}

/// Rows of swatches and names, in as many columns as they need.
fn of_classes(classes: &[(String, [u8; 3])], height: f64) -> Scene {
    let rows = (((height - 2.0 * MARGIN) / ROW).floor() as usize).max(1);
    let mut items = Vec::new();
    let mut left = 0.0;
    for column in classes.chunks(rows) {
        let mut widest: f64 = 0.0;
        for (row, (name, colour)) in column.iter().enumerate() {
            let mut name = name.clone();
            while width_of(&name) > WIDEST {
                name.pop();
            }
            let top = MARGIN + ROW * row as f64;
            items.push(rectangle([left, top], [SWATCH; 2], Some(*colour)));
            widest = widest.max(width_of(&name));
            items.push(text(name, (left + 1.6 * SWATCH, top + 0.9 * SWATCH)));
        }
        left += 1.6 * SWATCH + widest + MARGIN;
    }
    Scene { width: left, height, items }
}

/// A vertical bar with the largest number at the top.
fn of_range([low, high]: [f64; 2], height: f64) -> Scene {
    let length = (height - 2.0 * MARGIN).clamp(1.0, 250.0);
    let top = 0.5 * (height - length);
    let slice = length / SLICES as f64;
    let mut items: Vec<Item> = (0..SLICES)
        .map(|place| {
            let colour = colour_map(1.0 - (place as f64 + 0.5) / SLICES as f64);
            // Slices overlap, so that no gap shows.
            let size = [1.5 * SWATCH, 1.2 * slice];
            rectangle([0.0, top + slice * place as f64], size, Some(colour))
        })
        .collect();
    items.push(rectangle([0.0, top], [1.5 * SWATCH, length], None));
    let mut widest: f64 = 0.0;
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let word = short(low + share * (high - low));
        widest = widest.max(width_of(&word));
        let at = top + (1.0 - share) * length + 0.35 * FONT.size;
        items.push(text(word, (2.0 * SWATCH, at)));
    }
    Scene { width: 2.0 * SWATCH + widest + MARGIN, height, items }
}

/// A number with four digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if (1e-3..1e5).contains(&size) => {
            let digits = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
            let text = format!("{value:.digits$}");
            if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
        }
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_to_the_right_and_show_their_colours() {
        let picture = Picture::new(40, 201, vec![[1, 2, 3, 4]; 40 * 201]);
        let names = |count: usize| {
            let name = |n: usize| (format!("class {n}"), [10 * n as u8, 200, 7]);
            Key::Classes((0..count).map(name).collect())
        };
        let colours = |picture: &Picture| {
            let mut colours = picture.pixels().to_vec();
            colours.sort_unstable();
            colours.dedup();
            colours
        };
        let one_column = names(3).beside(&picture);
        assert_eq!(one_column.height(), 201);
        for n in 0..3 {
            assert!(colours(&one_column).contains(&[10 * n, 200, 7, 255]));
        }
        assert!(one_column.pixels()[..40].iter().all(|&pixel| pixel == [1, 2, 3, 4]));
        let two_columns = names(12).beside(&picture);
        assert!(two_columns.width() > one_column.width() + 40, "a second column");
        assert!(colours(&two_columns).contains(&[110, 200, 7, 255]));
        assert_eq!(names(0).beside(&picture), picture);
        let range = Key::Range { low: -1.0, high: 2.5 };
        let range = range.beside(&picture);
        let [red, green, blue] = colour_map(0.505);
        assert!(colours(&range).contains(&[red, green, blue, 255]));
    }

    #[test]
    fn numbers_are_short() {
        let found = [0.0, 1.5, -0.25, 1234.567, 99999.0, 0.00012].map(short);
        assert_eq!(found, ["0", "1.5", "-0.25", "1235", "99999", "1.200e-4"]);
    }
}
