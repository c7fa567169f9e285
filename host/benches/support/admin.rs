//! The admin address of a program: found in its log, and asked with a new connection each time. Knows
//! no endpoint.

use super::program::Program;
use dispatcher_core::clock;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// What the file holds that `token_file` writes.
const TOKEN: &str = "benchmark";

/// Where a program that has just started listens.
pub(crate) fn address(program: &mut Program) -> String {
    let (_, line) = program.line("health and metrics served");
    let (_, address) = line.rsplit_once("http://").expect("the line names it");
    let end =
        address.find(|letter: char| letter != '.' && letter != ':' && !letter.is_ascii_digit());
    address[..end.unwrap_or(address.len())].to_owned()
}

/// A file for `--admin-token-file`, without which nothing can be changed.
pub(crate) fn token_file(folder: &Path) -> String {
    let file = folder.join("token");
    std::fs::write(&file, TOKEN).expect("the folder is ours");
    file.display().to_string()
}

/// The body of an answer, and how long it took to come, whole.
pub(crate) fn get(address: &str, path: &str) -> (Duration, String) {
    ask(address, "GET", path, "")
}

/// The same of an action.
pub(crate) fn post(address: &str, path: &str, body: &str) -> (Duration, String) {
    ask(address, "POST", path, body)
}

fn ask(address: &str, method: &str, path: &str, body: &str) -> (Duration, String) {
    let began = clock::now();
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let took = clock::now().since(began);
    assert!(
        answer.starts_with("HTTP/1.1 200"),
        "{method} {path}: {answer}"
    );
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (took, body.to_owned())
}
