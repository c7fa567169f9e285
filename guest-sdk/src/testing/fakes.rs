//! The calls of this crate in native builds. They use what the test of this thread grants, and
//! record what the handler requested.

use crate::http::{self, Response};
use crate::lambda::{self, InvokeError};
use crate::queues::{Outgoing, SendError};
use crate::store;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The keys and values of one store.
pub(crate) type Values = BTreeMap<String, Vec<u8>>;

type Function = Rc<dyn Fn(&lambda::Request) -> Result<lambda::Response, InvokeError>>;
type Queue = Rc<dyn Fn(&Outgoing) -> Result<(), SendError>>;
type Web = Rc<dyn Fn(&http::Request) -> Result<Response, http::Error>>;

/// Everything that is granted to this thread, and what handlers requested.
#[derive(Default)]
pub(super) struct World {
    functions: HashMap<String, Function>,
    pub(super) invoked: Vec<lambda::Request>,
    queues: HashMap<String, Queue>,
    sent: Vec<(String, Outgoing)>,
    web: Option<Web>,
    pub(super) requests: Vec<http::Request>,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) stores: BTreeMap<String, Values>,
    pub(super) cancelled: Vec<String>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

pub(super) fn begin() {
    let before = WORLD.with_borrow_mut(|world| {
        let free = world.is_none();
        world.get_or_insert_default();
        free
    });
    assert!(
        before,
        "something is granted to this thread already: drop the first `testing::Granted` before the next"
    );
}

pub(super) fn end() {
    WORLD.with_borrow_mut(|world| *world = None);
}

/// Runs `ask` on the grants of this thread. `ask` must not call the test's own functions, because
/// they may use the grants, too.
///
/// # Panics
/// Panics if nothing is granted to this thread.
pub(super) fn world<T>(call: &str, ask: impl FnOnce(&mut World) -> T) -> T {
    let answer = WORLD.with_borrow_mut(|world| world.as_mut().map(ask));
    answer.unwrap_or_else(|| {
        panic!(
            "`{call}` was called off WebAssembly, where nothing is granted: \
             begin the test with `let granted = dispatcher_guest::testing::grant();`"
        )
    })
}

impl World {
    pub(super) fn lambda(
        &mut self,
        name: String,
        answer: impl Fn(&lambda::Request) -> Result<lambda::Response, InvokeError> + 'static,
    ) {
        self.functions.insert(name, Rc::new(answer));
    }

    pub(super) fn queue(
        &mut self,
        name: String,
        answer: impl Fn(&Outgoing) -> Result<(), SendError> + 'static,
    ) {
        self.queues.insert(name, Rc::new(answer));
    }

    pub(super) fn http(
        &mut self,
        answer: impl Fn(&http::Request) -> Result<Response, http::Error> + 'static,
    ) {
        self.web = Some(Rc::new(answer));
    }

    pub(super) fn sent(&self, queue: &str) -> Vec<Outgoing> {
        let sent = self.sent.iter().filter(|(name, _)| name == queue);
        sent.map(|(_, outgoing)| outgoing.clone()).collect()
    }
}

/// Returns whether the test cancels the attempt on this message. It also works if the test grants
/// nothing, because a plugin needs no grant for it.
pub(crate) fn cancelled(id: &str) -> bool {
    WORLD.with_borrow(|world| {
        let named = |world: &World| world.cancelled.iter().any(|cancelled| cancelled == id);
        world.as_ref().is_some_and(named)
    })
}

pub(crate) fn invoke(request: &lambda::Request) -> Result<lambda::Response, InvokeError> {
    let name = &request.function;
    let function = world("lambda::invoke", |world| {
        let function = world.functions.get(name).cloned();
        if function.is_some() {
            world.invoked.push(request.clone());
        }
        function
    });
    let forbidden =
        || InvokeError::Forbidden(format!("the test does not grant the function {name}"));
    function.ok_or_else(forbidden)?(request)
}

pub(crate) fn send(queue: &str, message: &Outgoing) -> Result<String, SendError> {
    let answer = world("queues::send", |world| world.queues.get(queue).cloned());
    let forbidden = || SendError::Forbidden(format!("the test does not grant the queue {queue}"));
    answer.ok_or_else(forbidden)?(message)?;
    Ok(world("queues::send", |world| {
        world.sent.push((queue.to_owned(), message.clone()));
        format!("sent-{}", world.sent.len())
    }))
}

pub(crate) fn setting(name: &str) -> Option<String> {
    world("settings::get", |world| world.settings.get(name).cloned())
}

pub(crate) fn settings() -> Vec<(String, String)> {
    let all = world("settings::all", |world| world.settings.clone());
    all.into_iter().collect()
}

pub(crate) fn values<T>(
    name: &str,
    ask: impl FnOnce(&mut Values) -> Result<T, store::Error>,
) -> Result<T, store::Error> {
    world("store::open", |world| match world.stores.get_mut(name) {
        Some(values) => ask(values),
        None => Err(store::Error::NotGranted(name.to_owned())),
    })
}

pub(crate) fn http(request: &http::Request) -> Result<Response, http::Error> {
    let mut answer = answer(request)?;
    if answer.body.len() > request.limit && !request.truncate {
        return Err(http::Error::TooLarge(request.limit));
    }
    answer.body.truncate(request.limit);
    Ok(answer)
}

fn answer(request: &http::Request) -> Result<Response, http::Error> {
    let web = world("http::Request::send", |world| {
        world.requests.push(request.clone());
        world.web.clone()
    });
    let refused = || http::Error::Refused(format!("the test grants no host: {}", request.url));
    web.ok_or_else(refused)?(request)
}
