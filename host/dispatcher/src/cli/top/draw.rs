//! Draws the screen of `dispatcher top`, within 80 columns.

use super::model::{Holdings, ROWS, Tab, TopModel};
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::escape::escape_control_characters;
use dispatcher_operate::fleet::FleetProcess;
use dispatcher_operate::operations::{
    DepthView, OutcomeView, QueueView, RecentWork, RunningView, TenantView,
};
use dispatcher_operate::schema::Count;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState, Wrap};

const KEYS: &str =
    " q quit  Tab list  \u{2191}\u{2193} select  d depths  P pause  C cancel  D stop  ? help";

const HELP: [&str; 13] = [
    "1 to 5, Tab   Queues, Running, Outcomes, Fleet, Tenants",
    "\u{2191} \u{2193}, j k      select a row; PgUp, PgDn, Home, End",
    "d             show or hide the depths of queues:",
    "              on SQS each costs a billed call",
    "?             this help",
    "q, Esc        quit",
    "",
    "These keys change something and ask first:",
    "P             pause or resume the selected queue",
    "C             cancel the selected attempt",
    "D             stop the process, as SIGTERM does",
    "",
    "Any key closes this.",
];

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame, model: &TopModel, now: BootInstant) {
    let [head, counts, tabs, list, details, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(if model.overview.paused.is_empty() {
            4
        } else {
            5
        }),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(if model.question.is_some() { 4 } else { 2 }),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(head_line(model, now), head);
    frame.render_widget(Paragraph::new(count_lines(model)), counts);
    frame.render_widget(tab_line(model), tabs);
    draw_list(frame, model, list);
    frame.render_widget(detail_lines(model), details);
    frame.render_widget(foot_line(model, now), foot);
    if model.shows_help {
        draw_help(frame);
    }
}

fn head_line(model: &TopModel, now: BootInstant) -> Line<'static> {
    if let Some(trouble) = model.trouble(now) {
        return Line::from(vec![
            Span::from(" dispatcher ").bold(),
            Span::from(shown(&trouble)).fg(Color::Red),
        ]);
    }
    let process = &model.overview.process;
    let mut spans = vec![
        Span::from(format!(" dispatcher {}", process.version)).bold(),
        Span::from(format!(
            "  {}  up {}  ",
            shown(&process.id),
            duration(process.uptime_s)
        )),
    ];
    if process.state == "draining" {
        spans.push(Span::from("stopping").fg(Color::Yellow));
    } else if let Some(first) = process.not_ready.first() {
        let state = if process.ready {
            "ready in part"
        } else {
            "not ready"
        };
        let (what, reason) = (shown(&first.what), shown(&first.reason));
        let why = format!("{state}: {what}: {reason}");
        spans.push(Span::from(why).fg(Color::Yellow));
    } else if !process.state.is_empty() {
        spans.push(Span::from("ready").fg(Color::Green));
    }
    spans.push(Span::from(format!("  {}", model.place)).dim());
    Line::from(spans)
}

fn count_lines(model: &TopModel) -> Vec<Line<'static>> {
    let overview = &model.overview;
    let messages = &overview.messages;
    let rates = model.rates.map_or_else(
        || " \u{2026}".to_owned(),
        |rates| {
            format!(
                " received {}/s  done {}/s  failed {}/s  running {}  leases {}",
                rate(rates.received),
                rate(rates.done),
                rate(rates.failed),
                overview.running,
                overview.leases
            )
        },
    );
    let totals = format!(
        " since start: {} received, {} done, {} retried, {} dead-lettered, {} lost",
        messages.received, messages.done, messages.retried, messages.dead_lettered, messages.lost
    );
    let recent = overview.recent.as_ref().map(work).unwrap_or_default();
    let mut lines = vec![
        Line::from(rates),
        Line::from(format!(" {recent}")),
        Line::from(format!(" {}", held(model))),
        Line::from(totals).dim(),
    ];
    if let [first, more @ ..] = &overview.paused[..] {
        let more = match more.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let why = format!(" paused, not received from here: {}{more}", shown(first));
        lines.push(Line::from(why).fg(Color::Yellow));
    }
    lines
}

/// Describes the messages in all queues, as far as depths are known.
fn held(model: &TopModel) -> String {
    let Some(holdings) = model.holdings() else {
        return "backlog: d shows the depths of queues".to_owned();
    };
    let Holdings {
        queues,
        waiting,
        oldest_s,
        dead,
        done,
    } = holdings;
    let drains = match waiting {
        0 => "0s".to_owned(),
        _ if done > 0.0 => duration(waiting as f64 / done),
        _ => "never".to_owned(),
    };
    let oldest = duration_or_dash(oldest_s);
    let all = model.overview.queues;
    let partial = if queues as u64 == all.0 {
        String::new()
    } else {
        format!("  ({queues} of {all} queues)")
    };
    format!("backlog {waiting}  oldest {oldest}  drains in {drains}  dead letters {dead}{partial}")
}

/// Describes the attempts and calls of the last minute.
fn work(work: &RecentWork) -> String {
    let dollars = work
        .dollars_per_day
        .map(|dollars| format!("  ${dollars:.4}/day"));
    format!(
        "p50 {}  p99 {}  calls {}/s{}",
        duration_or_dash(work.attempt_p50_s),
        duration_or_dash(work.attempt_p99_s),
        rate(work.calls_per_second),
        dollars.unwrap_or_default()
    )
}

/// Returns the question and the messages that it affects, or details of the selected row.
fn detail_lines(model: &TopModel) -> Paragraph<'static> {
    let lines = match &model.question {
        Some(question) => vec![
            Line::from(format!(" {}", shown(&question.text))).bold(),
            Line::from(format!(" {}", shown(&question.touches))),
        ],
        None => vec![Line::from(detail(model).unwrap_or_default())],
    };
    let colour = match &model.question {
        Some(_) => Color::Yellow,
        None => Color::Reset,
    };
    Paragraph::new(lines).wrap(Wrap { trim: false }).fg(colour)
}

/// Returns details of the selected row that do not fit in the row.
fn detail(model: &TopModel) -> Option<String> {
    let Some(at) = model.selected() else {
        return Some(" The selected row is gone; up or down selects another.".to_owned());
    };
    match model.tab {
        Tab::Queues => {
            let queue = model.queues.get(at)?;
            let recent = queue.recent.as_ref().map(work).unwrap_or_default();
            let depth = queue.depth.as_ref();
            let delayed = depth
                .and_then(|depth| depth.delayed.filter(|delayed| delayed.0 > 0))
                .map(|delayed| format!("  {delayed} delayed"));
            let error = depth
                .and_then(|depth| depth.error.as_ref())
                .map(|error| format!("  {}", shown(error)));
            Some(format!(
                " {}: {recent}{}{}",
                shown(&queue.queue),
                delayed.unwrap_or_default(),
                error.unwrap_or_default()
            ))
        }
        Tab::Running => {
            let attempt = model.running.get(at)?;
            let stuck = attempt
                .stuck
                .as_deref()
                .map(|why| format!("; stuck: {why}"));
            Some(format!(
                " attempt {} of {}{}",
                shown(&attempt.id),
                shown(&attempt.queue),
                shown(&stuck.unwrap_or_default())
            ))
        }
        Tab::Outcomes => {
            let outcome = model.outcomes.get(at)?;
            let reason = outcome.reason.as_deref().or(outcome.reason_kind.as_deref());
            let (queue, reason) = (shown(&outcome.queue), reason.map(shown));
            Some(format!(" {queue}: {}", reason.unwrap_or_default()))
        }
        Tab::Fleet => {
            let fleet = &model.fleet;
            let old = fleet.error.as_ref().map(|why| {
                let since = fleet.old_since.as_deref().unwrap_or_default();
                format!("old since {since}: {}", shown(why))
            });
            let differs = fleet.differences.first().map(|one| shown(&one.line()));
            let line = old.or(differs);
            Some(format!(" {}", line.unwrap_or_else(|| fleet.scope_line())))
        }
        Tab::Tenants => {
            let (queue, tenant) = model.tenants.get(at)?;
            let (weight, limited) = (tenant.weight, tenant.limited);
            Some(format!(
                " {}: weight {weight}; {limited} held for a limit",
                shown(queue)
            ))
        }
    }
}

fn tab_line(model: &TopModel) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, tab) in (1..).zip(Tab::ALL) {
        let count = match tab {
            Tab::Queues => format!(" ({})", model.overview.queues),
            Tab::Running => format!(" ({})", model.overview.running),
            Tab::Outcomes => String::new(),
            Tab::Fleet if model.fleet.processes.is_empty() => String::new(),
            Tab::Fleet => format!(" ({})", model.fleet.processes.len()),
            Tab::Tenants if model.tenants.is_empty() => String::new(),
            Tab::Tenants => format!(" ({})", model.tenants.len()),
        };
        let title = format!(" {number} {}{count} ", tab.title());
        let style = if tab == model.tab {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        spans.push(Span::styled(title, style));
    }
    if model.rows() >= ROWS {
        spans.push(Span::from(format!("  the first {ROWS}")).fg(Color::Yellow));
    }
    if model.tab == Tab::Queues && model.calls > 0 {
        spans.push(Span::from(format!("  {} calls for depths", model.calls)).dim());
    }
    Line::from(spans)
}

fn draw_list(frame: &mut Frame, model: &TopModel, area: Rect) {
    let (header, widths, rows): (&[&str], &[Constraint], Vec<Row>) = match model.tab {
        Tab::Queues => (
            &QUEUE_HEADER,
            &QUEUE_WIDTHS,
            model.queues.iter().map(queue_row).collect(),
        ),
        Tab::Running => (
            &RUNNING_HEADER,
            &RUNNING_WIDTHS,
            model.running.iter().map(running_row).collect(),
        ),
        Tab::Outcomes => (
            &OUTCOME_HEADER,
            &OUTCOME_WIDTHS,
            model.outcomes.iter().map(outcome_row).collect(),
        ),
        Tab::Fleet => (
            &FLEET_HEADER,
            &FLEET_WIDTHS,
            model.fleet.processes.iter().map(fleet_row).collect(),
        ),
        Tab::Tenants => (
            &TENANT_HEADER,
            &TENANT_WIDTHS,
            model.tenants.iter().map(tenant_row).collect(),
        ),
    };
    if rows.is_empty() {
        let nothing = match model.tab {
            Tab::Queues => " No queues.",
            Tab::Running => " No attempt is running.",
            Tab::Outcomes => " Every delivery since the start succeeded.",
            Tab::Fleet => " No process has published its state yet.",
            Tab::Tenants => " No tenants share a queue of this process.",
        };
        frame.render_widget(Line::from(nothing).dim(), area);
        return;
    }
    let header = Row::new(header.iter().map(|title| Cell::from(*title))).bold();
    let table = Table::new(rows, widths.iter().copied())
        .header(header)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(model.selected());
    frame.render_stateful_widget(table, area, &mut state);
}

const QUEUE_HEADER: [&str; 8] = [
    " queue", "waiting", "oldest", "running", "recv/s", "done/s", "fail/s", "dead",
];
const QUEUE_WIDTHS: [Constraint; 8] = [
    Constraint::Min(20),
    Constraint::Length(9),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(7),
];

fn queue_row(queue: &QueueView) -> Row<'static> {
    let mark = if queue.paused { " \u{2016} " } else { " " };
    let depth = queue.depth.clone().unwrap_or_default();
    let waiting = match &depth {
        DepthView { error: Some(_), .. } => "error".to_owned(),
        depth => count(depth.waiting),
    };
    let dead = queue.dead_letter_depth.clone().unwrap_or_default().waiting;
    let rates = queue.per_second.clone().unwrap_or_default();
    let row = Row::new([
        format!("{mark}{}", shown(&queue.queue)),
        waiting,
        depth.oldest_s.map(duration).unwrap_or_default(),
        queue.in_flight.to_string(),
        rate(rates.received),
        rate(rates.done),
        rate(rates.failed),
        count(dead),
    ]);
    if queue.paused {
        row.fg(Color::Yellow)
    } else if dead.is_some_and(|dead| dead.0 > 0) || rates.failed > 0.0 {
        row.fg(Color::Red)
    } else {
        row
    }
}

const RUNNING_HEADER: [&str; 6] = [" message", "queue", "attempt", "age", "lease", "state"];
const RUNNING_WIDTHS: [Constraint; 6] = [
    Constraint::Min(24),
    Constraint::Length(20),
    Constraint::Length(7),
    Constraint::Length(6),
    Constraint::Length(6),
    Constraint::Length(9),
];

fn running_row(attempt: &RunningView) -> Row<'static> {
    let first = attempt.messages.first().cloned().unwrap_or_default();
    let more = match attempt.messages.len() {
        0 | 1 => String::new(),
        all => format!(" +{}", all - 1),
    };
    let least = attempt
        .messages
        .iter()
        .filter_map(|message| message.lease_left_s)
        .reduce(f64::min);
    let state = if attempt.messages.iter().any(|message| message.cancelled) {
        "cancelled"
    } else if attempt.stuck.is_some() {
        "stuck"
    } else {
        ""
    };
    let row = Row::new([
        format!(" {}{more}", shown(&first.id)),
        shown(&attempt.queue),
        first.attempt.to_string(),
        duration(attempt.age_s),
        least.map_or_else(|| "lost".to_owned(), duration),
        state.to_owned(),
    ]);
    if state.is_empty() {
        row
    } else {
        row.fg(Color::Yellow)
    }
}

const OUTCOME_HEADER: [&str; 4] = [" at", "event", "queue", "reason"];
const OUTCOME_WIDTHS: [Constraint; 4] = [
    Constraint::Length(9),
    Constraint::Length(14),
    Constraint::Length(18),
    Constraint::Min(20),
];

fn outcome_row(outcome: &OutcomeView) -> Row<'static> {
    // The time of `2026-11-23T07:31:08.5Z`, without its date and fraction.
    let time: String = outcome.at.chars().skip(11).take(8).collect();
    let reason = outcome.reason.as_deref().or(outcome.reason_kind.as_deref());
    let id = outcome.ids.first().map(|id| format!("{} ", shown(id)));
    let many = match outcome.messages.0 {
        0 | 1 => String::new(),
        messages => format!("{messages}\u{d7} "),
    };
    Row::new([
        format!(" {time}"),
        shown(&outcome.event),
        shown(&outcome.queue),
        format!(
            "{many}{}{}",
            reason
                .map(|reason| shown(reason) + "  ")
                .unwrap_or_default(),
            id.unwrap_or_default()
        ),
    ])
}

const FLEET_HEADER: [&str; 7] = [
    " process", "version", "config", "running", "waiting", "done/s", "fail/s",
];
const FLEET_WIDTHS: [Constraint; 7] = [
    Constraint::Min(20),
    Constraint::Length(9),
    Constraint::Length(12),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(7),
];

fn fleet_row(process: &FleetProcess) -> Row<'static> {
    Row::new([
        format!(" {}", shown(&process.id)),
        shown(&process.version),
        shown(&process.configuration),
        process.running.to_string(),
        process.waiting.to_string(),
        rate(process.done),
        rate(process.failed),
    ])
}

const TENANT_HEADER: [&str; 8] = [
    " tenant", "queue", "waiting", "oldest", "held", "running", "starts/s", "share",
];
const TENANT_WIDTHS: [Constraint; 8] = [
    Constraint::Min(12),
    Constraint::Length(12),
    Constraint::Length(7),
    Constraint::Length(6),
    Constraint::Length(5),
    Constraint::Length(7),
    Constraint::Length(8),
    Constraint::Length(13),
];

fn tenant_row((queue, tenant): &(String, TenantView)) -> Row<'static> {
    let name = match tenant.tenant.as_str() {
        "" => "(no tenant)".to_owned(),
        name => shown(name),
    };
    let state = if tenant.parked { " parked" } else { "" };
    let row = Row::new([
        format!(" {name}"),
        shown(queue),
        tenant
            .waiting
            .map_or_else(|| "-".to_owned(), |count| count.to_string()),
        duration_or_dash(tenant.oldest_s),
        (tenant.held.0 + tenant.limited.0).to_string(),
        tenant.running.to_string(),
        tenant.started.to_string(),
        format!("{:.0} %{state}", tenant.share * 100.0),
    ]);
    if tenant.parked {
        row.fg(Color::Yellow)
    } else {
        row
    }
}

fn foot_line(model: &TopModel, now: BootInstant) -> Line<'static> {
    if model.question.is_some() {
        return Line::from(" y: yes, any other key: no")
            .fg(Color::Yellow)
            .bold();
    }
    match model.notice(now) {
        Some((text, true)) => Line::from(format!(" {}", shown(text))).fg(Color::Red),
        Some((text, false)) => Line::from(format!(" {}", shown(text))).fg(Color::Green),
        None => Line::from(KEYS).dim(),
    }
}

fn draw_help(frame: &mut Frame) {
    let area = frame.area();
    let width = area.width.min(62);
    #[expect(clippy::cast_possible_truncation, reason = "a dozen lines")]
    let height = area.height.min(HELP.len() as u16 + 2);
    let at = Rect::new(
        (area.width - width) / 2,
        (area.height - height) / 2,
        width,
        height,
    );
    let lines: Vec<Line> = HELP.iter().map(|line| Line::from(*line)).collect();
    frame.render_widget(Clear, at);
    let block = Block::bordered().title(" dispatcher top ");
    frame.render_widget(Paragraph::new(lines).block(block), at);
}

fn shown(text: &str) -> String {
    escape_control_characters(text)
}

fn count(count: Option<Count>) -> String {
    count.map(|count| count.to_string()).unwrap_or_default()
}

fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.0}")
    }
}

fn duration_or_dash(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), duration)
}

/// Formats a duration in at most two units: `850ms`, `12s`, `3m20s`, `5h12m`, `3d4h`.
pub(super) fn duration(seconds: f64) -> String {
    if seconds < 1.0 {
        return format!("{:.0}ms", seconds.max(0.0) * 1_000.0);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at least one, and saturates"
    )]
    let whole = seconds as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60);
    match whole {
        0..60 => format!("{whole}s"),
        60..3_600 => format!("{minutes}m{}s", whole % 60),
        3_600..86_400 => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}
