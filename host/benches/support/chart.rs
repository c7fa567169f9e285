//! Panels of lines over one axis of time or size, as SVG. Knows no measurement.

#![allow(dead_code, reason = "each benchmark has one kind of axes")]

use plotters::prelude::*;
use std::error::Error;
use std::ops::Range;
use std::path::Path;

const WIDTH: u32 = 960;
const HEIGHT: u32 = 210;
/// Numbers along the axes of time and of values; as many as plotters has, and fewer.
const TIMES: usize = 11;
const VALUES: usize = 5;
const FONT: &str = "sans-serif";
const GREY: RGBColor = RGBColor(110, 110, 110);
const COLOURS: [RGBColor; 3] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
];

/// One line: what it shows, and its points.
pub(crate) struct ChartLine {
    /// Its name in the legend.
    pub name: &'static str,
    /// By time in seconds, or by size; in their order.
    pub points: Vec<(f64, f64)>,
}

/// Lines that share a scale.
pub(crate) struct Panel {
    /// Above it, with the unit.
    pub title: &'static str,
    /// At most three.
    pub lines: Vec<ChartLine>,
}

/// What the axes of all panels are.
pub(crate) enum Axes<'a> {
    /// Seconds from 0 to the end, and values from 0. The marks are times with what begins there.
    Time(&'a [(f64, &'a str)], f64),
    /// Sizes and values, both above 0, by their logarithms.
    Logarithms,
}

impl Axes<'_> {
    /// Where a size or a value is drawn.
    fn place(&self, at: f64) -> f64 {
        match self {
            Self::Time(..) => at,
            Self::Logarithms => at.log10(),
        }
    }

    fn marks(&self) -> &[(f64, &str)] {
        match self {
            Self::Time(marks, _) => marks,
            Self::Logarithms => &[],
        }
    }

    /// Where no line is, mostly.
    fn legend(&self) -> SeriesLabelPosition {
        match self {
            Self::Time(..) => SeriesLabelPosition::MiddleRight,
            Self::Logarithms => SeriesLabelPosition::UpperRight,
        }
    }

    /// At most how many numbers stand along an axis of this range.
    fn labels(&self, range: &Range<f64>, usual: usize) -> usize {
        let powers = std::iter::successors(Some(range.start), |power| Some(power + 1.0));
        match self {
            Self::Time(..) => usual,
            Self::Logarithms => powers.take_while(|power| *power <= range.end).count(),
        }
    }

    fn ranges(&self, panel: &Panel) -> (Range<f64>, Range<f64>) {
        let points = || panel.lines.iter().flat_map(|line| &line.points);
        match self {
            Self::Time(_, end) => {
                let most = points().map(|(_, value)| *value).fold(1.0, f64::max);
                (0.0..*end, 0.0..most * 1.15)
            }
            // Whole powers of ten.
            Self::Logarithms => (
                powers(points().map(|(at, _)| self.place(*at))),
                powers(points().map(|(_, value)| self.place(*value))),
            ),
        }
    }

    /// What stands below a place of the horizontal axis.
    fn below(&self, place: f64) -> String {
        match self {
            Self::Time(..) => format!("{place:.0} s"),
            Self::Logarithms => self.beside(place),
        }
    }

    /// What stands beside a place of the vertical axis.
    fn beside(&self, place: f64) -> String {
        match self {
            // As the values are.
            Self::Time(..) => format!("{place:.1}"),
            Self::Logarithms => format!("{}", 10_f64.powf(place)),
        }
    }
}

fn powers(places: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let least = places.clone().fold(f64::INFINITY, f64::min).floor();
    let most = places.fold(f64::NEG_INFINITY, f64::max).ceil();
    least..most.max(least + 1.0)
}

/// Writes the panels below each other.
///
/// # Errors
/// What the file or the drawing says.
pub(crate) fn draw(path: &Path, panels: &[Panel], axes: &Axes<'_>) -> Result<(), Box<dyn Error>> {
    let height = HEIGHT * u32::try_from(panels.len())?;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, panel) in root.split_evenly((panels.len(), 1)).iter().zip(panels) {
        let (across, up) = axes.ranges(panel);
        let (end, most) = (across.end, up.end);
        let labels = [axes.labels(&across, TIMES), axes.labels(&up, VALUES)];
        let mut chart = ChartBuilder::on(area)
            .caption(panel.title, (FONT, 15))
            .margin(8)
            .margin_right(16)
            .x_label_area_size(24)
            .y_label_area_size(56)
            .build_cartesian_2d(across, up)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(228, 228, 228))
            .x_labels(labels[0])
            .y_labels(labels[1])
            .label_style((FONT, 12))
            .x_label_formatter(&|at| axes.below(*at))
            .y_label_formatter(&|at| axes.beside(*at))
            .draw()?;
        for (at, name) in axes.marks() {
            let foot_and_head = vec![(*at, 0.0), (*at, most)];
            chart.draw_series([PathElement::new(foot_and_head, GREY)])?;
            let place = (*at + end / 200.0, most * 0.98);
            let style = (FONT, 12).into_font().color(&GREY);
            chart.draw_series([Text::new((*name).to_owned(), place, style)])?;
        }
        for (line, colour) in panel.lines.iter().zip(COLOURS) {
            let points = line.points.iter();
            let points = points.map(|(at, value)| (axes.place(*at), axes.place(*value)));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                .label(line.name)
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(axes.legend())
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(200, 200, 200))
            .label_font((FONT, 12))
            .draw()?;
    }
    root.present()?;
    Ok(())
}
