//! Where everything of a chart goes.

use super::axis::{Range, Tick};
use super::font::Face;
use super::scene::{Anchor, Area, BLACK, Colour, Item, Marker, Point, Scene, Stroke, Text};
use super::{Chart, Line, PALETTE, Panel, Series};

const TITLE: Face = Face::bold(17.0);
const PANEL_TITLE: Face = Face::bold(14.0);
const LABEL: Face = Face::plain(13.0);
const TICK: Face = Face::plain(11.5);
const LEGEND: Face = Face::plain(12.5);

const MARGIN: f64 = 12.0;
const GUTTER: f64 = 16.0;
const GRID: Colour = Colour(0xe4, 0xe4, 0xe4);
const FAINT_GRID: Colour = Colour(0xf3, 0xf3, 0xf3);
const FRAME: Colour = Colour(0x88, 0x88, 0x88);
const LINE_WIDTH: f64 = 1.8;
const BAND_OPACITY: f64 = 0.18;
/// Series with more points than this have no markers unless asked for.
const MARKED_POINTS: usize = 30;
/// Length of a line in the legend, and the space after it and after a name.
const SAMPLE: f64 = 30.0;
const LEGEND_GAPS: [f64; 2] = [7.0, 20.0];
const LEGEND_ROW: f64 = 19.0;
/// Points further away than this from the chart are moved to it: nobody sees where they are.
const FAR: f64 = 1e5;

/// How all series of one name look.
#[derive(Debug, Clone, PartialEq)]
struct Style {
    name: String,
    colour: Colour,
    line: Line,
    marker: Option<Marker>,
}

impl Style {
    fn stroke(&self) -> Option<Stroke> {
        let dash = match self.line {
            Line::Solid => None,
            Line::Dashed => Some([6.0, 3.5]),
            Line::Dotted => Some([1.6, 3.2]),
            Line::None => return None,
        };
        Some(Stroke {
            colour: self.colour,
            width: LINE_WIDTH,
            dash,
        })
    }
}

pub(super) fn lay_out(chart: &Chart) -> Scene {
    let styles = styles(chart);
    let mut items = Vec::new();
    let mut top = MARGIN;
    if !chart.title.is_empty() {
        top += TITLE.size;
        items.push(Item::Text(Text {
            text: chart.title.clone(),
            at: (0.5 * chart.width, top),
            face: TITLE,
            anchor: Anchor::Middle,
            upward: false,
        }));
        top += 10.0;
    }
    top = legend(&styles, chart.width, top, &mut items);
    let columns = chart.columns.min(chart.panels.len()).max(1);
    let cell = (chart.width - 2.0 * MARGIN + GUTTER) / columns as f64;
    for (row, panels) in chart.panels.chunks(columns).enumerate() {
        for (column, panel) in panels.iter().enumerate() {
            let area = Area {
                left: MARGIN + column as f64 * cell,
                top: top + row as f64 * (chart.panel_height + GUTTER),
                width: cell - GUTTER,
                height: chart.panel_height,
            };
            draw_panel(panel, &styles, area, &mut items);
        }
    }
    let rows = chart.panels.len().div_ceil(columns) as f64;
    Scene {
        width: chart.width,
        height: (top + rows * (chart.panel_height + GUTTER) - GUTTER + MARGIN).max(top + MARGIN),
        items,
    }
}

/// One style for each name, in the order of their first use; colours and markers in turn.
fn styles(chart: &Chart) -> Vec<Style> {
    let mut styles: Vec<Style> = Vec::new();
    let all = chart.panels.iter().flat_map(|panel| &panel.series);
    for series in all {
        let same_name = |style: &&mut Style| style.name == series.name;
        let marked = series
            .markers
            .unwrap_or(series.points.len() <= MARKED_POINTS);
        if let Some(style) = styles.iter_mut().find(same_name) {
            if !marked {
                style.marker = None;
            }
            continue;
        }
        let index = styles.len();
        styles.push(Style {
            name: series.name.clone(),
            colour: series.colour.unwrap_or(PALETTE[index % PALETTE.len()]),
            line: series.line,
            marker: marked.then_some(Marker::ALL[index % Marker::ALL.len()]),
        });
    }
    styles
}

/// Draws the legend in as many rows as it needs and returns where the panels begin.
fn legend(styles: &[Style], width: f64, top: f64, items: &mut Vec<Item>) -> f64 {
    let named: Vec<&Style> = styles.iter().filter(|s| !s.name.is_empty()).collect();
    let entry =
        |style: &Style| SAMPLE + LEGEND_GAPS[0] + LEGEND.width(&style.name) + LEGEND_GAPS[1];
    let room = width - 2.0 * MARGIN + LEGEND_GAPS[1];
    let row_width = |row: &[&Style]| row.iter().map(|style| entry(style)).sum::<f64>();
    // As many in each row as in the others, and as few rows as that allows.
    let per_row = (1..=named.len())
        .map(|rows| named.len().div_ceil(rows))
        .find(|&count| count == 1 || named.chunks(count).all(|row| row_width(row) <= room));
    let rows: Vec<&[&Style]> = named.chunks(per_row.unwrap_or(1)).collect();
    let mut bottom = top;
    for row in &rows {
        let mut left = 0.5 * (width - (row_width(row) - LEGEND_GAPS[1]));
        let middle = bottom + 0.5 * LEGEND_ROW;
        for style in *row {
            if let Some(stroke) = style.stroke() {
                items.push(Item::Line {
                    points: vec![(left, middle), (left + SAMPLE, middle)],
                    stroke,
                    clip: None,
                });
            }
            if let Some(shape) = style.marker {
                items.push(Item::Marker {
                    centre: (left + 0.5 * SAMPLE, middle),
                    shape,
                    colour: style.colour,
                });
            }
            items.push(Item::Text(Text {
                text: style.name.clone(),
                at: (left + SAMPLE + LEGEND_GAPS[0], middle + 0.36 * LEGEND.size),
                face: LEGEND,
                anchor: Anchor::Start,
                upward: false,
            }));
            left += entry(style);
        }
        bottom += LEGEND_ROW;
    }
    if rows.is_empty() { top } else { bottom + 8.0 }
}

fn draw_panel(panel: &Panel, styles: &[Style], area: Area, items: &mut Vec<Item>) {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let x_range = Range::new(&panel.x, points().map(|point| point.0));
    let y_range = Range::new(&panel.y, panel.series.iter().flat_map(heights));
    let title_room = if panel.title.is_empty() { 4.0 } else { 22.0 };
    let label_room = |label: &str| if label.is_empty() { 0.0 } else { 19.0 };
    let height = area.height - title_room - TICK.size - 9.0 - label_room(&panel.x.label);
    let y_ticks = y_range.ticks((height / 45.0) as usize);
    let widest = labels_width(&y_ticks);
    let left = area.left + label_room(&panel.y.label) + widest + 8.0;
    // Room on the right for half of a last label.
    let width = (area.right() - left - 8.0).max(1.0);
    let plot = Area {
        left,
        top: area.top + title_room,
        width,
        height: height.max(1.0),
    };
    let x_ticks = x_range.ticks((width / 60.0) as usize);
    let mut text = |text: &str, at, face, anchor, upward| {
        if !text.is_empty() {
            items.push(Item::Text(Text {
                text: text.into(),
                at,
                face,
                anchor,
                upward,
            }));
        }
    };
    let middle = (plot.left + 0.5 * plot.width, plot.top + 0.5 * plot.height);
    let title_at = (middle.0, area.top + 14.0);
    text(&panel.title, title_at, PANEL_TITLE, Anchor::Middle, false);
    let x_at = (middle.0, area.bottom() - 3.0);
    text(&panel.x.label, x_at, LABEL, Anchor::Middle, false);
    let y_at = (area.left + LABEL.size - 1.0, middle.1);
    text(&panel.y.label, y_at, LABEL, Anchor::Middle, true);
    for tick in &x_ticks {
        let at = (
            plot.left + tick.place * plot.width,
            plot.bottom() + TICK.size + 4.0,
        );
        let label = tick.label.as_deref().unwrap_or_default();
        text(label, at, TICK, Anchor::Middle, false);
    }
    for tick in &y_ticks {
        let y = plot.bottom() - tick.place * plot.height + 0.36 * TICK.size;
        let label = tick.label.as_deref().unwrap_or_default();
        text(label, (plot.left - 5.0, y), TICK, Anchor::End, false);
    }
    if !points().any(|&(x, y)| x_range.place(x).and(y_range.place(y)).is_some()) {
        text("no data", middle, LABEL, Anchor::Middle, false);
    }
    grid(&x_ticks, &y_ticks, plot, items);
    let place = |(x, y): Point| {
        let (x, y) = (x_range.place(x)?, y_range.place(y)?);
        let bounded = |v: f64| v.clamp(-FAR, FAR);
        Some((
            bounded(plot.left + x * plot.width),
            bounded(plot.bottom() - y * plot.height),
        ))
    };
    for series in &panel.series {
        band(series, style_of(styles, series), plot, place, items);
    }
    for series in &panel.series {
        draw_series(series, style_of(styles, series), plot, place, items);
    }
}

/// All heights that a series reaches. Lower ends of a band that have no place, such as those below
/// zero on a logarithmic axis, are left out by the range.
fn heights(series: &Series) -> impl Iterator<Item = f64> + '_ {
    let halves = series.band.iter().copied().chain(std::iter::repeat(0.0));
    let each = series.points.iter().zip(halves);
    each.flat_map(|(&(_, y), half)| match half.is_finite() {
        true => [y - half, y, y + half],
        false => [y; 3],
    })
}

fn labels_width(ticks: &[Tick]) -> f64 {
    let labels = ticks.iter().filter_map(|tick| tick.label.as_deref());
    labels.map(|label| TICK.width(label)).fold(0.0, f64::max)
}

fn style_of<'a>(styles: &'a [Style], series: &Series) -> Option<&'a Style> {
    styles.iter().find(|style| style.name == series.name)
}

/// Lines across the plot at ticks, and its frame.
fn grid(x_ticks: &[Tick], y_ticks: &[Tick], plot: Area, items: &mut Vec<Item>) {
    let mut line = |points: Vec<Point>, colour| {
        items.push(Item::Line {
            points,
            stroke: Stroke {
                colour,
                width: 0.8,
                dash: None,
            },
            clip: None,
        });
    };
    for labelled in [false, true] {
        let colour = if labelled { GRID } else { FAINT_GRID };
        let of_kind = |tick: &&Tick| tick.label.is_some() == labelled;
        for tick in x_ticks.iter().filter(of_kind) {
            let x = plot.left + tick.place * plot.width;
            line(vec![(x, plot.top), (x, plot.bottom())], colour);
        }
        for tick in y_ticks.iter().filter(of_kind) {
            let y = plot.bottom() - tick.place * plot.height;
            line(vec![(plot.left, y), (plot.right(), y)], colour);
        }
    }
    let (left, right, top, bottom) = (plot.left, plot.right(), plot.top, plot.bottom());
    line(
        vec![
            (left, top),
            (right, top),
            (right, bottom),
            (left, bottom),
            (left, top),
        ],
        FRAME,
    );
}

fn band(
    series: &Series,
    style: Option<&Style>,
    plot: Area,
    place: impl Fn(Point) -> Option<Point>,
    items: &mut Vec<Item>,
) {
    let ends = series
        .points
        .iter()
        .zip(&series.band)
        .map(|(&(x, y), &half)| {
            let upper = place((x, y + half))?;
            // A lower end without a place lies below all that is shown.
            let lower = place((x, y - half)).unwrap_or((upper.0, FAR));
            (half >= 0.0).then_some((upper, lower))
        });
    let ends: Vec<Option<(Point, Point)>> = ends.collect();
    for piece in ends.split(Option::is_none) {
        let upper = piece.iter().flatten().map(|(upper, _)| *upper);
        let lower = piece.iter().flatten().map(|(_, lower)| *lower);
        if piece.len() > 1 {
            items.push(Item::Polygon {
                points: upper.chain(lower.rev()).collect(),
                colour: style.map_or(BLACK, |style| style.colour),
                opacity: BAND_OPACITY,
                clip: Some(plot),
            });
        }
    }
}

fn draw_series(
    series: &Series,
    style: Option<&Style>,
    plot: Area,
    place: impl Fn(Point) -> Option<Point>,
    items: &mut Vec<Item>,
) {
    let Some(style) = style else {
        return;
    };
    let places: Vec<Option<Point>> = series.points.iter().map(|&point| place(point)).collect();
    if let Some(stroke) = style.stroke() {
        for piece in places
            .split(Option::is_none)
            .filter(|piece| piece.len() > 1)
        {
            items.push(Item::Line {
                points: piece.iter().flatten().copied().collect(),
                stroke,
                clip: Some(plot),
            });
        }
    }
    // A point between two gaps would not be seen without one.
    let alone = |index: usize| {
        let gap = |place: Option<&Option<Point>>| place.is_none_or(Option::is_none);
        gap(places.get(index + 1)) && gap(index.checked_sub(1).and_then(|i| places.get(i)))
    };
    for (index, place) in places.iter().enumerate() {
        let shape = style.marker.or(alone(index).then_some(Marker::Circle));
        if let (Some(centre), Some(shape)) = (*place, shape)
            && plot.holds(centre)
        {
            items.push(Item::Marker {
                centre,
                shape,
                colour: style.colour,
            });
        }
    }
}
