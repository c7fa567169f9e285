//! The settings that forwarding to Lambda, limits of queues and metrics add.

use super::*;

const FUNCTION: (&str, &str) = ("function", "my-function:live");

#[test]
fn function_alone_is_enough() {
    let (settings, problems) = from_flags(&[FUNCTION]);
    assert_eq!(problems, [""; 0]);
    let route = &settings.routes[0];
    assert_eq!(
        (route.name.as_str(), route.settings.batch_size),
        ("my-function", 1)
    );
    assert_eq!(route.settings.batch_window, Duration::ZERO);
    let plugin = &route.plugin;
    let forward = Forward {
        function: "my-function:live".into(),
        asynchronous: false,
        partial_failures: false,
    };
    assert_eq!(plugin.code, Code::Forward(forward));
    assert_eq!(
        (plugin.at.as_str(), plugin.settings.timeout),
        ("--function", None)
    );
    assert_eq!(plugin.max_memory(), 256 << 20);
    assert_eq!(plugin.instance_concurrency(), 1_000);
    assert_eq!(
        (settings.program.name, settings.metrics, settings.admin),
        (None, None, None)
    );

    let (settings, problems) = from_flags(&[
        FUNCTION,
        ("invocation", "async"),
        ("max-memory", "64MiB"),
        ("instance-concurrency", "10"),
    ]);
    assert_eq!(problems, [""; 0]);
    let plugin = &settings.routes[0].plugin;
    assert!(matches!(&plugin.code, Code::Forward(forward) if forward.asynchronous));
    assert_eq!(
        (plugin.max_memory(), plugin.instance_concurrency()),
        (64 << 20, 10)
    );

    let (settings, _) = from_flags(&[("plugin", "p.wasm")]);
    assert_eq!(settings.routes[0].plugin.instance_concurrency(), 1);
}

#[test]
fn file_can_configure_everything() {
    let text = "[dispatcher]\nname = 'staging'\nmetrics-interval = 10\nadmin = '127.0.0.1:9090'\n\
                [plugin.f]\nfunction = '123456789012:function:f'\npartial-failures = true\n\
                allow-lambda = ['img-*', 'doc']\n[[route]]\nqueues = ['payments:3', 'local:a:1']\n\
                concurrency = 20\nqueue-concurrency = { payments = 5 }\nbatch-size = 100\n\
                rate = { 'local:a' = '30/m' }\nbatch-window = 2\n";
    let (settings, problems) = from_file(text, &[]);
    assert_eq!(problems, [""; 0]);
    let route = &settings.routes[0];
    assert_eq!(route.plugin.settings.allow_lambda, ["img-*", "doc"]);
    assert!(matches!(&route.plugin.code, Code::Forward(forward) if forward.partial_failures));
    assert_eq!(
        (route.settings.batch_size, route.settings.batch_window),
        (100, Duration::from_secs(2))
    );
    let limits: Vec<_> = route
        .queues
        .iter()
        .map(|q| (q.rate, q.concurrency))
        .collect();
    assert_eq!(limits, [(None, Some(5)), (Some(0.5), None)]);
    let metrics = Metrics {
        sink: MetricsSink::CloudWatch,
        interval: Duration::from_secs(10),
    };
    assert_eq!(settings.metrics, Some(metrics));
    assert_eq!(
        settings.admin.map(|admin| admin.address),
        "127.0.0.1:9090".parse().ok()
    );

    // Flags win key by key, a component over a function too.
    let (settings, problems) = from_file(
        text,
        &[
            ("function", "g"),
            ("concurrency", "sqs:payments=7"),
            ("rate", "payments=1/s"),
            ("metrics", "none"),
        ],
    );
    assert_eq!(problems, [""; 0]);
    let route = &settings.routes[0];
    assert!(matches!(&route.plugin.code, Code::Forward(forward) if forward.function == "g"));
    assert_eq!(route.settings.concurrency, 20);
    let limits: Vec<_> = route
        .queues
        .iter()
        .map(|q| (q.rate, q.concurrency))
        .collect();
    assert_eq!(limits, [(Some(1.0), Some(7)), (Some(0.5), None)]);
    assert_eq!(settings.metrics, None);
}

#[test]
fn functions_are_told_tenants_only_where_there_are_any() {
    for (list, wanted) in [
        (
            &[FUNCTION, ("tenant-id", "true")][..],
            "--function: `tenant-id`, and route `my-function` has no `tenant`; wanted the place",
        ),
        (
            &[
                ("plugin", "p.wasm"),
                ("tenant", "customer"),
                ("prefetch", "9"),
                ("tenant-id", "true"),
            ],
            "--plugin: `tenant-id`, but the plugin invokes no function",
        ),
    ] {
        let (_, problems) = from_flags(list);
        assert_eq!(problems.len(), 1, "{list:?}: {problems:#?}");
        assert!(problems[0].starts_with(wanted), "{problems:#?}");
    }
}

#[test]
fn batches_of_one_tenant_have_no_limits_of_the_fleet() {
    let text = "[limit.api]\nconcurrency = 2\n[plugin.f]\nfunction = \"f\"\ntenant-id = true\n\
                [[route]]\nplugin = \"f\"\nqueues = [\"a\"]\ntenant = \"group\"\nprefetch = 9\n\
                batch-size = 5\nlimits = [\"api\"]\n";
    let (_, problems) = from_file(text, &[]);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert!(
        problems[0].contains("`batch-size` with `tenant-id` and `limits`"),
        "{problems:#?}"
    );
}

#[test]
fn conflicting_settings_are_reported() {
    for (list, wanted) in [
        (
            &[FUNCTION, ("plugin", "p.wasm")][..],
            "--function: both the function `my-function:live` and the component `p.wasm` of \
             --plugin; wanted one of a component, a function and a service",
        ),
        (
            &[("plugin", "p.wasm"), ("invocation", "sync")],
            "--invocation: `invocation` says how a function is invoked, and this is a component",
        ),
        (
            &[("plugin", "p.wasm"), ("partial-failures", "true")],
            "--partial-failures: `partial-failures` says how a function is invoked",
        ),
        (
            &[
                FUNCTION,
                ("partial-failures", "true"),
                ("invocation", "async"),
            ],
            "--partial-failures: an asynchronous invocation has no response",
        ),
        (
            &[("function", "a/b")],
            "--function: `a/b` does not name a Lambda function; wanted NAME, NAME:ALIAS,",
        ),
        (
            &[FUNCTION, ("invocation", "later")],
            "--invocation: `later` is not known; wanted sync or async",
        ),
        (
            &[FUNCTION, ("partial-failures", "yes")],
            "--partial-failures: `yes` is not known; wanted true or false",
        ),
        (
            &[
                FUNCTION,
                ("queues", "payments,default"),
                ("rate", "paymets=1/s"),
            ],
            "--rate: `paymets` is not a queue of the route; wanted payments or default; \
             did you mean `payments`?",
        ),
        (
            &[
                FUNCTION,
                ("queues", "payments:3"),
                ("concurrency", "payments:3=5"),
            ],
            "--concurrency: `payments:3` is not a queue of the route; wanted payments; \
             did you mean `payments`?",
        ),
        (
            &[FUNCTION, ("metrics", "emf")],
            "--metrics: `emf` without a name for the metrics; wanted a name as well; written like \
             --name my-app, or name = \"my-app\"",
        ),
        (
            &[FUNCTION, ("batch-window", "5")],
            "--batch-window: it waits for other messages, but each message has its own attempt",
        ),
    ] {
        let (_, problems) = from_flags(list);
        assert_eq!(problems.len(), 1, "{list:?}: {problems:#?}");
        assert!(problems[0].starts_with(wanted), "{problems:#?}");
    }
}

#[test]
fn variables_for_the_forwarder_are_refused() {
    let (_, problems) = from_flags(&[FUNCTION, ("env", "FUNCTION=g")]);
    assert_eq!(
        problems,
        [
            "--env: `FUNCTION` for a plugin that forwards to a function; wanted variables of the \
             function's own configuration"
        ]
    );
}

#[test]
fn missing_handler_names_both_options() {
    let (_, problems) = from_flags(&[]);
    assert_eq!(
        problems,
        ["--plugin: it is missing; wanted a component to run; \
          written like --plugin handler.wasm, --function my-function, \
          --forward http://127.0.0.1:8080/jobs or --send-to my-queue"]
    );
    let (_, problems) = from_file("[plugin.p]\ntimeout='1s'", &[]);
    assert!(
        problems[0].ends_with("or forward = \"http://127.0.0.1:8080/jobs\""),
        "{problems:?}"
    );
}

#[test]
fn function_flags_override_the_component_of_the_file() {
    let text = "[plugin.p]\nfile = 'p.wasm'\ntimeout = '5s'\n";
    let (settings, problems) = from_file(text, &[FUNCTION]);
    assert_eq!(problems, [""; 0]);
    let plugin = &settings.routes[0].plugin;
    assert!(matches!(plugin.code, Code::Forward(_)));
    assert_eq!(plugin.settings.timeout, Some(Duration::from_secs(5)));
}

#[test]
fn variables_of_the_classic_tool_are_reported_by_name() {
    let mut flags = Flags::default();
    let notice = classic::take(&mut flags, |name| match name {
        "WORKERLESS_FUNCTION" => Some("a b".into()),
        "WORKERLESS_POLL_FOR" => Some("21".into()),
        "WORKERLESS_NAME" => Some("staging".into()),
        _ => None,
    });
    assert!(notice.is_some());
    let (settings, problems) = read(&flags);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("WORKERLESS_FUNCTION: `a b` does not name"));
    assert!(problems[1].starts_with("WORKERLESS_POLL_FOR: `21` is out of range"));
    assert_eq!(settings.program.name.as_deref(), Some("staging"));
    assert_eq!(
        settings.metrics.map(|metrics| metrics.sink),
        Some(MetricsSink::CloudWatch)
    );
}
