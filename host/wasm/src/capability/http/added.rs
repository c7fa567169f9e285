//! Headers that the host adds to every request of a plugin, so that the guest never sees them.
//! Their owner reads the files or settings.

use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::tasks;
use http::HeaderMap;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The time for which headers are used before they are read again.
const KEPT: Duration = Duration::from_secs(5);

type ReadHeaders = dyn Fn() -> Option<HeaderMap> + Send + Sync;

/// Headers that may change while the plugin runs. Cheap to clone.
#[derive(Clone, Default)]
pub struct AddedHeaders(Option<Arc<Source>>);

struct Source {
    known: Mutex<KnownHeaders>,
    read: Box<ReadHeaders>,
}

struct KnownHeaders {
    at: BootInstant,
    headers: HeaderMap,
}

impl AddedHeaders {
    /// Uses these headers until `read` returns others. `read` may block, and returns `None` to keep
    /// the current ones.
    pub fn new(
        headers: HeaderMap,
        read: impl Fn() -> Option<HeaderMap> + Send + Sync + 'static,
    ) -> Self {
        let at = clock::now();
        let source = Source {
            known: Mutex::new(KnownHeaders { at, headers }),
            read: Box::new(read),
        };
        Self(Some(Arc::new(source)))
    }

    /// Adds the headers to a request, in place of its headers with the same names. Every five
    /// seconds one request reads them again first.
    pub(super) async fn add(&self, request: &mut HeaderMap) {
        let Some(source) = &self.0 else {
            return;
        };
        if source.is_due(clock::now()) {
            let reader = Arc::clone(source);
            tasks::blocking(move || reader.read_again())
                .finished()
                .await;
        }
        let known = source.known.lock();
        for (name, value) in &known.headers {
            request.insert(name, value.clone());
        }
    }
}

impl Source {
    /// Whether it is time to read the headers. If so, it also starts the next interval.
    fn is_due(&self, now: BootInstant) -> bool {
        let mut known = self.known.lock();
        let is_due = now.since(known.at) >= KEPT;
        if is_due {
            known.at = now;
        }
        is_due
    }

    fn read_again(&self) {
        if let Some(headers) = (self.read)() {
            let mut known = self.known.lock();
            known.headers = headers;
        }
    }
}

impl fmt::Debug for AddedHeaders {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("AddedHeaders")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http::header::AUTHORIZATION;

    fn token(text: &'static str) -> HeaderMap {
        [(AUTHORIZATION, HeaderValue::from_static(text))]
            .into_iter()
            .collect()
    }

    #[tokio::test]
    async fn headers_are_read_again_once_they_are_old_and_kept_where_they_cannot_be() {
        let answers = Mutex::new(vec![None, Some(token("second"))]);
        let added = AddedHeaders::new(token("first"), move || answers.lock().pop().flatten());
        let source = added.0.clone().expect("it has headers");
        let grow_old = || source.known.lock().at = BootInstant::from_boot(Duration::ZERO);
        let sent = async || {
            let mut request = token("of the guest");
            added.add(&mut request).await;
            request[AUTHORIZATION].clone()
        };
        assert_eq!(sent().await, "first", "it is new");
        grow_old();
        assert_eq!(sent().await, "second");
        grow_old();
        assert_eq!(sent().await, "second", "there is no other");
    }

    #[test]
    fn headers_are_due_once_in_a_while() {
        let AddedHeaders(source) = AddedHeaders::new(HeaderMap::new(), || None);
        let source = source.expect("it has headers");
        let begun = source.known.lock().at;
        let due = [KEPT / 2, KEPT, KEPT, KEPT * 2].map(|after| source.is_due(begun + after));
        assert_eq!(due, [false, true, false, true]);
    }
}
