//! Charts: well-formed files, reproducible bytes, robustness against unusual data.

use gemcnn_view::plot::{Axis, Chart, Line, PALETTE, Panel, Series};

fn decay(rate: f64) -> impl Iterator<Item = (f64, f64)> {
    (1..=10).map(move |depth| (f64::from(depth), (-rate * f64::from(depth)).exp()))
}

fn chart() -> Chart {
    Chart::new("Errors & <bounds>")
        .panel(
            Panel::new("Over depth", Axis::linear("depth"), Axis::log("error, 10⁻³"))
                .series(Series::new("first", decay(1.0)).band([0.001; 10]))
                .series(Series::new("second", decay(0.5)).line(Line::Dashed)),
        )
        .panel(
            Panel::new("Over samples", Axis::log("samples"), Axis::log("error"))
                .series(Series::new("second", decay(0.2)).line(Line::Dashed)),
        )
}

/// Size of a picture and its pixels, three bytes each.
fn pixels(png: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(info.color_type, png::ColorType::Rgb);
    (info.width, info.height, pixels)
}

#[test]
fn both_outputs_show_the_chart_and_repeat_bit_by_bit() {
    let svg = chart().to_svg();
    assert_eq!(svg, chart().to_svg());
    assert!(svg.contains("Errors &amp; &lt;bounds&gt;"));
    assert_eq!(svg.matches(">second<").count(), 1, "one legend for all");
    assert!(svg.contains("stroke-dasharray"));
    let opened = svg.matches("<text").count();
    assert_eq!(opened, svg.matches("</text>").count());

    let png = chart().to_png();
    assert_eq!(png, chart().to_png());
    let (width, height, pixels) = pixels(&png);
    assert_eq!(width, 1600);
    assert_eq!(pixels.len(), 3 * (width * height) as usize);
    assert_eq!(&pixels[..3], [255; 3], "white around");
    for colour in &PALETTE[..2] {
        let found = pixels.chunks(3).filter(|pixel| pixel == colour);
        assert!(found.count() > 100, "{colour:?}");
    }
}

#[test]
fn odd_data_leaves_gaps_and_no_panic() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -1.0, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1.0];
    for axis in [Axis::linear, Axis::log] {
        for limits in [None, Some((0.5, 1.5)), Some((1.0, f64::NAN))] {
            let axis = || match limits {
                None => axis("axis"),
                Some((low, high)) => axis("axis").limits(low, high),
            };
            let points = || odd.into_iter().flat_map(|x| odd.map(|y| (x, y)));
            let chart = Chart::new("").panel(
                Panel::new("odd", axis(), axis())
                    .series(Series::new("", points()).band(odd))
                    .series(Series::new("one", [(1.0, 1.0)]))
                    .series(Series::new("none", [])),
            );
            assert!(!chart.to_svg().contains("NaN"));
            assert!(!chart.to_svg().contains("inf"));
            pixels(&chart.to_png());
        }
    }
    let panel = || Panel::new("", Axis::linear(""), Axis::log(""));
    for empty in [Chart::new("nothing"), Chart::new("").panel(panel())] {
        pixels(&empty.to_png());
    }
    assert!(Chart::new("").panel(panel()).to_svg().contains("no data"));
    for size in [0, u32::MAX] {
        Chart::new("").width(size).panel_height(size).to_svg();
    }
}

#[test]
fn a_gap_cuts_the_line_and_a_lone_point_has_a_marker() {
    let mut points: Vec<(f64, f64)> = (0..60).map(|x| (f64::from(x), 1.0)).collect();
    let lines = |points: &[(f64, f64)]| {
        let panel = Panel::new("", Axis::linear(""), Axis::linear("")).series(Series::new("", points.iter().copied()));
        let svg = Chart::new("").panel(panel).to_svg();
        let clipped = svg.lines().filter(|line| line.contains("clip-path=\"url"));
        (clipped.count(), svg.matches("<circle").count())
    };
    assert_eq!(lines(&points), (1, 0));
    points[20].1 = f64::NAN;
    assert_eq!(lines(&points), (2, 0));
    points[22].1 = f64::NAN;
    assert_eq!(lines(&points), (2, 1));
}

#[test]
fn files_have_both_endings() {
    let directory = tempfile::tempdir().unwrap();
    // A dot in the stem does not start an extension.
    let paths = chart().write(&directory.path().join("figure.1")).unwrap();
    assert_eq!(paths[0], directory.path().join("figure.1.png"));
    assert_eq!(std::fs::read(&paths[0]).unwrap(), chart().to_png());
    assert_eq!(std::fs::read_to_string(&paths[1]).unwrap(), chart().to_svg());
    let nowhere = directory.path().join("missing/figure");
    let error = chart().write(&nowhere).unwrap_err();
    assert_eq!(error.path, directory.path().join("missing/figure.png"));
}
