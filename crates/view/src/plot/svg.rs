//! A scene as SVG. Text stays text, in whatever sans-serif font the reader has.

use super::scene::{
    Anchor, Area, BLACK, Colour, Item, MARKER_RADIUS, MARKER_RIM, Marker, Point, RAISED_BY,
    RAISED_SIZE, Scene, Text, runs,
};
use std::fmt::Write;

pub(super) fn write(scene: &Scene) -> String {
    let (width, height) = (number(scene.width), number(scene.height));
    let mut clips: Vec<Area> = Vec::new();
    let mut body = String::new();
    for item in &scene.items {
        body.push_str(&element(item, &mut clips));
        body.push('\n');
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"Helvetica, Arial, sans-serif\" fill=\"{}\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        hex(BLACK)
    );
    for (index, clip) in clips.iter().enumerate() {
        let [x, y, w, h] = [clip.left, clip.top, clip.width, clip.height].map(number);
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<clipPath id=\"plot{index}\"><rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"/></clipPath>"
        );
    }
    svg + &body + "</svg>\n"
}

fn element(item: &Item, clips: &mut Vec<Area>) -> String {
    let mut clipped = |clip: &Option<Area>| match clip {
        None => String::new(),
        Some(area) => {
            let known = clips.iter().position(|known| known == area);
            let index = known.unwrap_or_else(|| {
                clips.push(*area);
                clips.len() - 1
            });
            format!(" clip-path=\"url(#plot{index})\"")
        }
    };
    match item {
        Item::Line {
            points,
            stroke,
            clip,
        } => {
            let dash = match stroke.dash {
                None => String::new(),
                Some([dash, gap]) => {
                    format!(" stroke-dasharray=\"{} {}\"", number(dash), number(gap))
                }
            };
            format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" \
                 stroke-linejoin=\"round\"{dash}{}/>",
                list(points),
                hex(stroke.colour),
                number(stroke.width),
                clipped(clip)
            )
        }
        Item::Polygon {
            points,
            colour,
            opacity,
            clip,
        } => format!(
            "<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"{}\"{}/>",
            list(points),
            hex(*colour),
            number(*opacity),
            clipped(clip)
        ),
        Item::Marker {
            centre,
            shape,
            colour,
        } => {
            let style = format!(
                "fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"{}\"",
                hex(*colour),
                number(MARKER_RIM)
            );
            match shape {
                Marker::Circle => format!(
                    "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" {style}/>",
                    number(centre.0),
                    number(centre.1),
                    number(MARKER_RADIUS)
                ),
                _ => format!(
                    "<polygon points=\"{}\" {style}/>",
                    list(&shape.corners(*centre))
                ),
            }
        }
        Item::Text(text) => text_element(text),
    }
}

fn text_element(text: &Text) -> String {
    let (x, y) = (number(text.at.0), number(text.at.1));
    let anchor = match text.anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let weight = if text.face.bold {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let turn = match text.upward {
        true => format!(" transform=\"rotate(-90 {x} {y})\""),
        false => String::new(),
    };
    let mut content = String::new();
    let mut was_raised = false;
    for run in runs(&text.text) {
        let rise = RAISED_BY * text.face.size;
        let shift = match (was_raised, run.raised) {
            (false, true) => -rise,
            (true, false) => rise,
            _ => 0.0,
        };
        let size = if run.raised { RAISED_SIZE } else { 1.0 } * text.face.size;
        let plain = escaped(run.text);
        content += &match shift == 0.0 {
            true => plain,
            false => format!(
                "<tspan dy=\"{}\" font-size=\"{}\">{plain}</tspan>",
                number(shift),
                number(size)
            ),
        };
        was_raised = run.raised;
    }
    format!(
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" text-anchor=\"{anchor}\"{weight}{turn}>{content}</text>",
        number(text.face.size)
    )
}

/// Text that XML can hold: its own signs escaped, control characters as spaces.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

fn list(points: &[Point]) -> String {
    let texts = points
        .iter()
        .map(|(x, y)| format!("{},{}", number(*x), number(*y)));
    texts.collect::<Vec<_>>().join(" ")
}

/// Two decimals at most.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

fn hex(Colour(red, green, blue): Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
