//! The grants of a test to the handlers that it runs, and the requests that the handlers made.

use super::fakes::{self, World};
use crate::{http, lambda, queues};
use std::marker::PhantomData;

/// Creates grants for the handlers that this thread runs. They end when the returned value is
/// dropped.
///
/// ```
/// use dispatcher_guest::{settings, store, testing};
///
/// let granted = testing::grant().setting("REGION", "north").store("seen");
/// assert_eq!(settings::get("REGION").as_deref(), Some("north"));
/// store::open("seen").unwrap().set("o-1", "yes").unwrap();
/// assert_eq!(granted.stored("seen", "o-1").as_deref(), Some(&b"yes"[..]));
/// ```
///
/// # Panics
/// Panics if something is granted to this thread already.
pub fn grant() -> Granted {
    fakes::begin();
    Granted(PhantomData)
}

/// The grants of a test. They end when this value is dropped. [`grant`] creates it.
///
/// A call that uses anything else returns the error of the host for a missing grant.
#[derive(Debug)]
#[must_use = "what is granted is taken back when this is dropped: `let granted = testing::grant();`"]
// The pointer keeps the value on the thread that created it.
pub struct Granted(PhantomData<*const ()>);

impl Drop for Granted {
    fn drop(&mut self) {
        fakes::end();
    }
}

impl Granted {
    fn set(self, change: impl FnOnce(&mut World)) -> Self {
        fakes::world("testing::Granted", change);
        self
    }

    /// Grants a Lambda function with this name. `answer` returns its response.
    pub fn lambda(
        self,
        name: impl Into<String>,
        answer: impl Fn(&lambda::Request) -> Result<lambda::Response, lambda::InvokeError> + 'static,
    ) -> Self {
        self.set(|world| world.lambda(name.into(), answer))
    }

    /// Grants a queue with this name that accepts every message.
    pub fn queue(self, name: impl Into<String>) -> Self {
        self.queue_that(name, |_| Ok(()))
    }

    /// Grants a queue with this name that accepts a message if `answer` returns `Ok`.
    pub fn queue_that(
        self,
        name: impl Into<String>,
        answer: impl Fn(&queues::Outgoing) -> Result<(), queues::SendError> + 'static,
    ) -> Self {
        self.set(|world| world.queue(name.into(), answer))
    }

    /// Adds a setting.
    pub fn setting(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set(|world| {
            world.settings.insert(name.into(), value.into());
        })
    }

    /// Grants an empty store with this name.
    pub fn store(self, name: impl Into<String>) -> Self {
        self.set(|world| {
            world.stores.entry(name.into()).or_default();
        })
    }

    /// Adds a value to a store, and grants the store.
    pub fn value(
        self,
        store: impl Into<String>,
        key: impl Into<String>,
        value: impl Into<Vec<u8>>,
    ) -> Self {
        self.set(|world| {
            let store = world.stores.entry(store.into()).or_default();
            store.insert(key.into(), value.into());
        })
    }

    /// Grants all hosts. `answer` returns the response to each HTTP request. To refuse a host,
    /// return [`http::Error::Refused`].
    pub fn http(
        self,
        answer: impl Fn(&http::Request) -> Result<http::Response, http::Error> + 'static,
    ) -> Self {
        self.set(|world| world.http(answer))
    }

    /// Cancels the attempt on the message with this ID.
    pub fn cancelled(self, id: impl Into<String>) -> Self {
        self.set(|world| world.cancelled.push(id.into()))
    }

    /// Returns the messages that the queue with this name accepted, in order.
    #[must_use]
    pub fn sent(&self, queue: &str) -> Vec<queues::Outgoing> {
        fakes::world("testing::Granted", |world| world.sent(queue))
    }

    /// Returns every invocation of a granted function, in order.
    #[must_use]
    pub fn invoked(&self) -> Vec<lambda::Request> {
        fakes::world("testing::Granted", |world| world.invoked.clone())
    }

    /// Returns every HTTP request, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<http::Request> {
        fakes::world("testing::Granted", |world| world.requests.clone())
    }

    /// Returns the value of a key in a store, if there is one.
    #[must_use]
    pub fn stored(&self, store: &str, key: &str) -> Option<Vec<u8>> {
        fakes::world("testing::Granted", |world| {
            world.stores.get(store)?.get(key).cloned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::{Outgoing, SendError, send};
    use crate::{Failure, Message, settings, testing};
    use std::panic::catch_unwind;
    use std::time::Duration;

    #[test]
    fn call_without_grant_panics_and_names_the_fix() {
        let panic = catch_unwind(|| settings::get("X")).unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(
            said.contains("settings::get") && said.contains("testing::grant()"),
            "{said}"
        );
    }

    #[test]
    fn grants_are_per_thread_and_end_with_their_guard() {
        {
            let _granted = grant().setting("X", "1");
            assert_eq!(settings::get("X").as_deref(), Some("1"));
            let other = std::thread::spawn(|| catch_unwind(|| settings::get("X")).is_err());
            assert!(other.join().unwrap());
        }
        let _granted = grant();
        assert_eq!(settings::get("X"), None);
    }

    #[test]
    fn granting_twice_panics() {
        let _granted = grant();
        assert!(catch_unwind(|| drop(grant())).is_err());
        assert_eq!(settings::get("X"), None);
    }

    #[test]
    fn fake_queue_can_refuse_and_other_queues_are_denied() {
        let full = |_: &Outgoing| Err(SendError::Unavailable("full".into()));
        let granted = grant().queue("a").queue_that("b", full);
        assert!(send("a", Outgoing::new("1")).is_ok());
        assert!(matches!(
            send("b", Outgoing::new("2")),
            Err(SendError::Unavailable(_))
        ));
        assert!(matches!(
            send("c", Outgoing::new("3")),
            Err(SendError::Forbidden(_))
        ));
        assert_eq!((granted.sent("a").len(), granted.sent("b").len()), (1, 0));
    }

    #[test]
    fn fake_handler_can_use_other_grants() {
        let answer = |_: &lambda::Request| {
            Ok(lambda::Response::new(
                settings::get("X").unwrap_or_default(),
            ))
        };
        let _granted = grant().setting("X", "7").lambda("f", answer);
        let answer = lambda::invoke(lambda::Request::new("f"));
        assert_eq!(answer.map(|answer| answer.payload), Ok(b"7".to_vec()));
    }

    #[test]
    fn handler_sees_its_attempt() {
        let _granted = grant().cancelled("m");
        let handle = |message: Message| {
            if message.cancelled() {
                Err(Failure::busy(message.attempt.to_string()))
            } else {
                Ok(())
            }
        };
        let draft = testing::message("")
            .attempt(4)
            .time_left(Duration::from_secs(60));
        assert_eq!(testing::run(handle, draft.clone()), Ok(()));
        assert_eq!(
            testing::run(handle, draft.clone().id("m")),
            Err(Failure::busy("4"))
        );
        assert!(draft.build().time_left() <= Duration::from_secs(60));
    }
}
