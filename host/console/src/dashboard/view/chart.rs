//! Charts. The server draws them, so that they work without JavaScript; a script replaces them with
//! charts that follow the stream.

use super::super::history::{Point, Span};
use super::super::links::Links;
use super::super::sampler::Sampler;
use super::Visit;
use maud::{Markup, html};

/// The maximum number of points that the server draws for a line.
const DRAWN: usize = 180;
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// A line of a chart: its name, its class, and its value at a point.
type Line = (&'static str, &'static str, fn(&Point) -> Option<f64>);

/// A chart.
struct Chart {
    /// The columns that the script shows.
    kind: &'static str,
    title: &'static str,
    lines: &'static [Line],
}

const CHARTS: [Chart; 3] = [
    Chart {
        kind: "rate",
        title: "Messages/s",
        lines: &[
            ("received", "line-b", |point| Some(point.received.into())),
            ("done", "line-a", |point| Some(point.done.into())),
            ("failed", "line-bad", |point| Some(point.failed.into())),
        ],
    },
    Chart {
        kind: "time",
        title: "Attempt duration",
        lines: &[
            ("p50", "line-a", Point::median_s),
            ("p99", "line-c", Point::p99_s),
        ],
    },
    Chart {
        kind: "waiting",
        title: "Backlog",
        lines: &[("waiting", "line-d", Point::waiting)],
    },
];

/// Renders the charts of one queue, or of all queues together, over a span.
pub(in super::super) fn charts(visit: &Visit, queue: Option<&str>, span: Span) -> Markup {
    let sampler = visit.sampler();
    let Some(points) = sampler.points(queue, span) else {
        return html! {};
    };
    let links = visit.links();
    html! {
        section.charts aria-label="Charts" {
            div.spans {
                @for one in Span::ALL {
                    a href=(span_link(visit, queue, one)) aria-current=[(one == span).then_some("true")] {
                        (one.label())
                    }
                }
            }
            div.row data-points=(points_link(links, queue, span)) data-step=(span.step_s()) data-over=(span.points() as u64 * span.step_s()) {
                @for chart in &CHARTS {
                    figure.chart data-chart=(chart.kind) {
                        figcaption {
                            (chart.title)
                            @for (name, class, _) in chart.lines { span.key.(class) { (name) } }
                        }
                        div.plot { (drawn(chart, &points, span)) }
                    }
                }
            }
        }
    }
}

/// Returns the address of this page with another span.
fn span_link(visit: &Visit, queue: Option<&str>, span: Span) -> String {
    let span = ("span", span.label());
    if let Some(queue) = queue {
        return visit.links().to("/ui/queue", &[("name", queue), span]);
    }
    let kept = ["q", "after"]
        .map(|name| (name, visit.parameters.get(name)))
        .into_iter()
        .filter(|(_, value)| !value.is_empty());
    let parameters: Vec<(&str, &str)> = kept.chain([span]).collect();
    visit.links().to("/ui", &parameters)
}

fn points_link(links: &Links, queue: Option<&str>, span: Span) -> String {
    let span = ("span", span.label());
    match queue {
        None => links.to("/ui/points", &[span]),
        Some(queue) => links.to("/ui/points", &[("queue", queue), span]),
    }
}

fn drawn(chart: &Chart, points: &[(u64, Point)], span: Span) -> Markup {
    let values = points
        .iter()
        .flat_map(|(_, point)| chart.lines.iter().filter_map(|(_, _, value)| value(point)));
    let most = values.fold(0.0_f64, f64::max);
    // The chart spans the existing points, so that a process that started a minute ago fills it.
    let oldest = points.first().map_or(0, |(ago, _)| *ago);
    let over = oldest.max(60 * span.step_s()) as f64;
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
            aria-label=(chart.title) {
            @for (_, class, value) in chart.lines {
                path.(class) d=(path(points, *value, most, over)) vector-effect="non-scaling-stroke" {}
            }
        }
    }
}

/// Draws a line of at most `DRAWN` points, each the maximum of the points that it represents.
fn path(points: &[(u64, Point)], value: fn(&Point) -> Option<f64>, most: f64, over: f64) -> String {
    let each = points.len().div_ceil(DRAWN).max(1);
    let mut text = String::new();
    let mut is_open = false;
    for some in points.chunks(each) {
        let known = some.iter().filter_map(|(_, point)| value(point));
        let highest = known.reduce(f64::max);
        let Some((highest, (ago, _))) = highest.zip(some.last()) else {
            is_open = false;
            continue;
        };
        let x = WIDTH * (1.0 - *ago as f64 / over);
        let y = HEIGHT - 2.0 - (HEIGHT - 6.0) * if most > 0.0 { highest / most } else { 0.0 };
        let verb = if is_open { 'L' } else { 'M' };
        text.push_str(&format!("{verb}{x:.1} {y:.1}"));
        is_open = true;
    }
    text
}

/// Renders a row's chart of the messages that a queue handled in the last minute, in steps of two
/// seconds.
pub(in super::super) fn spark(sampler: &Sampler, queue: &str) -> Markup {
    const POINTS: usize = 30;
    let points = sampler
        .points(Some(queue), Span::Quarter)
        .unwrap_or_default();
    let recent = &points[points.len().saturating_sub(2 * POINTS)..];
    let rates: Vec<f32> = recent
        .chunks(2)
        .map(|pair| pair.iter().map(|(_, point)| point.done).sum())
        .collect();
    let most = rates.iter().copied().fold(0.0_f32, f32::max);
    if most == 0.0 {
        return html! {};
    }
    let mut text = String::new();
    for (at, rate) in rates.iter().enumerate() {
        let x = 3 * (POINTS - rates.len() + at);
        let y = 15.0 - 14.0 * rate / most;
        text.push_str(&format!("{}{x} {y:.0}", if at == 0 { 'M' } else { 'L' }));
    }
    html! { svg.spark viewBox="0 0 90 16" aria-hidden="true" { path d=(text) {} } }
}

#[cfg(test)]
mod tests {
    use super::super::super::history::{History, Reading};
    use super::*;
    use dispatcher_core::clock::BootInstant;
    use std::time::Duration;

    fn at(second: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(second))
    }

    #[test]
    fn a_line_has_few_points_and_a_gap_where_nothing_is_known() {
        let mut history = History::new(at(0), Reading::default());
        for second in 1..=900 {
            let waiting = (second <= 300 || second > 600).then_some(second);
            history.record(
                at(second),
                Reading {
                    waiting,
                    ..Reading::default()
                },
            );
        }
        let points = history.points(at(900), Span::Quarter);
        let line = path(&points, Point::waiting, 900.0, 900.0);
        assert_eq!(line.matches('M').count(), 2, "{line}");
        assert!(line.matches('L').count() < DRAWN);
        assert_eq!(path(&[], Point::waiting, 0.0, 900.0), "");
    }
}
