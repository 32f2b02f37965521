//! The layout of a chart: positions of title, legend, panels and everything in them.

use super::axis::{Range, Tick};
use super::font;
use super::scene::{Anchor, Area, Font, Item, Outline, Point, Scene, Shape, Stroke, Text, WHITE};
use super::{Chart, Line, PALETTE, Panel, Series};

const TITLE: Font = font(15.5, true);
const PANEL_TITLE: Font = font(12.0, true);
const LABEL: Font = font(11.5, false);
const TICK: Font = font(10.5, false);
const LEGEND: Font = font(11.0, false);

const MARGIN: f64 = 12.0;
const GUTTER: f64 = 16.0;
const GRID: [u8; 3] = [0xe4; 3];
const MINOR_GRID: [u8; 3] = [0xf3; 3];
const FRAME: [u8; 3] = [0x88; 3];
const BAND_OPACITY: f64 = 0.18;
const MARKER_RADIUS: f64 = 3.4;
/// Length of the line of a legend entry, and the gaps after it and after the name.
const SAMPLE: f64 = 30.0;
const LEGEND_GAPS: [f64; 2] = [7.0, 20.0];
const LEGEND_ROW: f64 = 19.0;
/// Bound of all coordinates, far outside of any chart.
const FAR: f64 = 1e5;

const fn font(size: f64, bold: bool) -> Font {
    Font { size, bold }
}

fn text_width(text: &str, font: Font) -> f64 {
    font.size * font::typeset(text, font.bold).0
}

pub(super) fn lay_out(chart: &Chart) -> Scene {
    let styles = styles(chart);
    let mut scene = Scene { width: chart.width.into(), height: MARGIN, items: Vec::new() };
    if !chart.title.is_empty() {
        scene.height += TITLE.size;
        let at = (0.5 * scene.width, scene.height);
        scene.text(&chart.title, TITLE, at, Anchor::Middle);
        scene.height += 10.0;
    }
    scene.legend(&styles);
    let columns = chart.columns.min(chart.panels.len()).max(1);
    let cell = (scene.width - 2.0 * MARGIN + GUTTER) / columns as f64;
    for row in chart.panels.chunks(columns) {
        for (column, panel) in row.iter().enumerate() {
            let area = Area {
                left: MARGIN + column as f64 * cell,
                top: scene.height,
                width: cell - GUTTER,
                height: chart.panel_height.into(),
            };
            scene.panel(panel, &styles, area);
        }
        scene.height += f64::from(chart.panel_height) + GUTTER;
    }
    scene.height += MARGIN - if chart.panels.is_empty() { 0.0 } else { GUTTER };
    scene
}

/// Style of all series of one name.
struct Style<'a> {
    name: &'a str,
    stroke: Stroke,
    marker: Option<Marker>,
}

/// One style per name, in the order of first use. Colours and markers cycle.
fn styles(chart: &Chart) -> Vec<Style<'_>> {
    let mut styles: Vec<Style> = Vec::new();
    for series in chart.panels.iter().flat_map(|panel| &panel.series) {
        if let Some(style) = styles.iter_mut().find(|style| style.name == series.name) {
            style.marker = style.marker.filter(|_| series.markers);
            continue;
        }
        let index = styles.len();
        let marker = Marker::ALL[index % Marker::ALL.len()];
        styles.push(Style {
            name: &series.name,
            stroke: Stroke {
                colour: series.colour.unwrap_or(PALETTE[index % PALETTE.len()]),
                width: 1.8,
                dash: (series.line == Line::Dashed).then_some([6.0, 3.5]),
            },
            marker: series.markers.then_some(marker),
        });
    }
    styles
}

#[derive(Debug, Clone, Copy)]
enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
}

impl Marker {
    const ALL: [Self; 4] = [Self::Circle, Self::Square, Self::Triangle, Self::Diamond];

    /// The outline around a centre. All markers have about the same area.
    fn outline(self, (x, y): Point) -> Outline {
        let corners: &[Point] = match self {
            Self::Circle => return Outline::Circle((x, y), MARKER_RADIUS),
            Self::Square => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            Self::Triangle => &[(0.0, -1.25), (1.15, 0.8), (-1.15, 0.8)],
            Self::Diamond => &[(0.0, -1.3), (1.1, 0.0), (0.0, 1.3), (-1.1, 0.0)],
        };
        let corner = |(dx, dy): &Point| (x + MARKER_RADIUS * dx, y + MARKER_RADIUS * dy);
        Outline::Polygon(corners.iter().map(corner).collect())
    }
}

/// The visible part of a panel.
struct Plot {
    area: Area,
    x: Range,
    y: Range,
}

impl Plot {
    /// Position of a point, if the axes can show it.
    fn place(&self, (x, y): Point) -> Option<Point> {
        let (x, y) = self.area.at(self.x.place(x)?, self.y.place(y)?);
        Some((x.clamp(-FAR, FAR), y.clamp(-FAR, FAR)))
    }
}

impl Scene {
    fn text(&mut self, text: &str, font: Font, at: Point, anchor: Anchor) {
        if !text.is_empty() {
            self.items.push(Item::Text(Text { text: text.into(), font, at, anchor }));
        }
    }

    fn line(&mut self, points: Vec<Point>, stroke: Stroke, clip: Option<Area>) {
        self.items.push(Item::Shape(Shape { outline: Outline::Line(points), fill: None, stroke: Some(stroke), clip }));
    }

    fn marker(&mut self, marker: Marker, centre: Point, colour: [u8; 3]) {
        let rim = Stroke { colour: WHITE, width: 0.8, dash: None };
        self.items.push(Item::Shape(Shape {
            outline: marker.outline(centre),
            fill: Some((colour, 1.0)),
            stroke: Some(rim),
            clip: None,
        }));
    }

    /// Adds the legend below the present scene, in as many rows as it needs.
    fn legend(&mut self, styles: &[Style]) {
        let named: Vec<&Style> = styles.iter().filter(|s| !s.name.is_empty()).collect();
        let entry = |style: &Style| SAMPLE + LEGEND_GAPS[0] + text_width(style.name, LEGEND) + LEGEND_GAPS[1];
        let row_width = |row: &[&Style]| row.iter().map(|s| entry(s)).sum::<f64>();
        let available = self.width - 2.0 * MARGIN + LEGEND_GAPS[1];
        // The fewest rows of equally many entries.
        let per_row = (1..=named.len())
            .map(|rows| named.len().div_ceil(rows))
            .find(|&count| count == 1 || named.chunks(count).all(|row| row_width(row) <= available));
        for row in named.chunks(per_row.unwrap_or(1)) {
            let mut left = 0.5 * (self.width - row_width(row) + LEGEND_GAPS[1]);
            let middle = self.height + 0.5 * LEGEND_ROW;
            for style in row {
                let right = left + SAMPLE;
                self.line(vec![(left, middle), (right, middle)], style.stroke, None);
                if let Some(marker) = style.marker {
                    self.marker(marker, (left + 0.5 * SAMPLE, middle), style.stroke.colour);
                }
                let at = (right + LEGEND_GAPS[0], middle + 0.36 * LEGEND.size);
                self.text(style.name, LEGEND, at, Anchor::Start);
                left += entry(style);
            }
            self.height += LEGEND_ROW;
        }
        if !named.is_empty() {
            self.height += 8.0;
        }
    }

    fn panel(&mut self, panel: &Panel, styles: &[Style], area: Area) {
        let points = || panel.series.iter().flat_map(|series| &series.points);
        let x = Range::new(&panel.x, points().map(|point| point.0));
        let y = Range::new(&panel.y, panel.series.iter().flat_map(heights));
        let title_height = if panel.title.is_empty() { 4.0 } else { 22.0 };
        let label_height = |label: &str| if label.is_empty() { 0.0 } else { 19.0 };
        let below = TICK.size + 9.0 + label_height(&panel.x.label);
        let height = (area.height - title_height - below).max(1.0);
        let y_ticks = y.ticks((height / 45.0) as usize);
        let widths = labelled(&y_ticks).map(|(_, label)| text_width(label, TICK));
        let left = area.left + label_height(&panel.y.label) + widths.fold(0.0, f64::max) + 8.0;
        let inner = Area {
            left,
            top: area.top + title_height,
            // Half of the last tick label may protrude on the right.
            width: (area.right() - left - 8.0).max(1.0),
            height,
        };
        let x_ticks = x.ticks((inner.width / 60.0) as usize);
        self.grid(&x_ticks, &y_ticks, inner);

        let (middle, centre) = inner.at(0.5, 0.5);
        let above = (middle, area.top + 14.0);
        self.text(&panel.title, PANEL_TITLE, above, Anchor::Middle);
        let below = (middle, area.bottom() - 3.0);
        self.text(&panel.x.label, LABEL, below, Anchor::Middle);
        let beside = (area.left + LABEL.size - 1.0, centre);
        self.text(&panel.y.label, LABEL, beside, Anchor::MiddleUpward);
        for (place, label) in labelled(&x_ticks) {
            let (x, y) = inner.at(place, 0.0);
            self.text(label, TICK, (x, y + TICK.size + 4.0), Anchor::Middle);
        }
        for (place, label) in labelled(&y_ticks) {
            let (x, y) = inner.at(0.0, place);
            self.text(label, TICK, (x - 5.0, y + 0.36 * TICK.size), Anchor::End);
        }

        let plot = Plot { area: inner, x, y };
        if !points().any(|&point| plot.place(point).is_some()) {
            self.text("no data", LABEL, (middle, centre), Anchor::Middle);
        }
        let style = |series: &Series| styles.iter().find(|style| style.name == series.name);
        let styled = || panel.series.iter().filter_map(|s| Some((s, style(s)?)));
        styled().for_each(|(series, style)| self.band(series, style, &plot));
        styled().for_each(|(series, style)| self.series(series, style, &plot));
    }

    /// Adds grid lines at the ticks, and a frame.
    fn grid(&mut self, x_ticks: &[Tick], y_ticks: &[Tick], area: Area) {
        let stroke = |colour| Stroke { colour, width: 0.8, dash: None };
        for (major, colour) in [(false, MINOR_GRID), (true, GRID)] {
            let of_kind = |tick: &&Tick| tick.label.is_some() == major;
            for tick in x_ticks.iter().filter(of_kind) {
                let ends = [0.0, 1.0].map(|y| area.at(tick.place, y));
                self.line(ends.to_vec(), stroke(colour), None);
            }
            for tick in y_ticks.iter().filter(of_kind) {
                let ends = [0.0, 1.0].map(|x| area.at(x, tick.place));
                self.line(ends.to_vec(), stroke(colour), None);
            }
        }
        let corners = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)];
        let frame = corners.map(|(x, y)| area.at(x, y)).to_vec();
        self.line(frame, stroke(FRAME), None);
    }

    fn band(&mut self, series: &Series, style: &Style, plot: &Plot) {
        let ends = |(&(x, y), &half): (&Point, &f64)| {
            let upper = plot.place((x, y + half))?;
            // A lower end that the axis cannot show is below everything visible.
            let lower = plot.place((x, y - half)).unwrap_or((upper.0, FAR));
            (half >= 0.0).then_some((upper, lower))
        };
        let ends: Vec<_> = series.points.iter().zip(&series.band).map(ends).collect();
        for piece in ends.split(Option::is_none).filter(|piece| piece.len() > 1) {
            let upper = piece.iter().flatten().map(|(upper, _)| *upper);
            let lower = piece.iter().flatten().map(|(_, lower)| *lower);
            self.items.push(Item::Shape(Shape {
                outline: Outline::Polygon(upper.chain(lower.rev()).collect()),
                fill: Some((style.stroke.colour, BAND_OPACITY)),
                stroke: None,
                clip: Some(plot.area),
            }));
        }
    }

    fn series(&mut self, series: &Series, style: &Style, plot: &Plot) {
        let places: Vec<_> = series.points.iter().map(|&point| plot.place(point)).collect();
        let pieces = || places.split(Option::is_none).map(|piece| piece.iter().flatten().copied());
        for piece in pieces() {
            if piece.clone().count() > 1 {
                self.line(piece.collect(), style.stroke, Some(plot.area));
            }
        }
        for piece in pieces() {
            // A point between two gaps is visible by its marker only.
            let alone = piece.clone().count() == 1;
            if let Some(marker) = style.marker.or(alone.then_some(Marker::Circle)) {
                for point in piece.filter(|point| plot.area.contains(*point)) {
                    self.marker(marker, point, style.stroke.colour);
                }
            }
        }
    }
}

/// All heights that a series reaches, with its band.
fn heights(series: &Series) -> impl Iterator<Item = f64> + '_ {
    let halves = series.band.iter().copied().chain(std::iter::repeat(0.0));
    let each = series.points.iter().zip(halves);
    each.flat_map(|(&(_, y), half)| if half.is_finite() { [y - half, y, y + half] } else { [y; 3] })
}

fn labelled(ticks: &[Tick]) -> impl Iterator<Item = (f64, &str)> {
    ticks.iter().filter_map(|tick| Some((tick.place, tick.label.as_deref()?)))
}
