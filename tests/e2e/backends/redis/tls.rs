//! Redis over TLS, with ACL users and client certificates: what works, and what a refusal shows. The
//! server's certificate is the one of `tls/README.md`.

use crate::backends::redis::scene::RedisScene;
use crate::scene::{guest, printed, prints, run, tls_file};
use dispatcher_tests::child::{ExitedProgram, Program, Signal};
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::servers::free_port;
use std::path::Path;
use std::process::Command;

/// A server that speaks TLS on one port, and to the test on another.
pub(crate) struct Secure {
    scene: RedisScene,
    port: u16,
}

impl Secure {
    /// One that asks no client for a certificate.
    pub(crate) fn of_anyone() -> Self {
        Self::start(&tls_file("ca.pem"), "no")
    }

    fn start(authorities: &str, clients: &str) -> Self {
        let port = free_port();
        let (certificate, key) = (tls_file("leaf.pem"), tls_file("leaf.key"));
        let server = RedisServer::start(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            authorities,
            "--tls-auth-clients",
            clients,
        ]);
        Self {
            scene: RedisScene::new(server),
            port,
        }
    }

    /// The address for a user of this name and password.
    pub(crate) fn url(&self, user: &str) -> String {
        format!("rediss://{user}localhost:{}", self.port)
    }

    fn command(&self, url: &str, arguments: &[&str]) -> ExitedProgram {
        Program::new(arguments)
            .env("DISPATCHER_REDIS_URL", url)
            .env("DISPATCHER_REDIS_CA_FILE", &tls_file("ca.pem"))
            .run()
    }
}

#[tokio::test]
async fn finding_10_messages_are_handled_over_tls_as_an_acl_user() {
    let secure = Secure::of_anyone();
    let rights = "ACL SETUSER app on >s3cr%t ~{dispatcher}* ~{dispatcher:* &{dispatcher:* +@all \
                  -@dangerous -@admin";
    let rights: Vec<&str> = rights.split(' ').filter(|word| !word.is_empty()).collect();
    let made = secure.scene.server.connect().call(&rights);
    assert_eq!(made.expect("an answer").text(), "OK");
    let url = secure.url("app:s3cr%25t@");
    let queue = secure.scene.full();
    let sent = secure.command(&url, &["send", &queue, "print:over TLS"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let ca = tls_file("ca.pem");
    let arguments = [
        "--queues",
        &queue,
        "--redis-url",
        &url,
        "--redis-ca-file",
        &ca,
    ];
    let mut running = run("verdicts", &arguments).start();
    running.wait_for_line(printed);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(prints(&running), ["over TLS"]);
    let said = running
        .lines(|line| line.contains("maxmemory-policy"))
        .len();
    assert_eq!(said, 1, "the user may ask neither INFO nor CONFIG");
    let wrong = secure.command(&secure.url("app:oh-no@"), &["queues", "redis:"]);
    assert_ne!(wrong.code, 0);
    assert!(
        wrong.stderr.contains("WRONGPASS") || wrong.stderr.contains("uthentication"),
        "{}",
        wrong.stderr
    );
    assert!(!wrong.stderr.contains("oh-no"), "{}", wrong.stderr);
}

#[test]
fn finding_10_untrusted_server_certificate_is_refused() {
    let secure = Secure::of_anyone();
    let url = secure.url("u:s3cret@");
    let refused = |ended: ExitedProgram| {
        assert_eq!(ended.code, 3, "{}", ended.stderr);
        assert!(ended.stderr.contains("certificate"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
    };
    // Trusted by nobody but the file.
    refused(
        Program::new(["queues", "redis:", "--redis-url", &url])
            .env("SSL_CERT_FILE", &tls_file("leaf.pem"))
            .run(),
    );
    // The certificate is one of `localhost` and of nobody else.
    let other = format!("rediss://u:s3cret@127.0.0.1:{}", secure.port);
    refused(secure.command(&other, &["queues", "redis:"]));
    let trusted = Program::new(["queues", "redis:", "--redis-url", &secure.url("")])
        .env("SSL_CERT_FILE", &tls_file("ca.pem"))
        .run();
    assert_eq!(trusted.code, 0, "{}", trusted.stderr);
}

#[test]
fn finding_10_client_presents_its_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (certificate, key) = (at("client.pem"), at("client.key"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=client", "-keyout", &key, "-out", &certificate])
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    let read = |file: &str| std::fs::read_to_string(Path::new(file)).expect("a file");
    let both = at("both.pem");
    std::fs::write(&both, read(&tls_file("ca.pem")) + &read(&certificate)).expect("written");
    let secure = Secure::start(&both, "yes");
    let url = secure.url("");
    let without = secure.command(&url, &["queues", "redis:"]);
    assert_eq!(without.code, 3, "{}", without.stderr);
    let shown = ["--redis-cert-file", &certificate, "--redis-key-file", &key];
    let with = secure.command(&url, &[&["queues", "redis:"][..], &shown].concat());
    assert_eq!(with.code, 0, "{}", with.stderr);
    let half = secure.command(&url, &["queues", "redis:", "--redis-key-file", &key]);
    assert_eq!(half.code, 2, "{}", half.stderr);
    assert!(half.stderr.contains("cert-file"), "{}", half.stderr);
    let missing = secure.command(
        &url,
        &["queues", "redis:", "--redis-ca-file", "/nowhere.pem"],
    );
    assert_eq!(missing.code, 2, "{}", missing.stderr);
    assert!(
        missing.stderr.contains("/nowhere.pem"),
        "{}",
        missing.stderr
    );
}

#[test]
fn finding_10_refused_address_is_the_only_problem_and_is_never_connected() {
    let hello = guest("hello");
    for command in ["run", "check"] {
        for address in [
            "rediss://u:s3cret@h/x",
            "redis://u:s3cret@h?tls=yes",
            "s3cret",
        ] {
            let arguments = [command, "--plugin", &hello, "--queues", "redis:q"];
            let ended = Program::new(arguments)
                .env("DISPATCHER_REDIS_URL", address)
                .run();
            assert_eq!(ended.code, 2, "{}", ended.stderr);
            assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
            // What would be said of the default server.
            assert!(!ended.stderr.contains("Redis at"), "{}", ended.stderr);
        }
        let arguments = [command, "--plugin", &hello, "--queues", "orders"];
        let ended = Program::new(arguments)
            .env("DISPATCHER_ENDPOINT_URL", "nonsense")
            .run();
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(!ended.stderr.contains("orders"), "{}", ended.stderr);
    }
}

#[test]
fn finding_08_tls_files_are_read_with_limits() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe").display().to_string();
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let url = "rediss://localhost:1";
    let (certificate, key) = (tls_file("leaf.pem"), tls_file("leaf.key"));
    for found in [pipe.as_str(), "/dev/zero"] {
        for files in [
            &["--redis-ca-file", found][..],
            &["--redis-cert-file", found, "--redis-key-file", &key],
            &["--redis-cert-file", &certificate, "--redis-key-file", found],
        ] {
            let common = ["queues", "redis:", "--redis-url", url];
            let ended = Program::new([&common[..], files].concat())
                .env("SSL_CERT_FILE", &tls_file("ca.pem"))
                .run();
            assert_eq!(ended.code, 2, "{}", ended.stderr);
            assert!(ended.stderr.contains(found), "{}", ended.stderr);
            let wanted = "where a regular file is wanted";
            assert!(ended.stderr.contains(wanted), "{}", ended.stderr);
        }
    }
}
