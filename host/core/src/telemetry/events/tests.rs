//! Each event is emitted as it is declared, and the page for people lists them all.

use super::*;
use std::collections::BTreeSet;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// One line of the log: its level, its message and its other fields.
#[derive(Debug, Default)]
struct LogLine {
    level: Option<Level>,
    message: String,
    fields: BTreeSet<&'static str>,
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => drop(self.fields.insert(name)),
        }
    }
}

#[derive(Clone, Default)]
struct CapturedEvents(Arc<Mutex<Vec<LogLine>>>);

impl<S: Subscriber> Layer<S> for CapturedEvents {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = LogLine {
            level: Some(*event.metadata().level()),
            ..LogLine::default()
        };
        event.record(&mut line);
        self.0.lock().expect("no panic").push(line);
    }
}

fn lines(log: impl FnOnce()) -> Vec<LogLine> {
    let seen = CapturedEvents::default();
    let subscriber = tracing_subscriber::registry().with(seen.clone());
    tracing::subscriber::with_default(subscriber, log);
    std::mem::take(&mut *seen.0.lock().expect("no panic"))
}

/// An event of this kind with everything that it can have.
fn example<'a>(kind: EventKind, reason: &'a Reason) -> MessageEvent<'a> {
    let of = Delivery {
        id: "m",
        first_id: Some("first"),
        receive_count: 3,
        took: None,
        trace: None,
    };
    match kind {
        EventKind::Done => MessageEvent::Done { of },
        EventKind::Retried => MessageEvent::Retried {
            of,
            attempt: 2,
            delay: Duration::from_millis(1_500),
            reason,
        },
        EventKind::DeadLettered => MessageEvent::DeadLettered {
            of,
            attempts: 3,
            to: Some("dead"),
            dead_letter_id: Some("other"),
            reason,
        },
        EventKind::DeadLetteredByPolicy => MessageEvent::DeadLetteredByPolicy {
            of,
            max_receive_count: 3,
            to: Some("arn:aws:sqs:eu-west-1:1:dead"),
            reason,
        },
        EventKind::Shed => MessageEvent::Shed {
            ids: &["m", "n"],
            to: ShedTo::DeadLetters(Some("dead")),
            reason,
        },
        EventKind::Filtered => MessageEvent::Filtered {
            ids: &["m", "n"],
            to: ShedTo::DeadLetters(Some("dead")),
            reason,
        },
        EventKind::Cancelled => MessageEvent::Cancelled { of },
        EventKind::Lost => MessageEvent::Lost { of, handled: true },
        EventKind::Abandoned => MessageEvent::Abandoned {
            of: Delivery {
                took: Some(Duration::from_secs(9)),
                ..of
            },
            attempt: 2,
            may_have_been_handled: true,
            visible_at: Timestamp(1_000),
            reason,
        },
        EventKind::Released => MessageEvent::Released {
            ids: &["m", "n"],
            reason,
        },
        EventKind::Duplicate => MessageEvent::Duplicate { of },
        EventKind::NotSettled => MessageEvent::NotSettled {
            of,
            wanted: EventKind::Done,
            outcome: "delete",
            visible_by: Timestamp(1_000),
            error: "no answer",
        },
    }
}

#[test]
fn finding_05_every_event_is_one_line_and_one_count() {
    for kind in EventKind::ALL {
        let why = match kind {
            EventKind::Abandoned => ReasonKind::Stopped,
            _ => ReasonKind::Trap,
        };
        let reason = Reason::new(why, "why");
        let (counters, meter) = (Arc::<Counters>::default(), Arc::<Meter>::default());
        let events = MessageEvents::new("local:q", counters.clone(), meter.clone());
        let event = example(kind, &reason);
        assert_eq!(event.kind(), kind);
        let lines = lines(|| events.emit(event));
        let [line] = &lines[..] else {
            panic!("{kind:?}: {lines:?}");
        };
        assert_eq!(line.message, kind.log_message());
        assert_eq!(line.level, Some(kind.level()), "{kind:?}");
        let mut wanted: BTreeSet<&str> = kind.fields().iter().copied().collect();
        wanted.insert("queue");
        assert_eq!(line.fields, wanted, "{kind:?}");
        let (reason, messages) = event.reason_and_messages();
        let reason = reason.map_or("", ReasonKind::label);
        let counted: Vec<_> = meter.events.counted().collect();
        assert_eq!(counted, [(kind, reason, messages as u64)]);
        let counts = serde_json::to_value(counters.snapshot()).expect("numbers");
        let counts = counts.as_object().expect("an object").values();
        assert!(
            counts.clone().any(|count| count == messages),
            "{kind:?}: {counts:?}"
        );
    }
}

#[test]
fn finding_28_failing_function_is_logged_in_one_line_with_every_id() {
    let ids: Vec<String> = (0..10).map(|n| format!("m{n}")).collect();
    for event in FunctionEvent::ALL {
        let lines = lines(|| {
            let failure = FunctionFailure {
                plugin: "lambda-forward",
                queue: Some("q"),
                message_ids: &ids,
                function: "f",
                version: Some("7"),
                request_id: Some("r"),
                error_type: Some("KeyError"),
                error: "Traceback:\n  line",
                log: Some("START\nEND"),
            };
            function_failed(event, &failure);
        });
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].message, event.log_message());
        assert_eq!(lines[0].level, Some(Level::WARN));
        let wanted: BTreeSet<&str> = FunctionEvent::FIELDS.iter().copied().collect();
        assert_eq!(lines[0].fields, wanted);
    }
    assert_eq!(Ids(&ids[..2]).to_string(), r#"["m0","m1"]"#);
}

#[test]
fn finding_03_unreadable_scheduled_message_is_one_line_and_one_count() {
    let counters = Counters::default();
    let reason = Reason::new(ReasonKind::Unreadable, "why");
    let lines = lines(|| {
        let letter = ScheduledDeadLetter {
            queue: Some("q"),
            job: "j",
            store: "s",
            reason: &reason,
        };
        scheduled_dead_lettered(&counters, &letter);
    });
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, Some(Level::WARN));
    assert_eq!(counters.snapshot().scheduled_dead, 1);
    let [row] = &table("event of the schedule")[..] else {
        panic!("one row");
    };
    assert_eq!((&*row[0], &*row[1]), (&*line.message, "warn"));
    let listed: BTreeSet<&str> = row[2].split(", ").collect();
    assert_eq!(listed, line.fields);
    assert_eq!(row[3], "dispatcher_scheduled_messages_dead_lettered_total");
}

/// The rows of the table of `host/docs/events.md` that begins with this cell.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = include_str!("../../../../docs/events.md");
    let mut lines = page
        .lines()
        .skip_while(|line| !line.starts_with(&format!("| {heading} |")));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    lines.by_ref().take(2).for_each(drop);
    lines
        .take_while(|line| line.starts_with('|'))
        .map(cells)
        .collect()
}

#[test]
fn finding_05_events_page_lists_every_event() {
    let families = Counters::default().families().into_iter();
    let counted: BTreeSet<String> = families.map(|family| family.metric.full_name()).collect();
    let names = |cell: &str| -> Vec<String> {
        cell.split(',').map(|name| name.trim().to_owned()).collect()
    };
    let rows = table("event");
    let functions = FunctionEvent::ALL.map(|event| (event.log_message(), Level::WARN, None));
    let wanted = EventKind::ALL
        .map(|kind| (kind.log_message(), kind.level(), Some(kind)))
        .into_iter()
        .chain(functions);
    assert_eq!(rows.len(), EventKind::ALL.len() + FunctionEvent::ALL.len());
    for (row, (words, level, kind)) in rows.iter().zip(wanted) {
        let [event, shown, fields, counters, _what_to_do] = &row[..] else {
            panic!("{row:?}");
        };
        assert_eq!(event, words);
        assert_eq!(*shown, level.to_string().to_lowercase(), "{words}");
        let declared = kind.map_or(FunctionEvent::FIELDS, EventKind::fields);
        let mut own: Vec<_> = declared.iter().filter(|name| **name != "queue").collect();
        let mut listed = names(fields);
        own.sort_unstable();
        listed.sort_unstable();
        assert!(listed.iter().eq(own), "{words}: {listed:?}");
        for counter in names(counters) {
            assert!(counter.ends_with("_total"), "{counter} is no counter");
            assert!(counted.contains(&counter), "{words}: no counter {counter}");
        }
    }
}

#[test]
fn finding_05_events_page_lists_every_reason() {
    let rows = table("reason_kind");
    let listed: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(listed, ReasonKind::ALL.map(ReasonKind::label));
}
