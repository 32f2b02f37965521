//! A scene as SVG. Text stays text, in a sans-serif font of the reader.

use super::scene::{Anchor, Area, BLACK, Item, Outline, Point, Scene, Shape, Text};
use std::fmt::Write;

pub(super) fn write(scene: &Scene) -> String {
    let mut clips: Vec<Area> = Vec::new();
    let mut body = String::new();
    for item in &scene.items {
        body += &match item {
            Item::Shape(shape) => shape_element(shape, &mut clips),
            Item::Text(text) => text_element(text),
        };
        body.push('\n');
    }
    let size = format!("width=\"{}\" height=\"{}\"", number(scene.width), number(scene.height));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} viewBox=\"0 0 {} {}\" \
         font-family=\"DejaVu Sans, Verdana, Helvetica, Arial, sans-serif\" fill=\"{}\">\n\
         <rect {size} fill=\"#ffffff\"/>\n",
        number(scene.width),
        number(scene.height),
        hex(BLACK)
    );
    for (index, clip) in clips.iter().enumerate() {
        let [x, y, w, h] = [clip.left, clip.top, clip.width, clip.height].map(number);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<clipPath id=\"plot{index}\"><rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"/></clipPath>"
        );
    }
    svg + &body + "</svg>\n"
}

fn shape_element(shape: &Shape, clips: &mut Vec<Area>) -> String {
    let mut element = match &shape.outline {
        Outline::Line(points) => format!("<polyline points=\"{}\"", list(points)),
        Outline::Polygon(points) => format!("<polygon points=\"{}\"", list(points)),
        Outline::Circle((x, y), radius) => {
            let [x, y, r] = [*x, *y, *radius].map(number);
            format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\"")
        }
    };
    element += &match shape.fill {
        None => " fill=\"none\"".into(),
        Some((colour, 1.0)) => format!(" fill=\"{}\"", hex(colour)),
        Some((colour, opacity)) => {
            format!(" fill=\"{}\" fill-opacity=\"{}\"", hex(colour), number(opacity))
        }
    };
    if let Some(stroke) = shape.stroke {
        let (colour, width) = (hex(stroke.colour), number(stroke.width));
        element += &format!(" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"");
        if let Some([dash, gap]) = stroke.dash.map(|lengths| lengths.map(number)) {
            element += &format!(" stroke-dasharray=\"{dash} {gap}\"");
        }
    }
    if let Some(area) = shape.clip {
        let index = clips.iter().position(|known| *known == area);
        let index = index.unwrap_or_else(|| {
            clips.push(area);
            clips.len() - 1
        });
        element += &format!(" clip-path=\"url(#plot{index})\"");
    }
    element + "/>"
}

fn text_element(text: &Text) -> String {
    let [x, y, size] = [text.at.0, text.at.1, text.font.size].map(number);
    let anchor = match text.anchor {
        Anchor::Start => "start",
        Anchor::Middle | Anchor::MiddleUpward => "middle",
        Anchor::End => "end",
    };
    let weight = if text.font.bold { " font-weight=\"bold\"" } else { "" };
    let rotation = match text.anchor {
        Anchor::MiddleUpward => format!(" transform=\"rotate(-90 {x} {y})\""),
        _ => String::new(),
    };
    let content = escaped(&text.text);
    format!(
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{anchor}\"{weight}{rotation}>{content}</text>"
    )
}

/// Text for XML: special characters are escaped, control characters become spaces.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace(char::is_control, " ")
}

fn list(points: &[Point]) -> String {
    let pairs = points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y)));
    pairs.collect::<Vec<_>>().join(" ")
}

/// A number with at most two decimals.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
