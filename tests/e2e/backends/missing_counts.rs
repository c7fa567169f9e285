//! A server that speaks SQS's protocol and does not report how often it delivered a message.

use crate::scene::{field, prints, run};
use dispatcher_tests::child::Program;

/// Delivers three messages, each once, without their receive counts. Prints its port.
const SERVER: &str = r#"
import hashlib, http.server, json
waiting = ["one", "two", "three"]
class Sqs(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = getattr(self, self.headers["X-Amz-Target"].split(".")[-1])(asked)
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def GetQueueUrl(self, asked):
        return {"QueueUrl": "http://%s/000000000000/q" % self.headers["Host"]}
    def GetQueueAttributes(self, asked):
        return {"Attributes": {"QueueArn": "arn:aws:sqs:us-east-1:000000000000:q", "VisibilityTimeout": "30"}}
    def ReceiveMessage(self, asked):
        if not waiting:
            return {}
        body = waiting.pop(0)
        digest = hashlib.md5(body.encode()).hexdigest()
        message = {"MessageId": body, "ReceiptHandle": body, "Body": body, "MD5OfBody": digest}
        return {"Messages": [{**message, "Attributes": {"SentTimestamp": "1700000000000"}}]}
    def DeleteMessageBatch(self, asked):
        return {"Successful": [{"Id": entry["Id"]} for entry in asked["Entries"]], "Failed": []}
    def DeleteMessage(self, asked):
        return {}
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sqs)
print("port %d" % server.server_port, flush=True)
server.serve_forever()
"#;

#[test]
fn queue_whose_server_reports_no_receive_counts_is_logged_once() {
    let server = Program::of("python3", ["-c", SERVER]).start();
    let line = server.wait_for_line(|line| line.starts_with("port "));
    let url = format!(
        "http://127.0.0.1:{}",
        line.trim_start_matches("port ").trim()
    );
    let more = ["--queues", "sqs:q", "--poll-for", "1"];
    let mut running = run("hello", &more).aws(&url).start();
    running.wait_for_lines(3, dispatcher_tests::guests::printed);
    running.stop();
    let mut handled = prints(&running);
    handled.sort_unstable();
    assert_eq!(handled, ["one", "three", "two"]);
    let is_warning = |line: &str| line.contains("the queue's server reports no receive counts");
    let lines = running.lines(is_warning);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(field(&lines[0], "level"), "WARN");
}
