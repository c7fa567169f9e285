//! The commands of operations, generated from their declarations. Each sends its request to the
//! process whose admin address is on the command line; otherwise it uses the stores of queues.

use super::admin::{AdminClient, in_path};
use super::{LooseArguments, asked, block_on, flags, output};
use crate::app::drain::{Signals, stop_at_signal};
use crate::app::stores::StoreSite;
use crate::app::traces;
use crate::error::{Exit, Failure};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args as _};
use dispatcher_config::Places;
use dispatcher_config::problem::Problem;
use dispatcher_core::clock;
use dispatcher_operate::messages::JobView;
use dispatcher_operate::problem::{CallProblem, StatusCode};
use dispatcher_operate::request::{Field, UnreadFields};
use dispatcher_operate::requester::Requester;
use dispatcher_operate::site::Site;
use dispatcher_operate::verbs::{Command, TypedRequest, VERBS, Verb, VerbCall};
use dispatcher_telemetry::log::Screen;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The ids of arguments that all of them have.
const TARGET: &str = "asked-target";
const JSON: &str = "asked-json";
const RESET: &str = "asked-reset";
/// The group of arguments of which at least one is required.
const NEEDED: &str = "asked";
/// The interval at which a job is polled.
const LOOK: Duration = Duration::from_millis(100);

/// Returns the operations that have commands.
fn all() -> impl Iterator<Item = (&'static Verb, Command)> {
    VERBS
        .iter()
        .filter_map(|verb| Some((verb, verb.declared.command?)))
}

/// Adds the commands of operations to the program's command line. The help lists them after the
/// commands that show queues.
pub(super) fn add_to(mut program: clap::Command) -> clap::Command {
    let names: Vec<String> = program
        .get_subcommands()
        .map(|one| one.get_name().to_owned())
        .collect();
    let shown = names
        .iter()
        .position(|name| name == "peek")
        .unwrap_or_default();
    for (place, name) in names.iter().enumerate() {
        let place = if place > shown {
            place + VERBS.len()
        } else {
            place
        };
        program = program.mut_subcommand(name, |one| one.display_order(place));
    }
    for (place, (_, declared)) in all().enumerate() {
        if program.find_subcommand(declared.name).is_none() {
            let command = command(&declared);
            program = program.subcommand(command.display_order(shown + 1 + place));
        }
    }
    program
}

/// Returns the operations of a command, if it has any: several for different kinds of targets.
pub(super) fn find(name: &str) -> Option<Vec<&'static Verb>> {
    let found = all().filter(|(_, declared)| declared.name == name);
    let verbs: Vec<&Verb> = found.map(|(verb, _)| verb).collect();
    (!verbs.is_empty()).then_some(verbs)
}

/// Returns those of a command's operations that have all fields that are given.
fn with_given_fields(verbs: &[&'static Verb], matches: &ArgMatches) -> Vec<&'static Verb> {
    let sets = verbs.iter().map(|verb| given_fields(verb, matches));
    let given: Vec<BTreeSet<String>> = sets.collect();
    let all: BTreeSet<&String> = given.iter().flatten().collect();
    let able = verbs.iter().zip(&given);
    able.filter(|(_, own)| own.len() == all.len())
        .map(|(verb, _)| *verb)
        .collect()
}

fn given_fields(verb: &Verb, matches: &ArgMatches) -> BTreeSet<String> {
    let ids = (verb.fields)().into_iter().map(|field| asked::id(&field));
    ids.filter(|id| matches.try_contains_id(id).unwrap_or_default())
        .collect()
}

fn command(declared: &Command) -> clap::Command {
    let mut command = clap::Command::new(declared.name)
        .about(declared.about)
        .after_help(declared.help);
    if !declared.more.is_empty() {
        command = command.after_long_help(format!("{}\n\n{}", declared.help, declared.more));
    }
    let (target, what) = declared.target;
    command = command.arg(
        Arg::new(TARGET)
            .value_name(target)
            .help(what)
            .required(true),
    );
    for (verb, same) in all().filter(|(_, other)| other.name == declared.name) {
        command = with_fields(command, verb, &same);
    }
    if let Some(help) = declared.reset {
        let reset = Arg::new(RESET).long("reset").help(help);
        command = command.arg(reset.action(ArgAction::SetTrue).group(NEEDED));
    }
    if !declared.needs_one_of.is_empty() {
        let group = ArgGroup::new(NEEDED).required(true).multiple(true);
        command = command.group(group);
    }
    let json = Arg::new(JSON).long("json").help(declared.json);
    command = command.arg(json.action(ArgAction::SetTrue));
    let with_admin = flags::AdminArgs::augment_args(command);
    let with_places = flags::PlaceArgs::augment_args(with_admin);
    flags::LogArgs::augment_args(with_places)
}

/// Adds the flags of an operation's fields, except those that the command has for another one.
fn with_fields(mut command: clap::Command, verb: &Verb, declared: &Command) -> clap::Command {
    for field in &(verb.fields)() {
        let Some(mut arg) = asked::flag(field) else {
            continue;
        };
        if command
            .get_arguments()
            .any(|known| known.get_id() == arg.get_id())
        {
            continue;
        }
        if let Some((_, name)) = declared.placed.filter(|(placed, _)| *placed == field.name) {
            arg = arg.long(None).value_name(name).required(true);
        }
        if declared.needs_one_of.contains(&field.name) {
            arg = arg.group(NEEDED);
        }
        command = command.arg(arg);
    }
    command
}

/// A parsed command of an operation.
struct TypedVerb {
    verb: &'static Verb,
    command: Command,
    target: String,
    request: Value,
}

/// Runs the operation that knows the target, and prints its result.
pub(super) fn run(verbs: &[&'static Verb], typed: &LooseArguments) -> Result<(), Failure> {
    let (places, screen, problems) = flags::places(&typed.matches);
    let process = AdminClient::typed(typed)?;
    let mut unknown = Vec::new();
    for verb in with_given_fields(verbs, &typed.matches) {
        let asked = TypedVerb::read(verb, &typed.matches, problems.clone())?;
        let answer = asked.answer(process.as_ref(), (&places, &screen), typed);
        match block_on(answer)? {
            Ok(answer) => return asked.print(answer, typed.matches.get_flag(JSON)),
            Err(refused @ VerbFailure::Unknown(_)) => unknown.extend(asked.failure(refused).lines),
            Err(refused) => return Err(asked.failure(refused)),
        }
    }
    if unknown.is_empty() {
        let line = "the flags are of different operations; `--help` says which";
        return Err(Failure::new(Exit::Usage, line));
    }
    Err(Failure {
        exit: Exit::Failed,
        lines: unknown,
    })
}

impl TypedVerb {
    /// Parses the arguments, and reports every problem at once.
    fn read(
        verb: &'static Verb,
        matches: &ArgMatches,
        mut problems: Vec<Problem>,
    ) -> Result<Self, Failure> {
        let Some(command) = verb.declared.command else {
            return Err(Failure::new(Exit::Usage, "there is no such command"));
        };
        let fields = (verb.fields)();
        let given_target = matches.get_one::<String>(TARGET);
        let target = given_target.map(String::as_str).unwrap_or_default();
        let name = flags::queue_at(command.target.0, target, &mut problems);
        let mut asked = Self {
            verb,
            command,
            target: name.map(|name| name.to_string()).unwrap_or_default(),
            request: Value::Null,
        };
        let mut given = asked::typed(&fields, matches, |field| asked.called(field), &mut problems);
        if command.reset.is_some() && matches.get_flag(RESET) {
            for name in command.needs_one_of {
                given.entry((*name).to_owned()).or_insert(Value::Null);
            }
        }
        match (verb.check)(UnreadFields::typed(given)) {
            Ok(request) => asked.request = request,
            Err(wrong) => {
                let wrong = wrong.into_iter();
                problems.extend(wrong.map(|one| asked::problem(one, |name| asked.at(name))));
            }
        }
        if problems.is_empty() {
            Ok(asked)
        } else {
            Err(problems.into())
        }
    }

    /// Returns the name of a field in problems.
    fn called(&self, field: &Field) -> String {
        match self.command.placed {
            Some((name, shown)) if name == field.name => shown.to_owned(),
            _ => asked::flag_of(field),
        }
    }

    fn at(&self, name: &str) -> String {
        if name == "queue" {
            return self.command.target.0.to_owned();
        }
        let fields = (self.verb.fields)();
        let field = fields.iter().find(|field| field.name == name);
        field.map_or_else(|| name.to_owned(), |field| self.called(field))
    }

    /// Runs the operation and returns its answer. The process of the settings does what the stores
    /// cannot do.
    async fn answer(
        &self,
        process: Option<&AdminClient>,
        (places, screen): (&Places, &Screen),
        typed: &LooseArguments,
    ) -> Result<Value, VerbFailure> {
        if let Some(client) = process {
            let asked = match self.ask(client, screen).await {
                Err(refused) if self.command.goes_on_by_itself && is_unknown(&refused) => refused,
                asked => return asked,
            };
            let done = self.act(places, screen).await;
            return done.map_err(|own| {
                let asked = self.failure(asked);
                let own = self.failure(own);
                VerbFailure::Failure(Failure {
                    exit: asked.exit,
                    lines: asked.lines.into_iter().chain(own.lines).collect(),
                })
            });
        }
        let refused = match self.act(places, screen).await {
            Err(VerbFailure::Problem(problem)) if problem.status == StatusCode::NOT_IMPLEMENTED => {
                problem
            }
            done => return done,
        };
        let (place, problems) = flags::admin(&typed.matches);
        if !problems.is_empty() {
            return Err(VerbFailure::Failure(problems.into()));
        }
        let Some(client) = AdminClient::of(&place).map_err(VerbFailure::Failure)? else {
            let line = format!("--admin: {}", refused.detail);
            return Err(VerbFailure::Failure(Failure::new(Exit::Usage, line)));
        };
        self.ask(&client, screen).await
    }

    /// Sends the request to a process.
    async fn ask(&self, client: &AdminClient, screen: &Screen) -> Result<Value, VerbFailure> {
        let fields = (self.verb.fields)();
        let local = fields
            .iter()
            .filter(|field| field.is_local())
            .filter(|field| !self.request[field.name].is_null());
        let problems: Vec<Problem> = local
            .map(|field| {
                let found = "it runs on this machine, and the process may be on another";
                Problem::new(asked::flag_of(field), found, "a command without --admin")
            })
            .collect();
        if !problems.is_empty() {
            return Err(VerbFailure::Failure(problems.into()));
        }
        let declared = self.verb.declared;
        let path = match declared.parameter() {
            Some(name) => {
                let target = in_path(&self.target);
                declared.path.replace(&format!("{{{name}}}"), &target)
            }
            None => declared.path.to_owned(),
        };
        let stop = self.stop()?;
        let answer = client
            .post(&path, &self.request)
            .await
            .map_err(VerbFailure::Failure)?;
        if answer.status == 404 {
            return Err(VerbFailure::Unknown(answer.json().err()));
        }
        let answer = answer.json().map_err(VerbFailure::Failure)?;
        match stop {
            Some(signals) => {
                let place = JobPlace::There(client);
                self.follow(answer, signals, &place, screen).await
            }
            None => Ok(answer),
        }
    }

    /// Returns the signals that stop a job, handled before it begins.
    fn stop(&self) -> Result<Option<Signals>, VerbFailure> {
        if !self.verb.declared.starts_job {
            return Ok(None);
        }
        let signals = Signals::listen(true);
        signals.map(Some).map_err(|error| {
            let line = format!("signal handlers: {error}");
            VerbFailure::Failure(Failure::new(Exit::Failed, line))
        })
    }

    /// Runs the operation on the stores.
    async fn act(&self, places: &Places, screen: &Screen) -> Result<Value, VerbFailure> {
        let stop = self.stop()?;
        let (tracer, exporting) = traces::start(&places.otlp)
            .map_err(|problem| VerbFailure::Failure(Failure::from(problem)))?;
        let site = StoreSite::new(places, tracer);
        let call = VerbCall {
            site: &site,
            target: &self.target,
            by: &Requester::default(),
            key: None,
        };
        let request = self.request.as_object().cloned().unwrap_or_default();
        let done = (self.verb.run)(UnreadFields::typed(request), call).await;
        let answer = match (done, stop) {
            (Ok((answer, _)), Some(signals)) => {
                let place = JobPlace::Here(&site);
                self.follow(answer, signals, &place, screen).await
            }
            (Ok((answer, _)), None) => Ok(answer),
            (Err(problem), _) => Err(VerbFailure::Problem(problem)),
        };
        exporting.finish(None).await;
        answer
    }

    /// Waits for the end of a job, with a progress bar of the moved messages or, if none are moved,
    /// of the inspected ones. A signal stops the job, and a second one the command.
    async fn follow(
        &self,
        started: Value,
        signals: Signals,
        place: &JobPlace<'_>,
        screen: &Screen,
    ) -> Result<Value, VerbFailure> {
        let cancel = CancellationToken::new();
        let following = async {
            let mut answer = started;
            let mut is_told = false;
            let mut shown = 0;
            let mut bar = None;
            loop {
                let job: JobView = serde_json::from_value(answer.clone()).map_err(|error| {
                    let line = format!("the answer is not as expected: {error}");
                    VerbFailure::Failure(Failure::new(Exit::Failed, line))
                })?;
                let waiting = job.waiting.unwrap_or_default().0;
                let first = if job.applied {
                    self.request["first"].as_u64()
                } else {
                    None
                };
                let most = first.map_or(waiting, |first| waiting.min(first));
                let bar = bar.get_or_insert_with(|| screen.bar(most));
                let done = if job.applied {
                    job.report.moved + job.report.removed.unwrap_or_default()
                } else {
                    job.report.scanned
                };
                bar.advance(done.saturating_sub(shown));
                shown = done;
                if job.has_ended() {
                    return Ok(answer);
                }
                if cancel.is_cancelled() && !is_told {
                    is_told = true;
                    place.cancel(&job.id).await?;
                }
                let look = clock::sleep_until(Some(clock::now() + LOOK));
                if is_told {
                    look.await;
                } else {
                    // A signal is handled at once.
                    let _ = cancel.run_until_cancelled(look).await;
                }
                answer = place.job(&job.id).await?;
            }
        };
        tokio::select! {
            biased; // a finished job is reported
            answer = following => answer,
            () = stop_at_signal(signals, &cancel) => Ok(Value::Null),
        }
    }

    fn failure(&self, refused: VerbFailure) -> Failure {
        let problem = match refused {
            VerbFailure::Failure(failure) => return failure,
            VerbFailure::Unknown(failure) => {
                let lines = failure.map(|failure| failure.lines).unwrap_or_default();
                return Failure {
                    exit: Exit::Failed,
                    lines,
                };
            }
            VerbFailure::Problem(problem) => problem,
        };
        let exit = match problem.status {
            StatusCode::NOT_FOUND => Exit::Failed,
            status if status.is_server_error() => Exit::Unreachable,
            _ => Exit::Usage,
        };
        if problem.errors.is_empty() {
            return Failure::new(exit, problem.detail);
        }
        let problems = problem.errors.into_iter();
        let lines = problems.map(|one| asked::problem(one, |name| self.at(name)).to_string());
        Failure {
            exit,
            lines: lines.collect(),
        }
    }

    /// Prints an answer. An incomplete job is a failure.
    fn print(&self, answer: Value, json: bool) -> Result<(), Failure> {
        let job: Option<JobView> = if self.verb.declared.starts_job {
            serde_json::from_value(answer.clone()).ok()
        } else {
            None
        };
        let asked = TypedRequest {
            target: &self.target,
            request: &self.request,
        };
        let (lines, printed) = (self.verb.print)(&asked, answer).map_err(|error| {
            let line = format!("the answer is not as expected: {error}");
            Failure::new(Exit::Failed, line)
        })?;
        if json || lines.is_empty() {
            output::json(&printed)?;
        } else {
            lines.iter().try_for_each(output::line)?;
        }
        match job {
            Some(job) if !job.is_clean() => Err(Failure {
                exit: Exit::Failed,
                lines: why(&job),
            }),
            _ => Ok(()),
        }
    }
}

/// Returns the reasons why a job is incomplete that its report does not contain.
fn why(job: &JobView) -> Vec<String> {
    let queue = &job.queue;
    match &job.error {
        Some(error) => vec![format!("queue `{queue}`: {error}")],
        None if job.report.end.is_none() => {
            vec!["stopped by a signal; run it again to go on".to_owned()]
        }
        None => Vec::new(),
    }
}

/// The reason why the operation was not done, or not completely.
enum VerbFailure {
    /// The process does not know the target.
    Unknown(Option<Failure>),
    /// The stores refused the request, or it is invalid.
    Problem(CallProblem),
    /// Any other failure.
    Failure(Failure),
}

/// Returns whether the process was not reached or does not know the target, so that nothing was
/// done.
fn is_unknown(refused: &VerbFailure) -> bool {
    match refused {
        VerbFailure::Unknown(_) => true,
        VerbFailure::Failure(failure) => failure.exit == Exit::Unreachable,
        VerbFailure::Problem(_) => false,
    }
}

/// The place where a job runs.
enum JobPlace<'a> {
    Here(&'a StoreSite),
    There(&'a AdminClient),
}

impl JobPlace<'_> {
    async fn job(&self, id: &str) -> Result<Value, VerbFailure> {
        match self {
            Self::Here(site) => Ok(json!(site.messages().job(id))),
            Self::There(client) => {
                let answer = client.get(&format!("/api/v1/jobs/{}", in_path(id))).await;
                answer
                    .and_then(super::admin::AdminAnswer::json)
                    .map_err(VerbFailure::Failure)
            }
        }
    }

    async fn cancel(&self, id: &str) -> Result<(), VerbFailure> {
        let cancelled = match self {
            Self::Here(site) => {
                // The job may have ended meanwhile.
                let _ = site.messages().cancel(id);
                return Ok(());
            }
            Self::There(client) => {
                let path = format!("/api/v1/jobs/{}/cancel", in_path(id));
                client.post(&path, &json!({})).await
            }
        };
        cancelled.map(|_| ()).map_err(VerbFailure::Failure)
    }
}
