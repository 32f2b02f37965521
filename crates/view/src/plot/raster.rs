//! A scene as PNG.

use super::font;
use super::scene::{Anchor, Area, BLACK, Item, Outline, Scene, Shape, Text};
use tiny_skia::{Color, FillRule, LineJoin, Mask, Paint, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};

/// Pixels per unit.
pub(super) const SCALE: f64 = 2.0;
const FACTOR: f32 = SCALE as f32;
/// Largest number of pixels along a side.
const MAX_SIDE: f32 = 20_000.0;

pub(super) fn draw(scene: &Scene) -> Vec<u8> {
    let (width, pixels) = pixels(scene);
    let height = (pixels.len() / width as usize) as u32;
    crate::encode_png(width, height, png::ColorType::Rgb, pixels.as_flattened(), |encoder| {
        encoder.set_compression(png::Compression::High);
        // Even areas and thin lines compress better without filters.
        encoder.set_filter(png::Filter::NoFilter);
    })
}

/// Width in pixels, and the pixels, row by row from the top left.
pub(super) fn pixels(scene: &Scene) -> (u32, Vec<[u8; 3]>) {
    let side = |units: f64| (units as f32 * FACTOR).round().clamp(1.0, MAX_SIDE) as u32;
    let mut picture = Pixmap::new(side(scene.width), side(scene.height)).expect("sides are from 1 to 20,000 pixels");
    picture.fill(Color::WHITE);
    let mut clip = None;
    for item in &scene.items {
        match item {
            Item::Shape(shape) => draw_shape(shape, &mut picture, &mut clip),
            Item::Text(text) => draw_text(text, &mut picture),
        }
    }
    // White is opaque: three bytes per pixel suffice.
    let rgb = |pixel: &tiny_skia::PremultipliedColorU8| [pixel.red(), pixel.green(), pixel.blue()];
    (picture.width(), picture.pixels().iter().map(rgb).collect())
}

/// `clip` caches the mask of the previous clipped shape.
fn draw_shape(shape: &Shape, picture: &mut Pixmap, clip: &mut Option<(Area, Mask)>) {
    let mut path = PathBuilder::new();
    match &shape.outline {
        Outline::Circle((x, y), radius) => path.push_circle(*x as f32, *y as f32, *radius as f32),
        Outline::Line(points) | Outline::Polygon(points) => {
            for (index, &(x, y)) in points.iter().enumerate() {
                match index {
                    0 => path.move_to(x as f32, y as f32),
                    _ => path.line_to(x as f32, y as f32),
                }
            }
        }
    }
    if let Outline::Polygon(_) = shape.outline {
        path.close();
    }
    let Some(path) = path.finish() else { return };
    if let Some(area) = shape.clip
        && clip.as_ref().is_none_or(|(known, _)| *known != area)
    {
        *clip = mask(area, picture).map(|mask| (area, mask));
    }
    let mask = clip.as_ref().filter(|(area, _)| shape.clip == Some(*area)).map(|(_, mask)| mask);
    let transform = Transform::from_scale(FACTOR, FACTOR);
    if let Some((colour, opacity)) = shape.fill {
        picture.fill_path(&path, &paint(colour, opacity), FillRule::Winding, transform, mask);
    }
    if let Some(stroke) = shape.stroke {
        let dash = |lengths: [f64; 2]| StrokeDash::new(lengths.map(|l| l as f32).to_vec(), 0.0);
        let pen = Stroke {
            width: stroke.width as f32,
            line_join: LineJoin::Round,
            dash: stroke.dash.and_then(dash),
            ..Stroke::default()
        };
        picture.stroke_path(&path, &paint(stroke.colour, 1.0), &pen, transform, mask);
    }
}

fn mask(area: Area, picture: &Pixmap) -> Option<Mask> {
    let [left, top, width, height] = [area.left, area.top, area.width, area.height].map(|v| v as f32);
    let rectangle = PathBuilder::from_rect(Rect::from_xywh(left, top, width, height)?);
    let mut mask = Mask::new(picture.width(), picture.height())?;
    let transform = Transform::from_scale(FACTOR, FACTOR);
    mask.fill_path(&rectangle, FillRule::Winding, true, transform);
    Some(mask)
}

fn draw_text(text: &Text, picture: &mut Pixmap) {
    let (width, Some(glyphs)) = font::typeset(&text.text, text.font.bold) else { return };
    let (before, rotation) = match text.anchor {
        Anchor::Start => (0.0, 0.0),
        Anchor::Middle => (0.5, 0.0),
        Anchor::End => (1.0, 0.0),
        Anchor::MiddleUpward => (0.5, -90.0),
    };
    let size = text.font.size as f32;
    let transform = Transform::from_translate(-before * width as f32, 0.0)
        .post_scale(size, size)
        .post_rotate(rotation)
        .post_translate(text.at.0 as f32, text.at.1 as f32)
        .post_scale(FACTOR, FACTOR);
    let black = paint(BLACK, 1.0);
    picture.fill_path(&glyphs, &black, FillRule::Winding, transform, None);
}

fn paint([red, green, blue]: [u8; 3], opacity: f64) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, (255.0 * opacity).round() as u8);
    paint
}
