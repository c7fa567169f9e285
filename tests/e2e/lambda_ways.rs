//! The ways to Lambda's endpoint: over TLS, where one connection serves consecutive invocations, and
//! through the proxy that the environment names.

use crate::scene::{send, tls_file, until_depth};
use dispatcher_tests::child::{Program, RunningProgram, Signal, Stream};

/// A Lambda over TLS, as `localhost`. Prints its port, its connections and what it is asked.
const LAMBDA: &str = r#"
import http.server, ssl, sys
def say(text):
    print(text, flush=True)
class Lambda(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def setup(self):
        say("connected")
        super().setup()
    def answer(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(b'{"Timeout": 3, "State": "Active"}')
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        say("invoked " + self.path)
        self.answer(b"null")
    def log_message(self, *_):
        pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Lambda)
server.socket = context.wrap_socket(server.socket, server_side=True)
say("port %d" % server.server_port)
server.serve_forever()
"#;

/// A proxy that connects to whoever is asked for. Prints its port, and whom it was asked for.
const PROXY: &str = r#"
import http.server, socket, threading
def copy(one, other):
    while data := one.recv(65536):
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_CONNECT(self):
        print("asked for " + self.path, flush=True)
        host, port = self.path.split(":")
        far = socket.create_connection((host, int(port)))
        self.send_response(200)
        self.end_headers()
        threading.Thread(target=copy, args=(far, self.connection), daemon=True).start()
        copy(self.connection, far)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
print("port %d" % server.server_port, flush=True)
server.serve_forever()
"#;

fn python(script: &str, arguments: &[&str]) -> (RunningProgram, String) {
    let words = ["-c", script].into_iter().chain(arguments.iter().copied());
    let running = Program::of("python3", words).start();
    let line = running.wait_for_line(|line| line.starts_with("port "));
    let port = line.trim_start_matches("port ").trim().to_owned();
    (running, port)
}

/// A Lambda, and three messages that it handles one after the other with these variables set besides.
/// What the Lambda has printed.
async fn handled(variables: impl Fn(&str) -> Vec<(&'static str, String)>) -> String {
    let (mut lambda, port) = python(LAMBDA, &[&tls_file("leaf.pem"), &tls_file("leaf.key")]);
    let arguments = ["run", "--function", "f", "--queues", "local:a"];
    let mut program = Program::new(arguments.into_iter().chain(["--concurrency", "1"]))
        .aws(&format!("https://localhost:{port}"))
        .env("SSL_CERT_FILE", &tls_file("ca.pem"));
    for (name, value) in variables(&port) {
        program = program.env(name, &value);
    }
    let mut running = program.start();
    send(running.data().path(), "a", (0..3).map(|n| n.to_string())).await;
    let path = running.data().path().to_owned();
    until_depth(&path, "a", |depth| depth.waiting + depth.in_flight == 0).await;
    running.stop();
    lambda.signal(Signal::TERM);
    lambda.wait_exit();
    lambda.text(Stream::Out)
}

#[tokio::test]
async fn invocations_over_tls_share_a_connection() {
    let printed = handled(|_| Vec::new()).await;
    let count = |what: &str| {
        printed
            .lines()
            .filter(|line| line.starts_with(what))
            .count()
    };
    assert_eq!(
        count("invoked /2015-03-31/functions/f/invocations"),
        3,
        "{printed}"
    );
    // The configuration of the function is read by the SDK, on another connection.
    assert!(count("connected") <= 2, "{printed}");
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used_unless_the_host_is_excepted() {
    for excepted in ["", "localhost"] {
        let (mut proxy, proxy_port) = python(PROXY, &[]);
        let printed = handled(|_| {
            let proxy = format!("http://127.0.0.1:{proxy_port}");
            vec![("HTTPS_PROXY", proxy), ("NO_PROXY", excepted.to_owned())]
        })
        .await;
        proxy.signal(Signal::TERM);
        proxy.wait_exit();
        let invoked = printed.matches("invoked ").count();
        assert_eq!(invoked, 3, "{printed}");
        let asked = proxy.text(Stream::Out).contains("asked for localhost:");
        assert_eq!(asked, excepted.is_empty());
    }
}
