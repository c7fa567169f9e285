//! A response body whose text is written piece by piece on a blocking thread, as fast as the client
//! reads it. Only one piece of a long text is in memory at a time. Records no metrics.

use dispatcher_core::tasks;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The pieces that are left, and the next one.
type WrittenPiece<T> = Pin<Box<dyn Future<Output = (T, Option<String>)> + Send>>;

/// The body of a response in pieces.
pub struct PieceBody<T> {
    /// `None` at the end.
    next: Option<WrittenPiece<T>>,
    /// The length in bytes, if the response has only one piece.
    length: Option<u64>,
}

impl<T: Iterator<Item = String> + Send + 'static> PieceBody<T> {
    /// Writes the first piece on the calling thread. If `is_all` says that it is the only one, the
    /// length of the response is known.
    pub fn begin(mut pieces: T, is_all: impl FnOnce(&T) -> bool) -> Self {
        let first = pieces.next().unwrap_or_default();
        let length = is_all(&pieces).then_some(first.len() as u64);
        Self {
            next: Some(Box::pin(async { (pieces, Some(first)) })),
            length,
        }
    }
}

impl<T> std::fmt::Debug for PieceBody<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PieceBody").finish_non_exhaustive()
    }
}

impl<T: Iterator<Item = String> + Send + 'static> Body for PieceBody<T> {
    type Data = Bytes;
    type Error = Infallible;

    fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let (mut rest, piece) = ready!(next.as_mut().poll(context));
        self.next = piece.is_some().then(|| {
            Box::pin(async {
                tasks::blocking(move || {
                    let piece = rest.next();
                    (rest, piece)
                })
                .finished()
                .await
            }) as WrittenPiece<T>
        });
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    async fn next<T>(body: &mut PieceBody<T>) -> Option<Bytes>
    where
        T: Iterator<Item = String> + Send + 'static,
    {
        let polled = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        let frame = polled?.unwrap_or_else(|never| match never {});
        frame.into_data().ok()
    }

    #[tokio::test]
    async fn pieces_come_in_their_order_and_one_alone_has_a_length() {
        for count in [0, 1, 2, 50] {
            let all = (0..count).map(|number| format!("line {number}\n"));
            let text: String = all.clone().collect();
            let mut body = PieceBody::begin(all, |rest| rest.len() == 0);
            let known = (count < 2).then_some(text.len() as u64);
            assert_eq!(body.size_hint().exact(), known, "{count}");
            let mut came = Vec::new();
            while let Some(piece) = next(&mut body).await {
                came.extend_from_slice(&piece);
            }
            assert_eq!(came, text.as_bytes(), "{count}");
        }
    }

    #[tokio::test]
    async fn no_more_is_written_than_is_taken() {
        let (sender, written) = std::sync::mpsc::channel();
        let all = (0..50).map(move |number| {
            sender.send(number).expect("the test listens");
            number.to_string()
        });
        let mut body = PieceBody::begin(all, |_| false);
        for number in 0..3 {
            let piece = next(&mut body).await.expect("more follows");
            assert_eq!(piece, number.to_string());
        }
        drop(body);
        assert_eq!(written.iter().max(), Some(2));
    }
}
