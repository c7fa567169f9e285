//! Panels of lines over one time axis, as SVG. Knows no measurement.

use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

const WIDTH: u32 = 960;
const HEIGHT: u32 = 210;
const FONT: &str = "sans-serif";
const GREY: RGBColor = RGBColor(110, 110, 110);
const COLOURS: [RGBColor; 3] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
];

/// One line: what it shows, and its points by time in seconds.
pub(crate) struct ChartLine {
    /// Its name in the legend.
    pub name: &'static str,
    /// In the order of time.
    pub points: Vec<(f64, f64)>,
}

/// Lines that share a scale.
pub(crate) struct Panel {
    /// Above it, with the unit.
    pub title: &'static str,
    /// At most three.
    pub lines: Vec<ChartLine>,
}

/// Writes the panels below each other; `marks` are times with what begins there.
///
/// # Errors
/// What the file or the drawing says.
pub(crate) fn draw(
    path: &Path,
    panels: &[Panel],
    marks: &[(f64, &str)],
    end: f64,
) -> Result<(), Box<dyn Error>> {
    let height = HEIGHT * u32::try_from(panels.len())?;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, panel) in root.split_evenly((panels.len(), 1)).iter().zip(panels) {
        let values = panel.lines.iter().flat_map(|line| &line.points);
        let most = values.map(|(_, value)| *value).fold(1.0, f64::max) * 1.15;
        let mut chart = ChartBuilder::on(area)
            .caption(panel.title, (FONT, 15))
            .margin(8)
            .margin_right(16)
            .x_label_area_size(24)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, 0.0..most)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(228, 228, 228))
            .y_labels(5)
            .label_style((FONT, 12))
            .x_label_formatter(&|at| format!("{at:.0} s"))
            .draw()?;
        for (at, name) in marks {
            let foot_and_head = vec![(*at, 0.0), (*at, most)];
            chart.draw_series([PathElement::new(foot_and_head, GREY)])?;
            let place = (*at + end / 200.0, most * 0.98);
            let style = (FONT, 12).into_font().color(&GREY);
            chart.draw_series([Text::new((*name).to_owned(), place, style)])?;
        }
        for (line, colour) in panel.lines.iter().zip(COLOURS) {
            let points = line.points.iter().copied();
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                .label(line.name)
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleRight)
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(200, 200, 200))
            .label_font((FONT, 12))
            .draw()?;
    }
    root.present()?;
    Ok(())
}
