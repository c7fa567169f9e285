//! Makes the parts that settings name: the only place that knows which backends there are.
//! Receives nothing; finds every problem at once.

use crate::aws;
use crate::config::problem::Problem;
use crate::config::{Code, Plugin as PluginSettings, Route, Settings};
use crate::plugin::Handler;
use crate::plugin::load::PluginOptions;
use crate::plugin::runtime::{Runtime, RuntimeOptions, Spawn};
use crate::queue::local::Store;
use crate::queue::name::{Backend, QueueName};
use crate::queue::sqs::Sqs;
use crate::queue::{Queue, QueueError, Trouble};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

/// How many names of other queues a problem lists.
const NAMES_SHOWN: usize = 12;

/// The backends, each connected to when its first queue is opened.
pub struct Backends {
    data: PathBuf,
    endpoint_url: Option<String>,
    sqs: OnceCell<Sqs>,
    local: OnceCell<Store>,
}

impl Backends {
    /// `data` is the folder of the embedded queue; `endpoint_url` stands for AWS where given.
    pub fn new(data: PathBuf, endpoint_url: Option<String>) -> Self {
        Self {
            data,
            endpoint_url,
            sqs: OnceCell::new(),
            local: OnceCell::new(),
        }
    }

    async fn sqs(&self) -> &Sqs {
        let connect =
            || async { Sqs::connect(&aws::configuration(self.endpoint_url.as_deref()).await) };
        self.sqs.get_or_init(connect).await
    }

    async fn local(&self) -> Result<&Store, QueueError> {
        self.local
            .get_or_try_init(|| async { Store::open(&self.data) })
            .await
    }

    /// Opens a queue, with the queue of the same backend that its dead letters go to.
    pub async fn open(
        &self,
        name: &QueueName,
        dead_letter: Option<&QueueName>,
    ) -> Result<Arc<dyn Queue>, QueueError> {
        let dead_letter = dead_letter.map(|queue| queue.name.as_str());
        Ok(match name.backend {
            Backend::Sqs => Arc::new(self.sqs().await.open(&name.name, dead_letter).await?),
            Backend::Local => Arc::new(self.local().await?.queue(&name.name, dead_letter)?),
        })
    }

    /// Opens a queue to look at it. Local queues are made when they are first used; a look makes
    /// none, so a misspelt name is told.
    pub async fn open_existing(&self, name: &QueueName) -> Result<Arc<dyn Queue>, QueueError> {
        if name.backend == Backend::Local {
            let known = self.local().await?.names()?;
            let bare = name.name.strip_suffix(".dead").unwrap_or(&name.name);
            if !known
                .iter()
                .any(|known| *known == name.name || known == bare)
            {
                return Err(QueueError {
                    kind: Trouble::Missing,
                    message: "it does not exist; the first message sent to it makes it".into(),
                });
            }
        }
        self.open(name, None).await
    }

    /// After how many receives a queue's own redrive policy buries a message; `None` without one.
    pub async fn most_receives(&self, name: &QueueName) -> Result<Option<u32>, QueueError> {
        match name.backend {
            Backend::Sqs => self.sqs().await.most_receives(&name.name).await,
            Backend::Local => Ok(None),
        }
    }

    /// The queues of a backend, as far as it tells.
    pub async fn list(&self, backend: Backend) -> Result<Vec<QueueName>, QueueError> {
        let names = match backend {
            Backend::Sqs => self.sqs().await.names().await?,
            Backend::Local => self.local().await?.names()?,
        };
        Ok(names
            .into_iter()
            .map(|name| QueueName { backend, name })
            .collect())
    }

    /// What is wrong, in words that name the queues there are.
    pub async fn problem(&self, at: &str, name: &QueueName, error: &QueueError) -> Problem {
        let problem = Problem::new(at, format!("queue `{name}`: {error}"), "");
        // Who has no account and writes `default` means the queue in a file.
        let plain = name.backend == Backend::Sqs && !name.name.contains([':', '/']);
        let problem = match plain {
            true => problem.hint(format!("the embedded queue of that name is local:{name}")),
            false => problem,
        };
        match error.kind {
            Trouble::Missing => {
                let known = self.list(name.backend).await.unwrap_or_default();
                let names: Vec<String> = known.iter().map(ToString::to_string).collect();
                let wanted = if names.is_empty() {
                    "a queue that exists".to_owned()
                } else {
                    let more = if names.len() > NAMES_SHOWN {
                        ", …"
                    } else {
                        ""
                    };
                    let shown = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>();
                    format!("one of {}{more}", shown.join(", "))
                };
                Problem { wanted, ..problem }
                    .nearest(&name.to_string(), names.iter().map(String::as_str))
            }
            Trouble::Unreachable | Trouble::Passing => problem.unreachable(),
            Trouble::Denied | Trouble::Refused => problem,
        }
    }
}

/// A route with its parts made.
pub struct Built {
    /// What it was made from.
    pub route: Route,
    /// In the route's order.
    pub queues: Vec<Arc<dyn Queue>>,
    /// What handles its messages.
    pub handler: Arc<dyn Handler>,
}

/// Opens every queue and loads every plugin of the settings, or says all that is wrong. `spawn` runs
/// instances that take many attempts at once.
pub async fn routes(settings: &Settings, spawn: Spawn) -> Result<Vec<Built>, Vec<Problem>> {
    let backends = Backends::new(settings.data.clone(), settings.endpoint_url.clone());
    let mut problems = Vec::new();
    let mut opened = Vec::new();
    for route in &settings.routes {
        opened.push(open_queues(&backends, route, &mut problems).await);
    }
    let handlers = match runtime(settings, spawn) {
        Ok(runtime) => settings
            .routes
            .iter()
            .map(|route| load(&runtime, &route.plugin, &mut problems))
            .collect(),
        Err(problem) => {
            problems.push(problem);
            Vec::new()
        }
    };
    problems.extend(
        settings
            .routes
            .iter()
            .zip(&handlers)
            .filter_map(|(route, handler)| {
                let handler = handler.as_ref()?;
                let useless = route.batch_size > handler.batch();
                useless.then(|| needs_batches(route))
            }),
    );
    problems.extend(
        settings
            .routes
            .iter()
            .zip(&opened)
            .filter(|(route, queues)| {
                // Of queues that could not be opened, nothing is known.
                let endless =
                    !queues.is_empty() && queues.iter().all(|queue| !queue.identity().dead_letters);
                route.retry.attempts.is_some() && endless
            })
            .map(|(route, _)| needs_dead_letters(route)),
    );
    if !problems.is_empty() {
        return Err(problems);
    }
    let parts = settings.routes.iter().zip(opened).zip(handlers);
    Ok(parts
        .filter_map(|((route, queues), handler)| {
            Some(Built {
                route: route.clone(),
                queues,
                handler: handler?,
            })
        })
        .collect())
}

async fn open_queues(
    backends: &Backends,
    route: &Route,
    problems: &mut Vec<Problem>,
) -> Vec<Arc<dyn Queue>> {
    let mut queues = Vec::new();
    for queue in &route.queues {
        match backends.open(&queue.name, route.dead_letter.as_ref()).await {
            Ok(opened) => queues.push(opened),
            Err(error) => problems.push(backends.problem(&queue.at, &queue.name, &error).await),
        }
    }
    queues
}

fn runtime(settings: &Settings, spawn: Spawn) -> Result<Runtime, Problem> {
    let options = RuntimeOptions {
        instances: settings.routes.iter().map(|route| route.concurrency).sum(),
        max_memory: settings
            .routes
            .iter()
            .map(|route| route.plugin.max_memory)
            .max()
            .unwrap_or_default(),
        cache: Some(cache(&settings.data)),
    };
    Runtime::start(options, Handle::current(), spawn)
        .map_err(|error| Problem::new("the plugin engine", error.to_string(), ""))
}

/// Where compiled plugins are kept.
pub fn cache(data: &Path) -> PathBuf {
    data.join("compiled")
}

/// `None` after a problem; one without a file has been found already.
fn load(
    runtime: &Runtime,
    plugin: &PluginSettings,
    problems: &mut Vec<Problem>,
) -> Option<Arc<dyn Handler>> {
    let Code::File(file) = &plugin.code else {
        return None;
    };
    match runtime.load(file, options(plugin)) {
        Ok(loaded) => Some(Arc::new(loaded)),
        Err(error) => {
            let lines = error.problems.iter();
            problems.extend(lines.map(|line| Problem {
                hint: line.hint.clone(),
                ..Problem::new(
                    &plugin.at,
                    format!("{}: {}", error.file.display(), line.what),
                    "",
                )
            }));
            None
        }
    }
}

/// What the plugin host is told of a plugin's settings.
pub fn options(plugin: &PluginSettings) -> PluginOptions {
    PluginOptions {
        name: plugin.name.clone(),
        max_memory: plugin.max_memory,
        env: plugin.env.clone(),
        reuse: plugin.reuse,
        ..PluginOptions::default()
    }
}

fn needs_dead_letters(route: &Route) -> Problem {
    let found = "a limit of attempts without a dead-letter queue, where it can have no effect";
    let problem = Problem::new(&route.at, found, "a dead-letter queue as well");
    problem.hint("or leave the limit to the queue's own redrive policy")
}

fn needs_batches(route: &Route) -> Problem {
    let found = format!(
        "batch-size {} for a plugin that handles single messages",
        route.batch_size
    );
    Problem::new(
        &route.at,
        found,
        "batch-size 1, or a plugin that exports batch-handler",
    )
}
