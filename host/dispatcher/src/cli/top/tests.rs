//! The screen at 80×24, and what keys do.

use super::draw::{draw, duration};
use super::model::{Step, Tab, TopModel};
use super::on_screen;
use dispatcher_core::clock::BootInstant;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_secs(seconds))
}

fn overview(received: u64, done: u64, retried: u64) -> Value {
    json!({
        "process": {
            "id": "4711@host", "version": "0.1.0", "started_at": "2026-11-23T08:00:00Z",
            "uptime_s": 200.0, "state": "running", "ready": true, "not_ready": [],
        },
        "routes": 1, "queues": 2, "paused": ["local:b"], "running": 1, "leases": 3,
        "messages": {
            "received": received, "done": done, "retried": retried, "dead_lettered": 1,
            "shed": 0, "cancelled": 0, "lost": 0, "released": 0, "not_settled": 0,
        },
        "recent": {"attempt_p50_s": 0.012, "attempt_p99_s": 2.0, "calls_per_second": 3.24, "dollars_per_day": 0.11197},
        "streams": 0,
    })
}

fn queues() -> Value {
    let queue = |name: &str, paused: bool, shared: bool| {
        json!({
            "queue": name, "route": "default", "paused": paused, "shared": shared,
            "recent": {"attempt_p50_s": 0.011, "attempt_p99_s": 0.5, "calls_per_second": 2.0, "dollars_per_day": null},
            "in_flight": 3, "per_second": {"received": 12.0, "done": 11.5, "failed": 0.5},
            "depth": {"waiting": 120, "delayed": 5, "oldest_s": 75.0, "error": null},
            "dead_letter_depth": {"waiting": 7},
        })
    };
    json!({"items": [queue("local:a", false, true), queue("local:b", true, false)], "calls": 0})
}

fn model() -> TopModel {
    let mut model = TopModel::new("http://127.0.0.1:9090");
    model.take_overview(overview(100, 90, 2), at(10)).unwrap();
    model.take_overview(overview(120, 100, 3), at(12)).unwrap();
    model.take_list(Tab::Queues, queues()).unwrap();
    model
}

fn screen(model: &TopModel, now: BootInstant) -> String {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, model, now)).unwrap();
    terminal.backend().to_string()
}

fn press(model: &mut TopModel, key: char) -> Step {
    model.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))
}

#[test]
fn queues_with_their_figures_fit_80_columns() {
    let shown = screen(&model(), at(12));
    for part in [
        "dispatcher 0.1.0",
        "4711@host",
        "up 3m20s",
        "ready",
        "received 10/s",
        "done 5.0/s",
        "failed 0.5/s",
        "1 Queues (2)",
        "2 Running (1)",
        "local:a",
        "120",
        "5 delayed",
        "1m15s",
        "q quit",
        "p50 12ms  p99 2s  calls 3.2/s  $0.1120/day",
        "local:a: p50 11ms  p99 500ms  calls 2.0/s",
        "backlog 240  oldest 1m15s  drains in 10s  dead letters 14 ",
        "paused, not received from here: local:b",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let row = shown.lines().find(|line| line.contains("local:a")).unwrap();
    let cells: Vec<&str> = row.trim_matches('"').split_whitespace().collect();
    let wanted = ["local:a", "120", "1m15s", "3", "12", "12", "0.5", "7"];
    assert_eq!(cells, wanted, "{row}");
}

#[test]
fn dead_letters_of_a_queue_that_others_share_are_counted_once() {
    let queue = |name: &str, dead: &str| {
        json!({"queue": name, "depth": {"waiting": 1},
            "dead_letter_queue": dead, "dead_letter_depth": {"waiting": 7}})
    };
    let list = [queue("a", "dlq"), queue("b", "dlq"), queue("c", "other")];
    let mut model = TopModel::new("x");
    model
        .take_list(Tab::Queues, json!({"items": list}))
        .unwrap();
    assert_eq!(model.holdings().map(|holdings| holdings.dead), Some(14));
}

#[test]
fn depths_are_fetched_by_themselves_only_where_they_are_free() {
    let mut model = model();
    assert!(model.path().contains("depth=true"));
    assert_eq!(press(&mut model, 'd'), Step::Fetch);
    assert!(model.path().contains("depth=false"));
    let sqs = json!({"items": [{"queue": "payments"}], "calls": 0});
    let mut billed = TopModel::new("x");
    assert!(
        billed.path().contains("depth=false"),
        "nothing is known yet"
    );
    billed.take_list(Tab::Queues, sqs).unwrap();
    assert!(billed.path().contains("depth=false"));
    press(&mut billed, 'd');
    assert!(billed.path().contains("depth=true"));
    press(&mut billed, 'P');
    let touches = |model: &TopModel| model.question.as_ref().map(|asked| asked.touches.clone());
    let shown = touches(&billed).expect("it asks");
    assert_eq!(shown, "0 messages in attempts here; d shows how many wait.");
    let known = json!({"items": [{"queue": "payments", "depth": {"waiting": 7}}], "calls": 1});
    billed.take_list(Tab::Queues, known).unwrap();
    press(&mut billed, 'n');
    press(&mut billed, 'P');
    let shown = touches(&billed).expect("it asks");
    assert_eq!(
        shown,
        "0 messages in attempts here; about 7 messages waiting."
    );
}

#[test]
fn pause_asks_first_and_says_who_obeys() {
    let mut model = model();
    assert_eq!(press(&mut model, 'p'), Step::Redraw);
    assert!(model.question.is_none(), "only the capital pauses");
    press(&mut model, 'P');
    let shown = screen(&model, at(12));
    for part in [
        "pause local:a for all processes that read it?",
        "3 messages in attempts here; 120 messages waiting.",
        "y: yes, any other key: no",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    assert_eq!(press(&mut model, 'x'), Step::Redraw, "any other key is no");
    assert!(model.question.is_none());

    press(&mut model, 'j');
    press(&mut model, 'P');
    let Step::Act(action) = press(&mut model, 'y') else {
        panic!("it was confirmed");
    };
    assert_eq!(action.path, "/api/v1/queues/local%3Ab/resume");
    model.notify(action.done, false, at(12));
    assert!(screen(&model, at(13)).contains("local:b resumed on this machine only"));
    assert!(screen(&model, at(30)).contains("q quit"), "the keys again");
}

#[test]
fn a_question_about_a_long_name_is_shown_whole() {
    let mut model = model();
    let name = format!("orders-{}-end", "x".repeat(69));
    let queues = json!({"items": [{"queue": name, "shared": true, "in_flight": 3}], "calls": 0});
    model.take_list(Tab::Queues, queues).unwrap();
    press(&mut model, 'j');
    press(&mut model, 'P');
    let shown = screen(&model, at(12));
    let words: Vec<&str> = shown
        .split(['"', ' ', '\n'])
        .filter(|word| !word.is_empty())
        .collect();
    let text = words.join(" ");
    for part in [
        "-end for all processes that read it?",
        "3 messages in attempts here; d shows how many wait.",
        "y: yes, any other key: no",
    ] {
        assert!(text.contains(part), "{part} in\n{shown}");
    }
}

#[test]
fn the_reason_of_the_selected_outcome_is_shown_whole() {
    let mut model = model();
    press(&mut model, '3');
    let reason = format!(
        "trap at src/handler.rs:42: {}end",
        "index out of bounds ".repeat(4)
    );
    let outcomes = json!({"items": [{
        "at": "2026-11-23T07:31:08.5Z", "queue": "local:a", "event": "dead-lettered",
        "reason": reason, "messages": 1, "ids": ["m-1"],
    }]});
    model.take_list(Tab::Outcomes, outcomes).unwrap();
    let shown = screen(&model, at(12));
    assert!(shown.contains("bounds end"), "{shown}");
}

#[test]
fn cancel_names_how_many_messages_are_deleted() {
    let mut model = model();
    assert_eq!(press(&mut model, '2'), Step::Fetch);
    press(&mut model, 'C');
    assert!(model.question.is_none(), "nothing runs");
    let message = |id: &str| json!({"id": id, "attempt": 2, "lease_left_s": 21.0});
    let running = json!({"items": [{
        "id": "r-1", "queue": "local:a", "age_s": 9.0, "stuck": "it was cancelled",
        "messages": [message("m-1"), message("m-2")],
    }]});
    model.take_list(Tab::Running, running).unwrap();
    let shown = screen(&model, at(12));
    assert!(shown.contains("m-1 +1") && shown.contains("21s") && shown.contains("stuck"));
    press(&mut model, 'C');
    let shown = screen(&model, at(12));
    for part in [
        "cancel attempt r-1 of local:a and delete its 2 messages?",
        "m-1, m-2",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let Step::Act(action) = press(&mut model, 'y') else {
        panic!("it was confirmed");
    };
    assert_eq!(action.path, "/api/v1/running/r-1/cancel");
}

#[test]
fn control_characters_of_others_do_not_reach_the_terminal() {
    let mut model = model();
    press(&mut model, '3');
    let outcomes = json!({"items": [{
        "at": "2026-11-23T07:31:08.5Z", "queue": "local:\u{1b}[2J", "event": "dead-lettered",
        "reason": "bad\r\u{1b}]0;x\u{7}", "messages": 1, "ids": ["m-1"],
    }]});
    model.take_list(Tab::Outcomes, outcomes).unwrap();
    let shown = screen(&model, at(12));
    assert!(shown.contains("07:31:08") && shown.contains("dead-lettered"));
    assert!(!shown.contains(['\u{1b}', '\u{7}', '\r']), "{shown:?}");
}

#[test]
fn selection_stays_within_a_list_that_shrinks() {
    let mut model = model();
    press(&mut model, 'G');
    assert_eq!(model.selected(), Some(1));
    model
        .take_list(Tab::Queues, json!({"items": [], "calls": 0}))
        .unwrap();
    assert_eq!(model.selected(), None);
    press(&mut model, 'P');
    assert!(model.question.is_none());
    assert!(screen(&model, at(12)).contains("No queues."));
}

fn running(ids: &[&str]) -> Value {
    let one =
        |id: &&str| json!({"id": id, "queue": "local:a", "messages": [{"id": format!("m{id}")}]});
    json!({"items": ids.iter().map(one).collect::<Vec<_>>()})
}

#[test]
fn selection_stays_with_its_attempt_and_never_moves_to_another() {
    let mut model = model();
    press(&mut model, '2');
    let take = |model: &mut TopModel, ids: &[&str]| {
        model.take_list(Tab::Running, running(ids)).unwrap();
    };
    take(&mut model, &["1", "2", "3"]);
    press(&mut model, 'j');
    take(&mut model, &["2", "3"]);
    assert_eq!(model.selected(), Some(0), "it is where 2 is");
    take(&mut model, &["3", "4"]);
    assert_eq!(model.selected(), None, "2 has ended");
    press(&mut model, 'C');
    assert!(model.question.is_none(), "no other attempt is meant");
    assert!(screen(&model, at(12)).contains("The selected row is gone"));
    press(&mut model, 'j');
    press(&mut model, 'C');
    let asked = model.question.as_ref().expect("it asks");
    assert!(
        asked.text.contains("attempt 3 of local:a"),
        "{}",
        asked.text
    );
    assert_eq!(asked.touches, "m3");
}

#[test]
fn the_newest_outcome_stays_selected_until_another_is() {
    let mut model = model();
    press(&mut model, '3');
    let outcome = |id: &str| json!({"at": "2026-11-23T07:31:08Z", "queue": "local:a", "ids": [id]});
    let list =
        |ids: &[&str]| json!({"items": ids.iter().map(|id| outcome(id)).collect::<Vec<_>>()});
    model.take_list(Tab::Outcomes, list(&["a"])).unwrap();
    model.take_list(Tab::Outcomes, list(&["b", "a"])).unwrap();
    assert_eq!(model.selected(), Some(0));
    press(&mut model, 'j');
    model
        .take_list(Tab::Outcomes, list(&["c", "b", "a"]))
        .unwrap();
    assert_eq!(model.selected(), Some(2), "it is where a is");
}

#[test]
fn process_that_does_not_answer_is_shown_with_its_last_figures() {
    let mut model = model();
    model.failure = Some("http://127.0.0.1:9090: connection refused".to_owned());
    let shown = screen(&model, at(12));
    assert!(shown.contains("connection refused") && shown.contains("local:a"));
}

#[test]
fn a_process_that_hangs_is_shown_as_such_until_it_answers() {
    let mut model = model();
    model.asks(at(12));
    assert!(screen(&model, at(13)).contains("ready"));
    model.asks(at(13));
    let shown = screen(&model, at(15));
    assert!(shown.contains("no answer for 3s") && shown.contains("local:a"));
    model.take_failure(None);
    assert!(screen(&model, at(15)).contains("ready"));
}

#[test]
fn figures_of_some_queues_say_of_how_many_and_that_more_are_not_shown() {
    let mut model = model();
    let one = |number: usize| {
        let depth = (number < 2).then(|| json!({"waiting": 3, "oldest_s": null, "error": null}));
        json!({"queue": format!("local:q{number}"), "depth": depth})
    };
    let items: Vec<Value> = (0..200).map(one).collect();
    model
        .take_list(Tab::Queues, json!({"items": items, "calls": 1}))
        .unwrap();
    model.overview.queues = 5_000_u64.into();
    let shown = screen(&model, at(12));
    for part in [
        "backlog 6  oldest -  drains in never  dead letters 0  (2 of 5000 queues)",
        "the first 200",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    model
        .take_list(Tab::Queues, json!({"items": [one(9)], "calls": 0}))
        .unwrap();
    let shown = screen(&model, at(12));
    assert!(shown.contains("d shows the depths of queues") && !shown.contains("the first 200"));
}

#[test]
fn durations_have_two_units() {
    let shown = [0.0, 0.85, 12.3, 200.0, 18_720.0, 273_600.0].map(duration);
    assert_eq!(shown, ["0ms", "850ms", "12s", "3m20s", "5h12m", "3d4h"]);
}

/// Run by the next test in a pseudo-terminal.
#[test]
#[ignore = "it panics, in another process"]
fn panics_on_the_screen() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let shown: Result<(), _> = runtime.block_on(on_screen(async |terminal| {
        terminal
            .draw(|frame| draw(frame, &model(), at(12)))
            .unwrap();
        panic!("as the test wants");
    }));
    shown.unwrap();
}

#[test]
fn terminal_is_restored_after_a_panic() {
    let child = std::env::current_exe().unwrap();
    let command = format!(
        "stty -a > /dev/null; '{}' --ignored --nocapture panics_on_the_screen; stty -a",
        child.display()
    );
    // util-linux has it, which every Debian has.
    let ended = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .output()
        .expect("script is there");
    let shown = String::from_utf8_lossy(&ended.stdout);
    let (entered, left) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
    assert!(shown.contains(entered), "{shown:?}");
    let (_, after) = shown.rsplit_once(left).expect("the usual screen is back");
    assert!(after.contains("as the test wants"), "{after:?}");
    // Raw mode has these off.
    let modes: Vec<&str> = after.split_whitespace().collect();
    for mode in ["icanon", "echo", "isig"] {
        assert!(modes.contains(&mode), "{mode} {after:?}");
    }
}

#[test]
fn fleet_shows_its_processes_and_what_differs() {
    let process = |id: &str, version: &str| {
        json!({"id": id, "version": version, "configuration": "a1b2c3", "running": 4, "waiting": 2,
            "done": 1.5, "failed": 0.0})
    };
    let fleet = json!({
        "store": "redis:default", "scope": "all-processes", "process": "1@a",
        "processes": [process("1@a", "0.1.0"), process("2@b", "0.2.0")],
        "differences": [{"what": "version", "values": [
            {"value": "0.1.0", "processes": ["1@a"]}, {"value": "0.2.0", "processes": ["2@b"]}]}],
    });
    let mut model = model();
    assert_eq!(press(&mut model, '4'), Step::Fetch);
    assert_eq!(model.path(), "/api/v1/fleet");
    model.take_list(Tab::Fleet, fleet).unwrap();
    let shown = screen(&model, at(12));
    for part in [
        "4 Fleet (2)",
        "1@a",
        "a1b2c3",
        "The version differs: 0.1.0 in 1@a, 0.2.0 in 2@b",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
}

#[test]
fn tenants_show_what_waits_and_who_is_parked() {
    let tenant = |name: &str, parked: bool| {
        json!({"tenant": name, "weight": 2, "running": 4, "held": 3, "limited": 30, "started": 50,
            "share": 0.25, "parked": parked, "waiting": 9000, "oldest_s": 75.0})
    };
    let tenants = [tenant("acme", true), tenant("", false)];
    let queue = json!({"queue": "local:jobs", "tenants": tenants});
    let mut model = model();
    assert_eq!(press(&mut model, '5'), Step::Fetch);
    model
        .take_list(Tab::Tenants, json!({"items": [queue], "calls": 0}))
        .unwrap();
    let shown = screen(&model, at(12));
    for part in [
        "5 Tenants (2)",
        "acme",
        "(no tenant)",
        "9000",
        "1m15s",
        "25 % parked",
        "local:jobs: weight 2; 30 held for a limit",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
}
