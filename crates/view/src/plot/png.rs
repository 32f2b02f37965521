//! A scene as PNG.

use super::scene::{
    Anchor, Area, BLACK, Colour, Item, MARKER_RADIUS, MARKER_RIM, Marker, Point, Scene, Text,
};
use tiny_skia::{
    FillRule, LineCap, LineJoin, Mask, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash,
    Transform,
};

/// Pixels for each unit.
const PIXELS: f32 = 2.0;
/// Largest number of pixels in a direction.
const LARGEST: f32 = 20_000.0;

pub(super) fn draw(scene: &Scene) -> Vec<u8> {
    let pixels = |units: f64| (units as f32 * PIXELS).round().clamp(1.0, LARGEST) as u32;
    let (width, height) = (pixels(scene.width), pixels(scene.height));
    // There is a picture of every size that the clamp leaves.
    let Some(mut picture) = Pixmap::new(width, height) else {
        return Vec::new();
    };
    picture.fill(tiny_skia::Color::WHITE);
    let mut canvas = Canvas {
        picture,
        mask: None,
    };
    for item in &scene.items {
        canvas.draw(item);
    }
    encode(&canvas.picture)
}

struct Canvas {
    picture: Pixmap,
    /// The clipping of the last clipped item, which mostly is that of the next.
    mask: Option<(Area, Mask)>,
}

impl Canvas {
    fn draw(&mut self, item: &Item) {
        match item {
            Item::Line {
                points,
                stroke,
                clip,
            } => {
                let dash = stroke
                    .dash
                    .and_then(|lengths| StrokeDash::new(lengths.map(|l| l as f32).to_vec(), 0.0));
                let pen = Stroke {
                    width: stroke.width as f32,
                    line_join: LineJoin::Round,
                    dash,
                    ..Stroke::default()
                };
                self.stroke(open_path(points), stroke.colour, &pen, *clip);
            }
            Item::Polygon {
                points,
                colour,
                opacity,
                clip,
            } => self.fill(closed_path(points), *colour, *opacity, *clip),
            Item::Marker {
                centre,
                shape,
                colour,
            } => {
                let outline = match shape {
                    Marker::Circle => PathBuilder::from_circle(
                        centre.0 as f32,
                        centre.1 as f32,
                        MARKER_RADIUS as f32,
                    ),
                    _ => closed_path(&shape.corners(*centre)),
                };
                let rim = Stroke {
                    width: MARKER_RIM as f32,
                    ..Stroke::default()
                };
                self.fill(outline.clone(), *colour, 1.0, None);
                self.stroke(outline, Colour(255, 255, 255), &rim, None);
            }
            Item::Text(text) => self.text(text),
        }
    }

    fn text(&mut self, text: &Text) {
        let before = match text.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => 0.5,
            Anchor::End => 1.0,
        } * text.face.width(&text.text);
        let place = |(x, y): Point| match text.upward {
            false => (text.at.0 + x - before, text.at.1 + y),
            true => (text.at.0 + y, text.at.1 - (x - before)),
        };
        let pen = Stroke {
            width: text.face.pen() as f32,
            line_cap: LineCap::Round,
            line_join: LineJoin::Round,
            ..Stroke::default()
        };
        let mut path = PathBuilder::new();
        for stroke in text.face.strokes(&text.text) {
            add_line(&mut path, stroke.into_iter().map(place));
        }
        self.stroke(path.finish(), BLACK, &pen, None);
    }

    fn fill(&mut self, path: Option<Path>, colour: Colour, opacity: f64, clip: Option<Area>) {
        if let Some(path) = path {
            self.clip_to(clip);
            self.picture.fill_path(
                &path,
                &paint(colour, opacity),
                FillRule::Winding,
                Transform::from_scale(PIXELS, PIXELS),
                clip.and(self.mask.as_ref()).map(|(_, mask)| mask),
            );
        }
    }

    fn stroke(&mut self, path: Option<Path>, colour: Colour, pen: &Stroke, clip: Option<Area>) {
        if let Some(path) = path {
            self.clip_to(clip);
            self.picture.stroke_path(
                &path,
                &paint(colour, 1.0),
                pen,
                Transform::from_scale(PIXELS, PIXELS),
                clip.and(self.mask.as_ref()).map(|(_, mask)| mask),
            );
        }
    }

    /// Makes the mask of a clipping, unless it is there.
    fn clip_to(&mut self, clip: Option<Area>) {
        let Some(area) = clip else {
            return;
        };
        if self.mask.as_ref().is_some_and(|(known, _)| *known == area) {
            return;
        }
        let [left, top, width, height] =
            [area.left, area.top, area.width, area.height].map(|v| v as f32);
        let mask = Mask::new(self.picture.width(), self.picture.height());
        let rectangle = Rect::from_xywh(left, top, width, height);
        self.mask = mask.zip(rectangle).map(|(mut mask, rectangle)| {
            mask.fill_path(
                &PathBuilder::from_rect(rectangle),
                FillRule::Winding,
                true,
                Transform::from_scale(PIXELS, PIXELS),
            );
            (area, mask)
        });
    }
}

fn paint(Colour(red, green, blue): Colour, opacity: f64) -> Paint<'static> {
    let mut paint = Paint::default();
    let alpha = (255.0 * opacity.clamp(0.0, 1.0)).round() as u8;
    paint.set_color_rgba8(red, green, blue, alpha);
    paint
}

fn add_line(path: &mut PathBuilder, points: impl IntoIterator<Item = Point>) {
    for (index, (x, y)) in points.into_iter().enumerate() {
        match index {
            0 => path.move_to(x as f32, y as f32),
            _ => path.line_to(x as f32, y as f32),
        }
    }
}

fn open_path(points: &[Point]) -> Option<Path> {
    let mut path = PathBuilder::new();
    add_line(&mut path, points.iter().copied());
    path.finish()
}

fn closed_path(points: &[Point]) -> Option<Path> {
    let mut path = PathBuilder::new();
    add_line(&mut path, points.iter().copied());
    path.close();
    path.finish()
}

/// Three bytes a pixel: on white nothing shines through.
fn encode(picture: &Pixmap) -> Vec<u8> {
    let rgb: Vec<u8> = picture
        .pixels()
        .iter()
        .flat_map(|pixel| [pixel.red(), pixel.green(), pixel.blue()])
        .collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, picture.width(), picture.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    // Even areas and thin lines: smaller without differences between rows.
    encoder.set_filter(png::Filter::NoFilter);
    encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
    encoder
        .write_header()
        .and_then(|mut writer| {
            writer.write_image_data(&rgb)?;
            writer.finish()
        })
        .expect("a picture has pixels, and memory takes them all");
    file
}
