//! Keeps connections open: each message is the address of a feed, `IP:PORT`, and its handling never
//! ends. Every line that a feed sends is printed. A feed that is gone is connected to again.

use dispatcher_guest::{Failure, Message, cancelled, handler};
use std::io::{BufRead, BufReader, Error, ErrorKind};
use std::net::TcpStream;
use std::time::Duration;

const PAUSE: Duration = Duration::from_secs(1);

fn keep(message: Message) -> Result<(), Failure> {
    let feed = message.body.trim();
    let connection = TcpStream::connect(feed).map_err(|error| gone(feed, &error))?;
    println!("connected to {feed}");
    for line in BufReader::new(connection).lines() {
        println!("{feed}: {}", line.map_err(|error| gone(feed, &error))?);
        // Somebody else has the message by now, or nobody shall.
        if cancelled(&message) {
            return Ok(());
        }
    }
    Err(gone(feed, &Error::from(ErrorKind::ConnectionReset)))
}

/// A connection that is not granted now will not be tomorrow either; any other may come back, and until then
/// the message keeps its place.
fn gone(feed: &str, error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::PermissionDenied => Failure::reject(format!("{feed} is not granted: {error}")),
        ErrorKind::InvalidInput => Failure::reject(format!("{feed} is no IP:PORT: {error}")),
        _ => Failure::busy_for(PAUSE, format!("{feed}: {error}")),
    }
}

handler!(keep);
