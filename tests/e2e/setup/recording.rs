//! The picture of README.md's quick start: its commands are run, and what they print is drawn.

use dispatcher_tests::child::{Program, Signal};
use std::fmt::Write as _;
use std::path::Path;

const COLUMNS: usize = 100;

/// Something typed, or a line that was printed.
enum ShownLine {
    Typed(&'static str),
    Printed(String),
}

/// With the times and ids of one day, so that the picture is the same for every run.
fn as_on_one_day(line: &str) -> String {
    let words = line.split(' ').map(|word| {
        let (before, rest) = word.split_once('"').unwrap_or(("", word));
        let is_id = rest.trim_end_matches('"').len() == 36 && rest.matches('-').count() == 4;
        if is_id && before.is_empty() {
            "01a1fe2e-fe36-7efe-8d29-b2f22cabefa1".to_owned()
        } else if is_id {
            format!("{before}\"01a1fe2e-fe36-7efe-8d29-b2f22cabefa1\"")
        } else if word.ends_with('Z') && word.matches(':').count() == 2 {
            "12:57:35.035Z".to_owned()
        } else if let Some((file, _)) = word.split_once(".wasm\"").filter(|_| word.contains('/')) {
            let name = file.rsplit('/').next().expect("a name");
            let field = before.trim_end_matches('"');
            format!("{field}\"plugins/prebuilt/{name}.wasm\"")
        } else if before == "workers=" || word.starts_with("workers=") {
            "workers=2".to_owned()
        } else {
            word.to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// In lines that fit, broken between words.
fn folded(line: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = line.to_owned();
    while rest.len() > COLUMNS {
        let at = rest[..COLUMNS].rfind(' ').unwrap_or(COLUMNS);
        let next = format!("    {}", rest[at..].trim_start());
        rest.truncate(at);
        lines.push(std::mem::replace(&mut rest, next));
    }
    lines.push(rest);
    lines
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

/// Draws lines that appear one after the other.
fn picture(shown: &[ShownLine]) -> String {
    let mut rows: Vec<(bool, String)> = Vec::new();
    for one in shown {
        match one {
            ShownLine::Typed(command) => rows.push((true, (*command).to_owned())),
            ShownLine::Printed(line) => {
                rows.extend(folded(line).into_iter().map(|part| (false, part)));
            }
        }
    }
    let (width, height) = (COLUMNS * 8 + 32, rows.len() * 20 + 36);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"What the quick start prints\">\n<style>\
         text{{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#d5dbe5;white-space:pre}}\
         .typed{{fill:#7ee2a8}}\
         @media(prefers-reduced-motion:no-preference){{text{{animation:a .2s both}}}}\
         @keyframes a{{from{{opacity:0}}}}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#161b22\"/>\n"
    );
    let mut tenths = 0;
    for (number, (is_typed, text)) in rows.iter().enumerate() {
        tenths += if *is_typed { 10 } else { 3 };
        let y = 32 + number * 20;
        let (class, prompt) = if *is_typed {
            (" class=\"typed\"", "$ ")
        } else {
            ("", "")
        };
        let _ = writeln!(
            svg,
            "<text xml:space=\"preserve\"{class} x=\"16\" y=\"{y}\" style=\"animation-delay:{}.{}s\">{prompt}{}</text>",
            tenths / 10,
            tenths % 10,
            escaped(text)
        );
    }
    svg + "</svg>\n"
}

#[test]
fn the_recorded_quick_start_is_what_the_program_prints() {
    let plugin = crate::scene::guest("hello");
    let mut running = Program::new(["run", "--plugin", &plugin]).start();
    let begun = running.wait_for_line(|line| line.contains(": running "));
    let other = |arguments: &[&str]| {
        let ended = Program::new(arguments).sharing(running.data()).run();
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stdout
    };
    let sent = other(&["send", "local:default", "hello"]);
    let handled = running.wait_for_line(|line| line.contains("guest: hello"));
    until_empty(running.data().path());
    let queues = Program::new(["queues"])
        .sharing(running.data())
        .run()
        .stdout;
    running.signal(Signal::INT);
    running.wait_for_line(|line| line.contains("stopping"));
    let stopped = running.wait_for_line(|line| line.contains("stopped"));
    assert_eq!(running.wait_exit(), 0);

    let printed = |line: &str| ShownLine::Printed(as_on_one_day(line.trim_end()));
    let mut shown = vec![
        ShownLine::Typed("dispatcher run --plugin plugins/prebuilt/hello.wasm &"),
        printed(&begun),
        ShownLine::Typed("dispatcher send local:default hello"),
        printed(&sent),
        printed(&handled),
        ShownLine::Typed("dispatcher queues"),
    ];
    shown.extend(queues.lines().map(printed));
    shown.push(ShownLine::Typed("kill -INT %1"));
    shown.push(printed(&stopped));
    let drawn = picture(&shown);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/docs/pictures/quickstart.svg");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &drawn).expect("the picture is written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, drawn, "draw it again with UPDATE=1");
}

/// Waits until the default queue holds nothing.
#[tokio::main(flavor = "current_thread")]
async fn until_empty(data: &Path) {
    let empty = |depth: dispatcher_core::queue::Depth| depth.waiting + depth.in_flight == 0;
    crate::scene::until_depth(data, "default", empty).await;
}
