//! Widths and outlines of text in DejaVu Sans, of which `fonts/` holds a subset.

use tiny_skia::{Path, PathBuilder, Transform};
use ttf_parser::{Face, OutlineBuilder};

const PLAIN: &[u8] = include_bytes!("../../fonts/DejaVuSans.ttf");
const BOLD: &[u8] = include_bytes!("../../fonts/DejaVuSans-Bold.ttf");

/// Width of a text of size 1, and its glyphs with the start of the baseline at the origin and y downwards.
/// There is no path if nothing is visible.
pub(super) fn typeset(text: &str, bold: bool) -> (f64, Option<Path>) {
    let face = Face::parse(if bold { BOLD } else { PLAIN }, 0).expect("the bundled font is valid");
    let mut path = PathBuilder::new();
    let mut width = 0.0;
    for character in text.chars() {
        // Glyph 0 is a box, for characters that the font lacks.
        let glyph = face.glyph_index(character).unwrap_or_default();
        let mut pen = Pen(PathBuilder::new());
        face.outline_glyph(glyph, &mut pen);
        let moved = |outline: Path| outline.transform(Transform::from_translate(width, 0.0));
        if let Some(outline) = pen.0.finish().and_then(moved) {
            path.push_path(&outline);
        }
        width += f32::from(face.glyph_hor_advance(glyph).unwrap_or_default());
    }
    let scale = 1.0 / f32::from(face.units_per_em());
    let scaled = |path: Path| path.transform(Transform::from_scale(scale, -scale));
    (f64::from(scale * width), path.finish().and_then(scaled))
}

struct Pen(PathBuilder);

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_fonts_have_the_characters_of_labels() {
        let labels = "Loss: 10⁻³, 1.5e-7 (%) [π/2] × ∇²";
        for font in [PLAIN, BOLD] {
            let face = Face::parse(font, 0).unwrap();
            let missing = |&c: &char| face.glyph_index(c).is_none();
            assert_eq!(labels.chars().find(missing), None);
        }
        assert_eq!(typeset("", false), (0.0, None));
        assert_eq!(typeset(" ", false).1, None);
        // A character that the fonts lack is a box.
        assert!(typeset("漢", false).1.is_some());
    }

    #[test]
    fn letters_stand_on_the_baseline() {
        let (width, outline) = typeset("HH", true);
        let bounds = outline.unwrap().bounds();
        assert!(bounds.bottom().abs() < 0.01 && (-0.8..-0.6).contains(&bounds.top()));
        assert!(bounds.left() > 0.0 && f64::from(bounds.right()) < width);
    }
}
