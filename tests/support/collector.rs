//! A collector of OTLP over HTTP that is not ours: Python's HTTP server, with the messages of PyPI's
//! `opentelemetry-proto`. Knows nothing of the program.

use crate::PATIENCE;
use crate::toolchains::python;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

const PACKAGES: [&str; 1] = ["opentelemetry-proto==1.45.2"];

/// Prints its port, then a line for each span, for each point of a metric and for each log record before
/// it answers the request that brought it. Ends with its standard input.
const SCRIPT: &str = r#"
import gzip, json, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

def value(any):
    kind = any.WhichOneof('value')
    if kind == 'array_value':
        return [value(one) for one in any.array_value.values]
    if kind == 'kvlist_value':
        return attributes(any.kvlist_value.values)
    return getattr(any, kind)

def attributes(pairs):
    found = {}
    for pair in pairs:
        assert pair.key not in found, pair.key
        found[pair.key] = value(pair.value)
    return found

KINDS = {1: 'internal', 2: 'server', 3: 'client', 4: 'producer', 5: 'consumer'}
printing = threading.Lock()

def put(signal, what):
    print(json.dumps({'signal': signal, 'what': what}), flush=True)

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        assert self.headers['Content-Type'] == 'application/x-protobuf'
        if self.headers.get('Content-Encoding') == 'gzip':
            body = gzip.decompress(body)
        with printing:
            self.answer(getattr(self, self.path.replace('/v1/', 'take_'))(body))

    def take_metrics(self, body):
        request = metrics.ExportMetricsServiceRequest.FromString(body)
        for of_resource in request.resource_metrics:
            for of_scope in of_resource.scope_metrics:
                names = [metric.name for metric in of_scope.metrics]
                assert len(names) == len(set(names)), names
                for metric in of_scope.metrics:
                    kind = metric.WhichOneof('data')
                    data = getattr(metric, kind)
                    assert data.data_points, metric.name
                    for point in data.data_points:
                        assert 0 < point.start_time_unix_nano <= point.time_unix_nano
                        found = {
                            'name': metric.name,
                            'kind': kind,
                            'unit': metric.unit,
                            'description': metric.description,
                            'attributes': attributes(point.attributes),
                            'scope': of_scope.scope.name,
                            'resource': attributes(of_resource.resource.attributes),
                        }
                        if kind != 'gauge':
                            assert data.aggregation_temporality == 2
                        if kind == 'sum':
                            assert data.is_monotonic
                        if kind == 'histogram':
                            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
                            assert sum(point.bucket_counts) == point.count
                            found.update(count=point.count, sum=point.sum,
                                         traces=[one.trace_id.hex() for one in point.exemplars],
                                         spans=[one.span_id.hex() for one in point.exemplars])
                        else:
                            found['value'] = getattr(point, point.WhichOneof('value'))
                        put('metrics', found)
        return metrics.ExportMetricsServiceResponse()

    def take_logs(self, body):
        request = logs.ExportLogsServiceRequest.FromString(body)
        for of_resource in request.resource_logs:
            for of_scope in of_resource.scope_logs:
                for record in of_scope.log_records:
                    assert 0 < record.time_unix_nano and 0 < record.observed_time_unix_nano
                    put('logs', {
                        'body': value(record.body),
                        'event': record.event_name or None,
                        'level': record.severity_text,
                        'severity': record.severity_number,
                        'trace': record.trace_id.hex() or None,
                        'span': record.span_id.hex() or None,
                        'attributes': attributes(record.attributes),
                        'scope': of_scope.scope.name,
                        'resource': attributes(of_resource.resource.attributes),
                    })
        return logs.ExportLogsServiceResponse()

    def take_traces(self, body):
        request = traces.ExportTraceServiceRequest.FromString(body)
        for of_resource in request.resource_spans:
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    assert len(span.trace_id) == 16 and len(span.span_id) == 8
                    assert len(span.parent_span_id) in (0, 8)
                    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
                    put('traces', {
                        'name': span.name,
                        'kind': KINDS[span.kind],
                        'trace': span.trace_id.hex(),
                        'id': span.span_id.hex(),
                        'parent': span.parent_span_id.hex() or None,
                        'began': span.start_time_unix_nano,
                        'ended': span.end_time_unix_nano,
                        'attributes': attributes(span.attributes),
                        'links': [{'trace': link.trace_id.hex(), 'id': link.span_id.hex(),
                                   'attributes': attributes(link.attributes)} for link in span.links],
                        'error': span.status.message if span.status.code == 2 else None,
                        'ok': span.status.code == 1,
                        'events': [{'name': event.name, 'attributes': attributes(event.attributes)}
                                   for event in span.events],
                        'dropped_attributes': span.dropped_attributes_count,
                        'dropped_links': span.dropped_links_count,
                        'sampled': bool(span.flags & 1),
                        'scope': of_scope.scope.name,
                        'resource': attributes(of_resource.resource.attributes),
                        'key': self.headers.get('api-key'),
                        'encoding': self.headers.get('Content-Encoding'),
                    })
        return traces.ExportTraceServiceResponse()

    def answer(self, message):
        answer = message.SerializeToString()
        self.send_response(200)
        self.send_header('Content-Type', 'application/x-protobuf')
        self.send_header('Content-Length', str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(json.dumps({'port': server.server_port}), flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
os._exit(0)
"#;

/// The collector. Ends when dropped.
#[derive(Debug)]
pub struct Collector {
    child: Child,
    /// It ends with this pipe.
    _alive: Option<ChildStdin>,
    url: String,
    received: Arc<(Mutex<ReceivedSignals>, Condvar)>,
}

/// What came, in the order in which it came.
#[derive(Debug, Default)]
struct ReceivedSignals {
    spans: Vec<Value>,
    metrics: Vec<Value>,
    logs: Vec<Value>,
}

impl Collector {
    /// Starts one.
    pub fn start() -> Self {
        let python = python(&PACKAGES);
        let mut child = Command::new(python)
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("python starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        let first: Value = serde_json::from_str(&first).expect("the port");
        let received = Arc::<(Mutex<ReceivedSignals>, Condvar)>::default();
        let shared = Arc::clone(&received);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut line: Value = serde_json::from_str(&line).expect("JSON");
                let what = line["what"].take();
                let (received, changed) = &*shared;
                let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
                match line["signal"].as_str() {
                    Some("traces") => received.spans.push(what),
                    Some("metrics") => received.metrics.push(what),
                    _ => received.logs.push(what),
                }
                changed.notify_all();
            }
        });
        Self {
            url: format!("http://127.0.0.1:{}", first["port"]),
            _alive: child.stdin.take(),
            child,
            received,
        }
    }

    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` is set to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The spans that came, once this holds of them, in the order in which they began.
    pub fn wait(&self, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let mut found = self.wait_of(|received| &received.spans, holds);
        found.sort_by_key(|span| span["began"].as_u64());
        found
    }

    /// The points of metrics that came, once this holds of them.
    pub fn wait_for_metrics(&self, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        self.wait_of(|received| &received.metrics, holds)
    }

    /// The log records that came, once this holds of them.
    pub fn wait_for_logs(&self, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        self.wait_of(|received| &received.logs, holds)
    }

    fn wait_of(
        &self,
        of: fn(&ReceivedSignals) -> &Vec<Value>,
        holds: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let (received, changed) = &*self.received;
        let deadline = Instant::now() + PATIENCE;
        let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
        while !holds(of(&received)) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "these came: {:#?}", of(&received));
            let waited = changed.wait_timeout(received, left);
            received = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        of(&received).clone()
    }

    /// The spans of this name, once there are so many.
    pub fn wait_for(&self, name: &str, count: usize) -> Vec<Value> {
        let all = self.wait(|spans| named(spans, name).len() >= count);
        let mut found = named(&all, name);
        assert_eq!(found.len(), count, "{all:#?}");
        found.drain(..).cloned().collect()
    }
}

/// The spans of this name.
pub fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

impl Drop for Collector {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
