//! The values of texts, and the problems of those that have none.

use super::*;

fn given(text: &str) -> WrittenValue {
    WrittenValue::new("--x", text)
}

#[test]
fn durations_need_units_unless_a_default_is_declared() {
    let range = Duration::ZERO..=Duration::from_secs(20);
    let bare = |text| duration(&given(text), BareUnit::Seconds, &range);
    assert_eq!(bare("20"), Ok(Duration::from_secs(20)));
    assert_eq!(bare("0.5"), Ok(Duration::from_millis(500)));
    assert_eq!(bare("2s"), Ok(Duration::from_secs(2)));
    for bad in ["21", "-1", "inf", "nan", "1e300", "", "soon", "36h"] {
        let problem = bare(bad).expect_err(bad).to_string();
        assert!(problem.contains("wanted 0s to 20s"), "{problem}");
    }
    let strict = |text| duration(&given(text), BareUnit::Refused, &range);
    let problem = strict("5").expect_err("no unit").to_string();
    assert!(problem.ends_with("did you mean `5s`?"), "{problem}");
}

#[test]
fn sizes_are_parsed_as_bytes() {
    let range = 65_536..=1 << 32;
    assert_eq!(size(&given("64MiB"), &range), Ok(64 << 20));
    assert_eq!(size(&given("65536"), &range), Ok(65_536));
    for bad in [
        "64",
        "-1",
        "",
        "lots",
        "64 parsecs",
        "99999999999999999999TB",
        "5GiB",
    ] {
        let problem = size(&given(bad), &range).expect_err(bad).to_string();
        assert!(problem.contains("wanted 64.0 KiB to 4.0 GiB"), "{problem}");
    }
}

#[test]
fn numbers_choices_and_addresses_are_parsed() {
    assert_eq!(number(&given("10"), &(1..=10)), Ok(10));
    for bad in ["0", "11", "-1", "ten", "", "1.5", "99999999999999999999999"] {
        let problem = number(&given(bad), &(1_u32..=10))
            .expect_err(bad)
            .to_string();
        assert!(problem.contains("wanted 1 to 10"), "{problem}");
    }
    assert_eq!(choice(&given("json"), &[("text", 0), ("json", 1)]), Ok(1));
    let problem = choice(&given("jsn"), &[("text", 0), ("json", 1)]).expect_err("jsn");
    assert_eq!(problem.hint.as_deref(), Some("did you mean `json`?"));
    assert!(url(&given("http://127.0.0.1:1")).is_ok());
    for bad in [
        "",
        "localhost:1",
        "http://",
        "http:// x",
        "ftp://x",
        "http:///p",
    ] {
        assert!(url(&given(bad)).is_err(), "{bad}");
    }
}

#[test]
fn rates_need_units() {
    for (text, wanted) in [
        ("100/s", 100.0),
        ("30/m", 0.5),
        ("1800/h", 0.5),
        (".5 / s", 0.5),
    ] {
        assert_eq!(rate(&given(text)), Ok(wanted), "{text}");
    }
    for bad in [
        "",
        "/",
        "/s",
        "-1/s",
        "0/s",
        "inf/s",
        "nan/s",
        "1e3/s",
        "1/d",
        "1/s/s",
        "1000001/s",
        "0.00001/s",
        "1.2.3/s",
        "100",
    ] {
        let problem = rate(&given(bad)).expect_err(bad).to_string();
        assert!(
            problem.contains("wanted a number and /s, /m or /h"),
            "{problem}"
        );
    }
    let problem = rate(&given("100")).expect_err("no unit");
    assert_eq!(problem.hint.as_deref(), Some("did you mean `100/s`?"));
}

#[test]
fn sockets_are_addresses_and_ports() {
    for good in ["127.0.0.1:9090", "[::1]:80", "0.0.0.0:0"] {
        assert!(socket(&given(good)).is_ok(), "{good}");
    }
    for bad in [":9090", "9090", "localhost:9090"] {
        let problem = socket(&given(bad)).expect_err(bad);
        assert_eq!(
            problem.hint.as_deref(),
            Some("did you mean `127.0.0.1:9090`?")
        );
    }
    for bad in ["", "127.0.0.1", "host:9090", "127.0.0.1:99999"] {
        let problem = socket(&given(bad)).expect_err(bad);
        assert_eq!(problem.hint.as_deref(), Some("written like 127.0.0.1:9090"));
    }
}

#[test]
fn metric_names_and_switches_are_parsed() {
    assert!(namespace(&given("my-app/staging#1")).is_ok());
    for bad in ["", "a b", "a:b", "ä", &"x".repeat(201)] {
        assert!(namespace(&given(bad)).is_err(), "{bad}");
    }
    assert_eq!(switch(&given("true")), Ok(true));
    assert!(switch(&given("yes")).is_err());
}

proptest::proptest! {
    #[test]
    fn parser_panics_on_no_text(text in ".*") {
        let given = given(&text);
        let _ = duration(&given, BareUnit::Seconds, &(Duration::ZERO..=Duration::MAX));
        let _ = duration(&given, BareUnit::Refused, &(Duration::ZERO..=Duration::MAX));
        let _ = size(&given, &(0..=usize::MAX));
        let _ = number(&given, &(0_u64..=9));
        let _ = (url(&given), pair(&given), rate(&given), socket(&given), namespace(&given));
    }
}
