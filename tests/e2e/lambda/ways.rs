//! The ways to Lambda's endpoint: over TLS, where one connection serves consecutive invocations, and
//! through the proxy that the environment names.

use crate::scene::{send, tls_file, until_depth};
use dispatcher_tests::child::{Program, RunningProgram, Signal, Stream};
use dispatcher_tests::faulty_lambda::{FaultyLambda, InvocationRecords};

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

fn proxy() -> (RunningProgram, String) {
    let running = Program::of("python3", ["-c", PROXY]).start();
    let line = running.wait_for_line(|line| line.starts_with("port "));
    let port = line.trim_start_matches("port ").trim().to_owned();
    (running, port)
}

/// Three messages that a Lambda over TLS handles one after the other, with these variables set
/// besides. What the Lambda has seen.
async fn handled(variables: &[(&str, String)]) -> InvocationRecords {
    let [certificate, key] = ["leaf.pem", "leaf.key"].map(tls_file);
    let lambda = FaultyLambda::start_tls(certificate.as_ref(), key.as_ref());
    let arguments = ["run", "--function", "f", "--queues", "local:a"];
    let mut program =
        Program::new(arguments.into_iter().chain(["--concurrency", "1"])).aws(&lambda.url());
    for (name, value) in variables {
        program = program.env(name, value);
    }
    let mut running = program.start();
    send(running.data().path(), "a", (0..3).map(|n| n.to_string())).await;
    let path = running.data().path().to_owned();
    until_depth(&path, "a", |depth| depth.waiting + depth.in_flight == 0).await;
    running.stop();
    lambda.state()
}

#[tokio::test]
async fn invocations_over_tls_share_a_connection() {
    let seen = handled(&[("SSL_CERT_FILE", tls_file("ca.pem"))]).await;
    let path = "/2015-03-31/functions/f/invocations";
    assert_eq!(seen.by_path.get(path), Some(&3), "{:?}", seen.by_path);
    // The configuration of the function is read at the start, perhaps on another connection.
    assert!(seen.connections <= 2, "{} connections", seen.connections);
}

#[tokio::test]
async fn a_bundle_of_authorities_is_trusted_by_its_variable_and_by_the_profile() {
    let seen = handled(&[("AWS_CA_BUNDLE", tls_file("ca.pem"))]).await;
    assert_eq!(seen.invocations, 3, "{seen}");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config");
    let profile = format!("[profile work]\nca_bundle = {}\n", tls_file("ca.pem"));
    std::fs::write(&config, profile).expect("written");
    let variables = [
        ("AWS_CONFIG_FILE", config.display().to_string()),
        ("AWS_PROFILE", "work".to_owned()),
    ];
    assert_eq!(handled(&variables).await.invocations, 3);
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used_unless_the_host_is_excepted() {
    for excepted in ["", "example.com", "localhost", "*"] {
        let (mut proxy, port) = proxy();
        let variables = [
            ("HTTPS_PROXY", format!("http://127.0.0.1:{port}")),
            ("NO_PROXY", excepted.to_owned()),
            ("SSL_CERT_FILE", tls_file("ca.pem")),
        ];
        let seen = handled(&variables).await;
        proxy.signal(Signal::TERM);
        proxy.wait_exit();
        assert_eq!(seen.invocations, 3, "{seen}");
        let asked = proxy.text(Stream::Out).contains("asked for localhost:");
        let is_excepted = ["localhost", "*"].contains(&excepted);
        assert_eq!(asked, !is_excepted, "{excepted}");
    }
}
