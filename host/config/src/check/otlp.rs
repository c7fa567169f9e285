//! Checks the settings of the OTLP export and the variables of OpenTelemetry.

use super::Check;
use crate::otel::{Otlp, OtlpLogs, OtlpMetrics, Traces};
use crate::problem::Problem;
use crate::section::{Layers, Section, WrittenValue};
use crate::value;
use dispatcher_core::telemetry::trace::{Sampler, TraceTerms};
use dispatcher_telemetry::otlp::{Batches, OtlpFile, OtlpSignal, Resource, headers};
use http::HeaderMap;
use std::time::Duration;

/// The default address of a collector.
const ENDPOINT: &str = "http://localhost:4318";
/// The default timeout of the specification.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The default delays of spans and log records, as in the specification.
const SPANS: Duration = Duration::from_secs(5);
const LOGS: Duration = Duration::from_secs(1);
/// The default export interval of metrics, as in the specification.
const METRICS_INTERVAL: Duration = Duration::from_secs(60);
const MOST_WAITING: usize = 1_000_000;
const LONGEST_MS: u64 = 3_600_000;

/// The settings of OTLP requests that are configured.
struct OtlpRequests {
    headers: Option<HeaderMap>,
    timeout: Option<Duration>,
    is_compressed: Option<bool>,
    ca_file: Option<OtlpFile>,
    certificate: Option<OtlpFile>,
    key: Option<OtlpFile>,
}

/// The variables of the specification for which only these values are supported. With another
/// value, the export would differ from the user's request, so it is refused.
const FIXED: &[(&str, &[&str])] = &[
    ("OTEL_PROPAGATORS", &["tracecontext", "xray", "baggage"]),
    ("OTEL_METRICS_EXEMPLAR_FILTER", &["trace_based"]),
    (
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
        &["cumulative"],
    ),
    (
        "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
        &["explicit_bucket_histogram"],
    ),
];

impl Check {
    /// Reads the settings of the OTLP export. `otel` has the variables of OpenTelemetry.
    pub(crate) fn otlp(&mut self, program: Layers<'_>, otel: &Section, name: Option<&str>) -> Otlp {
        let disabled = otel.one("OTEL_SDK_DISABLED");
        if self.read(disabled, value::switch) == Some(true) {
            return Otlp::default();
        }
        self.fixed(otel);
        let terms = self.trace_terms(program);
        let of_spans = self.otlp_batches(otel, "BSP", Batches::within(SPANS));
        let of_logs = self.otlp_batches(otel, "BLRP", Batches::within(LOGS));
        let resource = self.resource(otel, name);
        let every = self.read(otel.one("OTEL_METRIC_EXPORT_INTERVAL"), some_milliseconds);
        let endpoint = program.one("otlp-endpoint");
        let traces = self.is_exported(endpoint, otel, "TRACES");
        let metrics = self.is_exported(endpoint, otel, "METRICS");
        // Log lines are already on stderr, where most collectors read them.
        let logs = self.is_exported(None, otel, "LOGS");
        // Reports problems even if nothing is exported.
        let url = self.read(endpoint, value::url);
        let base = url.as_deref().unwrap_or(ENDPOINT).trim_end_matches('/');
        let shared = self.requests(&|end| otel.one(&format!("OTEL_EXPORTER_OTLP_{end}")));
        let mut signal = |name: &str, path: &str| {
            let own = otel.one(&format!("OTEL_EXPORTER_OTLP_{name}_ENDPOINT"));
            let whole = self.read(own, value::url);
            let requests =
                self.requests(&|end| otel.one(&format!("OTEL_EXPORTER_OTLP_{name}_{end}")));
            let certificate = requests.certificate.or_else(|| shared.certificate.clone());
            let key = requests.key.or_else(|| shared.key.clone());
            let identity = self.client_identity(certificate, key);
            OtlpSignal {
                url: whole.unwrap_or_else(|| format!("{base}/{path}")),
                headers: requests
                    .headers
                    .or_else(|| shared.headers.clone())
                    .unwrap_or_default(),
                timeout: requests.timeout.or(shared.timeout).unwrap_or(TIMEOUT),
                is_compressed: requests
                    .is_compressed
                    .or(shared.is_compressed)
                    .unwrap_or_default(),
                ca_file: requests.ca_file.or_else(|| shared.ca_file.clone()),
                identity,
            }
        };
        let to = [
            signal("TRACES", "v1/traces"),
            signal("METRICS", "v1/metrics"),
            signal("LOGS", "v1/logs"),
        ];
        let [of_traces, of_metrics, to_logs] = to;
        Otlp {
            resource,
            traces: traces.then_some(Traces {
                signal: of_traces,
                terms,
                batches: of_spans,
            }),
            metrics: metrics.then(|| OtlpMetrics {
                signal: of_metrics,
                interval: every.unwrap_or(METRICS_INTERVAL),
            }),
            logs: logs.then_some(OtlpLogs {
                signal: to_logs,
                batches: of_logs,
            }),
        }
    }

    /// Whether a signal is exported: if an endpoint is configured, unless its exporter setting says
    /// otherwise.
    fn is_exported(&mut self, base: Option<&WrittenValue>, otel: &Section, signal: &str) -> bool {
        let exporter = otel.one(&format!("OTEL_{signal}_EXPORTER"));
        let exporters = [("otlp", true), ("none", false)];
        let chosen = self.read(exporter, |given| value::choice(given, &exporters));
        let own = otel.one(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"));
        let is_named = base.is_some() || own.is_some();
        chosen.unwrap_or(is_named && exporter.is_none())
    }

    /// Reads the request settings of one signal or of all signals.
    fn requests<'a>(&mut self, one: &dyn Fn(&str) -> Option<&'a WrittenValue>) -> OtlpRequests {
        self.read(one("PROTOCOL"), |given| {
            let protocols = [("http/protobuf", ())];
            value::choice(given, &protocols)
        });
        let compressions = [("none", false), ("gzip", true)];
        let is_compressed = self.read(one("COMPRESSION"), |given| {
            value::choice(given, &compressions)
        });
        let timeout = self.read(one("TIMEOUT"), milliseconds);
        let mut file = |end: &str| {
            self.read(one(end), |given| {
                let path = value::text(given, "a file")?;
                Ok(OtlpFile {
                    path: path.into(),
                    variable: given.at.clone(),
                })
            })
        };
        let (ca_file, certificate, key) = (
            file("CERTIFICATE"),
            file("CLIENT_CERTIFICATE"),
            file("CLIENT_KEY"),
        );
        OtlpRequests {
            headers: self.read(one("HEADERS"), |given| {
                let wanted = "NAME=VALUE";
                let headers = headers(&pairs(given, wanted)?);
                headers.map_err(|found| Problem::new(&given.at, found, wanted_pairs(wanted)))
            }),
            timeout: timeout.filter(|timeout| !timeout.is_zero()),
            is_compressed,
            ca_file,
            certificate,
            key,
        }
    }

    /// Returns the client certificate and its key. Reports a problem if only one of them is set.
    fn client_identity(
        &mut self,
        certificate: Option<OtlpFile>,
        key: Option<OtlpFile>,
    ) -> Option<(OtlpFile, OtlpFile)> {
        if certificate.is_some() != key.is_some() {
            let names = ("CLIENT_CERTIFICATE", "CLIENT_KEY");
            let (set, missing) = match key {
                None => names,
                Some(_) => (names.1, names.0),
            };
            let problem = Problem::new(
                format!("OTEL_EXPORTER_OTLP_{set}"),
                format!("OTEL_EXPORTER_OTLP_{missing} is not set"),
                "both or neither",
            );
            // Signals that use the same variables have the same problem.
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
        certificate.zip(key)
    }

    /// Refuses unsupported values of the variables in [`FIXED`].
    fn fixed(&mut self, otel: &Section) {
        for (name, values) in FIXED {
            let values: Vec<(&str, ())> = values.iter().map(|value| (*value, ())).collect();
            self.read(otel.one(name), |given| {
                let parts = given.text.split(',').map(|part| WrittenValue {
                    text: part.trim().to_owned(),
                    ..given.clone()
                });
                parts
                    .map(|part| value::choice(&part, &values))
                    .collect::<Result<Vec<_>, _>>()
            });
        }
    }

    fn trace_terms(&mut self, program: Layers<'_>) -> TraceTerms {
        let samplers = [
            ("always_on", (Some(1.0), false)),
            ("always_off", (Some(0.0), false)),
            ("traceidratio", (None, false)),
            ("parentbased_always_on", (Some(1.0), true)),
            ("parentbased_always_off", (Some(0.0), true)),
            ("parentbased_traceidratio", (None, true)),
        ];
        let sampler = self.read(program.one("trace-sampler"), |given| {
            value::choice(given, &samplers)
        });
        let share = self.read(program.one("trace-share"), share);
        let alone = program.one("trace-sampler").is_none();
        let by_share = share.unwrap_or(1.0);
        let sampler = match sampler {
            Some((fixed, follows_parent)) => Sampler {
                share: fixed.unwrap_or(by_share),
                follows_parent,
            },
            None => Sampler {
                share: if alone { by_share } else { 1.0 },
                ..Sampler::default()
            },
        };
        let errors = [("sampled", false), ("always", true)];
        let parents = [("link", false), ("message", true)];
        let keeps_failures = self.read(program.one("trace-errors"), |given| {
            value::choice(given, &errors)
        });
        let continues_trace = self.read(program.one("trace-parent"), |given| {
            value::choice(given, &parents)
        });
        TraceTerms {
            sampler,
            keeps_failures: keeps_failures.unwrap_or_default(),
            continues_trace: continues_trace.unwrap_or_default(),
        }
    }

    /// Reads the batch settings. `processor` is the specification's name of the batch processor.
    fn otlp_batches(&mut self, otel: &Section, processor: &str, default: Batches) -> Batches {
        let ends = ["MAX_QUEUE_SIZE", "MAX_EXPORT_BATCH_SIZE", "SCHEDULE_DELAY"];
        let [held, sent, waited] = ends.map(|end| otel.one(&format!("OTEL_{processor}_{end}")));
        let capacity = self.read(held, item_count).unwrap_or(default.capacity);
        let most = self.read(sent, item_count).unwrap_or(default.most);
        let delay = self.read(waited, some_milliseconds);
        Batches {
            capacity,
            most: most.min(capacity),
            delay: delay.unwrap_or(default.delay),
        }
    }

    /// Returns the resource attributes. `service.name` comes from the variables, or else it is the
    /// program's name.
    fn resource(&mut self, otel: &Section, name: Option<&str>) -> Resource {
        let attributes = otel.one("OTEL_RESOURCE_ATTRIBUTES");
        let read = self.read(attributes, |given| pairs(given, "key=value"));
        let mut resource = read.unwrap_or_default();
        if let Some(given) = otel.one("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), given.text.trim().to_owned()));
        } else if !resource.iter().any(|(key, _)| key == "service.name") {
            let name = name.unwrap_or("dispatcher").to_owned();
            resource.push(("service.name".to_owned(), name));
        }
        let fixed = [
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("telemetry.sdk.name", "dispatcher"),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ];
        for (key, value) in fixed {
            if !resource.iter().any(|(own, _)| own == key) {
                resource.push((key.to_owned(), value.to_owned()));
            }
        }
        resource
    }
}

/// Parses a share from 0 to 1.
fn share(given: &WrittenValue) -> Result<f64, Problem> {
    let text = given.text.trim();
    let number = text.parse::<f64>().ok();
    number
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| {
            let found = format!("`{text}` is not a share");
            Problem::new(&given.at, found, "a number from 0 to 1").hint("written like 0.1")
        })
}

/// Parses a number of spans or log records.
fn item_count(given: &WrittenValue) -> Result<usize, Problem> {
    value::number(given, &(1..=MOST_WAITING))
}

fn milliseconds(given: &WrittenValue) -> Result<Duration, Problem> {
    milliseconds_from(given, 0)
}

/// Parses a repeated delay, which cannot be zero.
fn some_milliseconds(given: &WrittenValue) -> Result<Duration, Problem> {
    milliseconds_from(given, 1)
}

fn milliseconds_from(given: &WrittenValue, least: u64) -> Result<Duration, Problem> {
    let ms = value::number(given, &(least..=LONGEST_MS)).map_err(|problem| {
        let hint = "a whole number of milliseconds, written like 10000";
        problem.hint(hint)
    })?;
    Ok(Duration::from_millis(ms))
}

/// Parses comma-separated pairs with percent-encoded values, as in `a=1,b=x%20y`.
fn pairs(given: &WrittenValue, wanted: &str) -> Result<Vec<(String, String)>, Problem> {
    let parts = given
        .text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let pairs = parts.map(|part| {
        let (name, value) = part.split_once('=')?;
        let name = name.trim();
        (!name.is_empty()).then(|| Some((name.to_owned(), decoded(value.trim())?)))?
    });
    pairs.collect::<Option<Vec<_>>>().ok_or_else(|| {
        // The message does not quote the value: headers may be secret.
        let found = "a part that is not a pair";
        Problem::new(&given.at, found, wanted_pairs(wanted))
    })
}

fn wanted_pairs(one: &str) -> String {
    format!("{one} with commas between them, values percent-encoded")
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let two = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&two).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Flags;
    use crate::otel::take;

    fn read(variables: &[(&str, &str)], flag: Option<(&str, &str)>) -> (Otlp, Vec<String>) {
        let mut flags = Flags::default();
        if let Some((name, text)) = flag {
            assert!(flags.take(name, WrittenValue::new(format!("--{name}"), text)));
        }
        let owned = variables.iter().map(|(name, text)| pair(name, text));
        take(&mut flags, owned);
        let mut check = Check::default();
        let otlp = check.otlp(Layers(&[&flags.program]), &flags.otel, Some("orders"));
        let problems = check.problems.iter().map(ToString::to_string);
        (otlp, problems.collect())
    }

    fn pair(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    fn exports_traces(variables: &[(&str, &str)]) -> bool {
        read(variables, None).0.traces.is_some()
    }

    fn exports_metrics(variables: &[(&str, &str)]) -> bool {
        read(variables, None).0.metrics.is_some()
    }

    fn exports_logs(variables: &[(&str, &str)]) -> bool {
        read(variables, None).0.logs.is_some()
    }

    fn client_file(path: &str, end: &str) -> OtlpFile {
        OtlpFile {
            path: path.into(),
            variable: format!("OTEL_EXPORTER_OTLP_CLIENT_{end}"),
        }
    }

    #[test]
    fn nothing_is_exported_unless_a_collector_is_named() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        assert!(!exports_traces(&[]));
        assert!(!exports_traces(&[("OTEL_SERVICE_NAME", "a")]));
        assert!(!exports_traces(&[(endpoint.0, "")]));
        assert!(exports_traces(&[endpoint]));
        assert!(exports_traces(&[("OTEL_TRACES_EXPORTER", "otlp")]));
        assert!(!exports_traces(&[
            endpoint,
            ("OTEL_TRACES_EXPORTER", "none")
        ]));
        assert!(!exports_traces(&[endpoint, ("OTEL_SDK_DISABLED", "true")]));
        assert!(!exports_metrics(&[]) && exports_metrics(&[endpoint]));
        assert!(exports_metrics(&[("OTEL_METRICS_EXPORTER", "otlp")]));
        assert!(!exports_metrics(&[
            endpoint,
            ("OTEL_METRICS_EXPORTER", "none")
        ]));
        let own = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://collector/logs");
        assert!(!exports_logs(&[endpoint]) && exports_logs(&[own]));
        assert!(exports_logs(&[endpoint, ("OTEL_LOGS_EXPORTER", "otlp")]));
        assert!(!exports_logs(&[own, ("OTEL_LOGS_EXPORTER", "none")]));
    }

    #[test]
    fn endpoint_of_the_signal_is_taken_as_it_is_and_the_common_one_gets_the_path() {
        let common = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces/x");
        let flag = Some(("otlp-endpoint", "http://flag:1"));
        let exporter = ("OTEL_TRACES_EXPORTER", "otlp");
        for (variables, flag, url) in [
            (&[common][..], None, "http://collector:4318/v1/traces"),
            (&[common, own], None, "https://traces/x"),
            (&[common], flag, "http://flag:1/v1/traces"),
            (&[exporter], None, "http://localhost:4318/v1/traces"),
        ] {
            let (otlp, _) = read(variables, flag);
            let traces = otlp.traces.expect("they are on");
            assert_eq!(traces.signal.url, url);
        }
        let metrics = read(&[common, own], None).0.metrics.expect("they are on");
        assert_eq!(metrics.signal.url, "http://collector:4318/v1/metrics");
    }

    #[test]
    fn variables_of_the_specification_are_obeyed() {
        let (otlp, problems) = read(
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, other=1"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
                ("OTEL_BSP_SCHEDULE_DELAY", "10"),
                ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "500"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
                ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
                ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "client.pem"),
                ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "client.key"),
                ("OTEL_PROPAGATORS", "tracecontext,baggage"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,team=a%2Cb"),
            ],
            Some(("trace-errors", "always")),
        );
        assert_eq!(problems, [""; 0]);
        let traces = otlp.traces.expect("it is on");
        let headers =
            super::headers(&[pair("api-key", "a b"), pair("other", "1")]).expect("they are some");
        assert_eq!(traces.signal.headers, headers);
        assert!(!format!("{:?}", traces.signal).contains("a b"));
        assert_eq!(traces.signal.timeout, Duration::from_millis(250));
        assert_eq!(traces.terms.sampler.share.to_string(), "0.25");
        let metrics = otlp.metrics.expect("they are on");
        assert_eq!(metrics.interval, Duration::from_millis(1_500));
        assert_eq!(metrics.signal.timeout, Duration::from_millis(500));
        assert_eq!(metrics.signal.headers, headers);
        assert!(metrics.signal.is_compressed && !traces.signal.is_compressed);
        let identity = Some((
            client_file("client.pem", "CERTIFICATE"),
            client_file("client.key", "KEY"),
        ));
        assert_eq!(metrics.signal.identity, identity);
        assert!(traces.terms.sampler.follows_parent && traces.terms.keeps_failures);
        let batches = Batches {
            capacity: 100,
            most: 100,
            delay: Duration::from_millis(10),
        };
        assert_eq!(traces.batches, batches);
        assert_eq!(otlp.resource[0], pair("service.name", "x"));
        assert_eq!(otlp.resource[1], pair("team", "a,b"));
        let (named, _) = read(&[], None);
        assert!(named.resource.contains(&pair("service.name", "orders")));
    }

    #[test]
    fn wrong_values_are_named_with_what_was_wanted() {
        let (_, problems) = read(
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "secret-key"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
                ("OTEL_TRACES_SAMPLER", "parentbased_alwayson"),
                ("OTEL_TRACES_SAMPLER_ARG", "10%"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
                ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "client.key"),
                ("OTEL_PROPAGATORS", "tracecontext,b3"),
                ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
            ],
            None,
        );
        let all = problems.join("\n");
        assert_eq!(problems.len(), 11, "{all}");
        for wanted in [
            "OTEL_EXPORTER_OTLP_ENDPOINT: `collector:4318` is not the address of a service; wanted http:// or https://",
            "OTEL_EXPORTER_OTLP_PROTOCOL: `grpc` is not known; wanted http/protobuf",
            "OTEL_EXPORTER_OTLP_HEADERS: a part that is not a pair; wanted NAME=VALUE",
            "OTEL_EXPORTER_OTLP_TIMEOUT: `10s` is not a whole number; wanted 0 to 3600000",
            "did you mean `parentbased_always_on`?",
            "OTEL_TRACES_SAMPLER_ARG: `10%` is not a share; wanted a number from 0 to 1",
            "OTEL_EXPORTER_OTLP_COMPRESSION: `zstd` is not known; wanted none or gzip",
            "OTEL_EXPORTER_OTLP_CLIENT_KEY: OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not set; wanted both or neither",
            "OTEL_PROPAGATORS: `b3` is not known",
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: `delta` is not known; wanted cumulative",
            "OTEL_BSP_MAX_QUEUE_SIZE: `0` is out of range; wanted 1 to 1000000",
        ] {
            assert!(all.contains(wanted), "{wanted} is not in\n{all}");
        }
        assert!(!all.contains("secret-key"), "{all}");
        // Whether or not anything is exported.
        let (_, problems) = read(
            &[
                ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "abc"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret"),
                ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "key=%0Asecret"),
                ("OTEL_BSP_SCHEDULE_DELAY", "0"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
            ],
            None,
        );
        let all = problems.join("\n");
        assert_eq!(problems.len(), 6, "{all}");
        for wanted in [
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: `grpc` is not known; wanted http/protobuf",
            "OTEL_EXPORTER_OTLP_TIMEOUT: `abc` is not a whole number",
            "OTEL_EXPORTER_OTLP_HEADERS: `a b` is not the name of a header; wanted NAME=VALUE",
            "OTEL_EXPORTER_OTLP_LOGS_HEADERS: the value of `key` is not valid in a header; wanted",
            "OTEL_BSP_SCHEDULE_DELAY: `0` is out of range; wanted 1 to 3600000",
            "OTEL_METRIC_EXPORT_INTERVAL: `0` is out of range; wanted 1 to 3600000",
        ] {
            assert!(all.contains(wanted), "{wanted} is not in\n{all}");
        }
        assert!(!all.contains("secret"), "{all}");
        let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:99999")];
        let problems = read(&endpoint, None).1.join("");
        let wanted = "`99999` is not a port; wanted a port from 1 to 65535";
        assert!(problems.contains(wanted), "{problems}");
        let exporter = [("OTEL_TRACES_EXPORTER", "zipkin")];
        assert_eq!(read(&exporter, None).1.len(), 1);
    }
}
