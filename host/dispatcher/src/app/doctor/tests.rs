//! Findings about queues and functions as they may be found.

use super::*;
use dispatcher_config::flags::Flags;
use dispatcher_config::section::WrittenValue;

pub(super) fn settings(list: &[(&str, &str)]) -> Settings {
    let mut flags = Flags::default();
    for (flag, text) in list {
        flags.take(flag, WrittenValue::new(format!("--{flag}"), *text));
    }
    let (settings, problems) = dispatcher_config::settings(&flags);
    assert_eq!(problems, []);
    settings
}

pub(super) fn seen() -> Identity {
    Identity {
        name: "payments".into(),
        source: "arn:aws:sqs:eu-west-1:123456789012:payments".into(),
        visibility: Duration::from_secs(30),
        batch: 10,
        longest_wait: Duration::from_secs(20),
        proof_wait: Duration::from_secs(1),
        ordered_groups: false,
        deduplicates: false,
        dead_letters: false,
        most_receives: Some(5),
        redrive_target: true,
    }
}

fn queue(list: &[(&str, &str)], seen: &Identity) -> Vec<(Level, String)> {
    let settings = settings(&[&[("function", "f"), ("queues", "payments")], list].concat());
    let route = &settings.routes[0];
    let findings = of_queue(route, &route.queues[0].name, seen, None);
    assert!(
        findings
            .iter()
            .all(|finding| finding.about == "queue payments")
    );
    let pairs = findings
        .into_iter()
        .map(|finding| (finding.level, finding.message));
    pairs.collect()
}

#[test]
fn dead_letters_that_are_deleted_before_messages_of_the_queue_are_reported() {
    let settings = settings(&[("function", "f"), ("queues", "payments")]);
    let (route, day) = (&settings.routes[0], Duration::from_secs(86_400));
    let found = |dead_letters, messages| {
        let kept = KeptTimes {
            dead_letter_queue: "payments-dlq".into(),
            dead_letters,
            messages,
        };
        let findings = of_queue(route, &route.queues[0].name, &seen(), Some(&kept));
        (findings[0].level, findings[0].message.clone())
    };
    for dead_letters in [day * 4, day * 14] {
        assert_eq!(found(dead_letters, day * 4).0, Level::Ok);
    }
    let (level, message) = found(day, day * 4);
    assert_eq!(level, Level::Warn);
    let says = "payments-dlq keeps messages for 1day, the queue itself for 4days";
    assert!(message.contains(says), "{message}");
}

#[test]
fn healthy_queue_is_one_line() {
    let found = queue(&[], &seen());
    let wanted = "open; a message is leased for 30s at a time".to_owned();
    assert_eq!(found, [(Level::Ok, wanted)]);
    let mut fifo = seen();
    fifo.ordered_groups = true;
    assert!(queue(&[], &fifo)[0].1.contains("FIFO"));
}

#[test]
fn finding_02_redrive_policy_that_takes_unattempted_messages_is_reported() {
    let mut fifo = seen();
    fifo.ordered_groups = true;
    assert!(queue(&[], &fifo)[0].1.contains("at most 5"));
    fifo.redrive_target = false;
    let found = queue(&[], &fifo);
    assert_eq!(found[0].0, Level::Warn);
    assert!(found[0].1.contains("cannot be opened"), "{found:?}");
    fifo.redrive_target = true;
    fifo.most_receives = Some(1);
    let found = queue(&[], &fifo);
    let said = found
        .iter()
        .any(|(_, message)| message.contains("maxReceiveCount 1"));
    assert!(said, "{found:?}");
}

#[test]
fn problematic_queue_is_reported_with_the_reason() {
    let mut endless = seen();
    endless.most_receives = None;
    let mut nervous = seen();
    nervous.most_receives = Some(1);
    let mut short = seen();
    short.visibility = Duration::from_secs(5);
    let mut fifo = seen();
    fifo.ordered_groups = true;
    let window = [("batch-size", "10"), ("batch-window", "2")];
    for (list, seen, wanted) in [
        (
            &[][..],
            &endless,
            "it has no redrive policy and the route no dead-letter queue",
        ),
        (
            &[],
            &nervous,
            "its redrive policy dead-letters a message that was received 1 time:",
        ),
        (&[], &short, "the visibility timeout is 5s"),
        (
            &[("visibility", "3")],
            &endless,
            "the visibility timeout is 3s",
        ),
        (&window, &fifo, "a FIFO queue with a batch window"),
    ] {
        let found = queue(list, seen);
        let warned = |(level, message): &(Level, String)| {
            *level == Level::Warn && message.starts_with(wanted)
        };
        assert!(found.iter().any(warned), "{wanted}: {found:?}");
    }
    let mut dead_lettered = endless;
    dead_lettered.dead_letters = true;
    assert_eq!(queue(&[], &dead_lettered)[0].0, Level::Ok);
}

#[test]
fn spans_that_are_dropped_since_attempts_share_an_instance_are_reported() {
    let of = |list: &[(&str, &str)]| {
        let base = [("plugin", "p.wasm"), ("queues", "payments")];
        let settings = settings(&[&base, list].concat());
        of_spans(&settings.routes[0])
    };
    let (spans, shared) = (("allow-spans", "3"), ("instance-concurrency", "8"));
    assert_eq!((of(&[spans]), of(&[shared])), (None, None));
    let finding = of(&[spans, shared]).expect("both are set");
    assert_eq!(finding.level, Level::Warn);
    assert_eq!(finding.about, "allow-spans of plugin p");
    assert!(finding.message.contains("up to 8 attempts"), "{finding:?}");
}

fn good() -> Function {
    Function {
        timeout: Duration::from_secs(20),
        state: "Active".into(),
        state_reason: None,
        reserved_concurrency: None,
        isolates_tenants: false,
    }
}

fn function(list: &[(&str, &str)], seen: Result<Function, CallError>) -> Vec<(Level, String)> {
    let settings = settings(&[&[("function", "f")], list].concat());
    let all = functions(&settings);
    let findings = of_function(
        "f",
        &all[&("f", None)],
        seen,
        settings.program.shutdown_grace,
    );
    let pairs = findings
        .into_iter()
        .map(|finding| (finding.level, finding.message));
    pairs.collect()
}

fn judged(list: &[(&str, &str)], seen: Function, level: Level, wanted: &str) {
    let found = function(list, Ok(seen));
    assert_eq!((found.len(), found[0].0), (1, level), "{wanted}: {found:?}");
    assert!(found[0].1.starts_with(wanted), "{found:?}");
}

#[test]
fn functions_are_judged_by_their_state() {
    judged(&[], good(), Level::Ok, "found; an invocation may take 20s");
    let failed = Function {
        state: "Failed".into(),
        ..good()
    };
    judged(
        &[],
        failed,
        Level::Bad(Fault::Settings),
        "its state is Failed",
    );
    let pending = Function {
        state: "Pending".into(),
        state_reason: Some("Creating".into()),
        ..good()
    };
    let wanted = "its state is Pending, so that the first invocations are refused: Creating";
    judged(&[], pending, Level::Warn, wanted);
}

#[test]
fn functions_are_judged_by_reserved_concurrency() {
    let reserved = |number| Function {
        reserved_concurrency: Some(number),
        ..good()
    };
    judged(&[], reserved(50), Level::Ok, "found");
    let wanted = "its reserved concurrency is 49 and up to 50 invocations run concurrently";
    judged(&[], reserved(49), Level::Warn, wanted);
    let bad = Level::Bad(Fault::Settings);
    judged(&[], reserved(0), bad, "its reserved concurrency is 0");
}

#[test]
fn functions_are_judged_by_their_timeout() {
    let wanted = "it may run for 20s and route f waits 19s";
    judged(&[("timeout", "19s")], good(), Level::Warn, wanted);
    judged(&[("timeout", "21s")], good(), Level::Ok, "found");
    let wanted = "it may run for 20s and a stop waits 10s";
    judged(&[("shutdown-grace", "10s")], good(), Level::Warn, wanted);
    let left_alone = [("timeout", "5s"), ("invocation", "async")];
    judged(&left_alone, good(), Level::Ok, "found");
}

#[test]
fn function_that_cannot_be_inspected_is_reported_once() {
    let failed = |kind| {
        let message = "why".to_owned();
        function(&[], Err(CallError { kind, message }))
    };
    for kind in [ErrorKind::AccessDenied, ErrorKind::Transient] {
        assert_eq!(failed(kind)[0].0, Level::Bad(Fault::Settings));
    }
    for among_the_problems in [
        ErrorKind::NotFound,
        ErrorKind::Invalid,
        ErrorKind::Unreachable,
    ] {
        assert!(failed(among_the_problems).is_empty());
    }
}

#[test]
fn every_concurrent_invocation_needs_a_connection() {
    let settings_of = settings(&[("function", "f"), ("concurrency", "1000")]);
    let level = |limit| of_files(&settings_of, limit).map(|finding| finding.level);
    assert_eq!(level(1_100), Some(Level::Ok));
    assert_eq!(level(1_099), Some(Level::Warn));
    assert_eq!(of_files(&settings(&[("plugin", "p.wasm")]), 0), None);
}

#[test]
fn problems_of_check_are_findings_of_doctor() {
    let problem = Problem::new("--queues", "queue `q`: gone", "one of a").unreachable();
    let wanted = Finding::new(
        Level::Bad(Fault::Dependency),
        "--queues",
        "queue `q`: gone; wanted one of a",
    );
    assert_eq!(Finding::from(problem), wanted);
}

#[test]
fn what_operators_have_set_on_a_queue_is_a_warning() {
    fn ends() -> [String; 2] {
        ["`dispatcher resume local:q`", "`… --reset`"].map(str::to_owned)
    }
    let nothing = of_control("queue local:q", &QueueControl::default(), ends());
    assert_eq!(nothing, None);
    let set = QueueControl {
        paused: true,
        rate: Some(5.0),
        ..QueueControl::default()
    };
    let found = of_control("queue local:q", &set, ends()).expect("a finding");
    assert_eq!((found.level, &*found.about), (Level::Warn, "queue local:q"));
    for wanted in ["dispatcher resume local:q", "rate 5/s", "--reset"] {
        assert!(found.message.contains(wanted), "{}", found.message);
    }
}
