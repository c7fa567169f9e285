//! Response bodies that continue: a stream of texts to one client, with a bounded buffer. A client
//! that reads more slowly than the stream is disconnected, so other clients are not affected.

use dispatcher_core::clock;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use hyper::body::{Body, Bytes, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The maximum number of texts that wait for a client that does not read.
const BUFFER: usize = 2_048;

/// The sending end of a stream.
#[derive(Debug)]
pub struct StreamWriter {
    texts: mpsc::Sender<Bytes>,
    /// Ends the client's connection.
    closed: CancellationToken,
}

impl StreamWriter {
    /// Sends a text. Returns false if the client has disconnected, or is disconnected now because
    /// it does not read.
    pub fn send(&self, text: String) -> bool {
        let sent = self.texts.try_send(text.into());
        if sent.is_err() {
            // Closes the connection, even while it waits to write.
            self.closed.cancel();
        }
        sent.is_ok()
    }

    /// Waits until the client has read everything that was sent. Returns false if the client has
    /// disconnected, or is disconnected now because it read too little within `patience`.
    pub async fn until_taken(&self, patience: Duration) -> bool {
        let taken = tokio::select! {
            taken = self.texts.reserve_many(BUFFER) => taken.is_ok(),
            () = clock::sleep_until(Some(clock::now() + patience)) => false,
        };
        if !taken {
            self.closed.cancel();
        }
        taken
    }
}

/// The body of a response that continues until its writer ends.
#[derive(Debug)]
pub struct StreamBody {
    texts: mpsc::Receiver<Bytes>,
    _writing: Task<()>,
}

impl StreamBody {
    /// Streams the texts that `write` sends. The writer ends with the connection, which `closed`
    /// closes.
    pub fn new<F>(closed: CancellationToken, write: impl FnOnce(StreamWriter) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, texts) = mpsc::channel(BUFFER);
        let writer = StreamWriter {
            texts: sender,
            closed,
        };
        Self {
            texts,
            _writing: tasks::spawn(write(writer)),
        }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.texts.poll_recv(context);
        next.map(|text| text.map(|text| Ok(Frame::data(text))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_that_does_not_read_is_dropped_when_its_buffer_is_full() {
        let closed = CancellationToken::new();
        let (done, ended) = tokio::sync::oneshot::channel();
        let body = StreamBody::new(closed.clone(), async move |writer: StreamWriter| {
            let mut sent = 0;
            while writer.send("x".to_owned()) {
                sent += 1;
            }
            let _ = done.send(sent);
        });
        assert_eq!(ended.await, Ok(BUFFER));
        assert!(closed.is_cancelled());
        drop(body);
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_for_long_is_dropped() {
        let closed = CancellationToken::new();
        let (done, ended) = tokio::sync::oneshot::channel();
        let body = StreamBody::new(closed.clone(), async move |writer: StreamWriter| {
            let before = writer.until_taken(Duration::from_secs(60)).await;
            writer.send("x".to_owned());
            let after = writer.until_taken(Duration::from_millis(1)).await;
            let _ = done.send((before, after));
        });
        assert_eq!(ended.await, Ok((true, false)));
        assert!(closed.is_cancelled());
        drop(body);
    }
}
