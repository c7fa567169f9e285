//! Outgoing HTTPS of a plugin, to a server on the loopback interface with a certificate of the tests'
//! own; see `tls/README.md`.

use crate::handlers::capabilities::{invoke, told};
use crate::scene::tls_file;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Answers everybody over TLS, as `localhost`; prints its port.
const TLS_SERVER: &str = r#"
import http.server, ssl, sys
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server = http.server.HTTPServer(("127.0.0.1", 0), Hello)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A child that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn https_uses_the_trust_store_of_the_system() {
    let mut server = Command::new("python3")
        .args([
            "-c",
            TLS_SERVER,
            &tls_file("leaf.pem"),
            &tls_file("leaf.key"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3");
    let mut port = String::new();
    let mut said = BufReader::new(server.stdout.take().expect("it is piped"));
    said.read_line(&mut port).expect("it tells its port");
    let _server = Ends(server);
    let host = format!("localhost:{}", port.trim());
    let ask = |host: &str| {
        let body = format!("http GET https://{host}/");
        invoke(&body, &["--allow-http", host])
    };
    let trusting = ask(&host).env("SSL_CERT_FILE", &tls_file("ca.pem")).run();
    assert_eq!(told(&trusting), "got 200, 5 bytes: hello");
    let strange = ask(&host).run();
    assert_eq!(told(&strange), "ErrorCode::TlsCertificateError");
    // The certificate is one of `localhost` and of nobody else.
    let address = host.replace("localhost", "127.0.0.1");
    let other = ask(&address)
        .env("SSL_CERT_FILE", &tls_file("ca.pem"))
        .run();
    assert_eq!(told(&other), "ErrorCode::TlsCertificateError");
}
