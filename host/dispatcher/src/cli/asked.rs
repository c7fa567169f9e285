//! Requests on the command line: flags from the declaration of their fields, and JSON from the
//! given values.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_config::section::WrittenValue;
use dispatcher_config::value;
use dispatcher_config::value::BareUnit;
use dispatcher_operate::problem::FieldProblem;
use dispatcher_operate::request;
use dispatcher_operate::request::{Field, Flag, Request, read_given};
use serde_json::{Map, Value, json};
use std::marker::PhantomData;
use std::time::Duration;

/// Returns the id of a field's argument, which never equals the id of a setting.
pub(super) fn id(field: &Field) -> String {
    format!("asked-{}", flag_name(field))
}

fn flag_name(field: &Field) -> String {
    match field.flag {
        Flag::Ids => "id".to_owned(),
        _ => field.name.replace('_', "-"),
    }
}

/// Returns the flag of a field, if it has one.
pub(super) fn flag(field: &Field) -> Option<Arg> {
    let syntax = match field.flag {
        Flag::Rate => ", as in 10/s or 30/m",
        Flag::Share => ", as in 20% or 0.2",
        Flag::Texts(_) | Flag::Ids => "; may be repeated",
        _ => "",
    };
    // A negative number must be reported as out of range, not as an unknown flag.
    let arg = Arg::new(id(field))
        .long(flag_name(field))
        .help(format!("{}{syntax}", field.help.trim_end_matches('.')))
        .allow_negative_numbers(true);
    Some(match field.flag {
        Flag::None => return None,
        Flag::Switch => arg.action(ArgAction::SetTrue),
        Flag::Number => arg.value_name("N"),
        Flag::Queue => arg.value_name("QUEUE"),
        Flag::Text(name) | Flag::Local(name) => arg.value_name(name),
        Flag::Texts(name) => arg.value_name(name).action(ArgAction::Append),
        Flag::Ids => arg.value_name("ID").action(ArgAction::Append),
        Flag::Time => arg.value_name("TIME"),
        Flag::Rate => arg.value_name("RATE"),
        Flag::Share => arg.value_name("SHARE"),
    })
}

/// Returns the given values of these fields as JSON. Values that do not parse become `problems`;
/// `at` returns the name of a field in them.
pub(super) fn typed(
    fields: &[Field],
    matches: &ArgMatches,
    at: impl Fn(&Field) -> String,
    problems: &mut Vec<Problem>,
) -> Map<String, Value> {
    let mut typed = Map::new();
    for field in fields {
        let id = id(field);
        let value = match field.flag {
            Flag::None => continue,
            Flag::Switch => matches.get_flag(&id).then_some(json!(true)),
            Flag::Texts(_) | Flag::Ids => {
                let texts = matches.get_many::<String>(&id);
                texts.map(|texts| texts.map(|text| json!(text)).collect())
            }
            _ => matches.get_one::<String>(&id).and_then(|text| {
                let value = json_of(field.flag, &WrittenValue::new(at(field), text));
                value.map_err(|problem| problems.push(problem)).ok()
            }),
        };
        if let Some(value) = value {
            typed.insert(field.name.to_owned(), value);
        }
    }
    typed
}

/// Converts a value to JSON. A value that is not a number is passed on as text, and the request's
/// validation says what is expected.
fn json_of(flag: Flag, given: &WrittenValue) -> Result<Value, Problem> {
    let text = given.text.trim();
    match flag {
        Flag::Number => {
            let whole = text.parse::<u64>().map(|number| json!(number));
            let number = whole.or_else(|_| text.parse::<f64>().map(|number| json!(number)));
            Ok(number.unwrap_or_else(|_| json!(text)))
        }
        Flag::Rate => value::rate(given).map(|rate| json!(rate)),
        Flag::Share => share(given).map(|share| json!(share)),
        Flag::Time => {
            let range = Duration::ZERO..=Duration::MAX;
            let time = value::duration(given, BareUnit::Refused, &range)?;
            Ok(json!(humantime::format_duration(time).to_string()))
        }
        Flag::Queue => {
            let parsed: Result<QueueName, String> = given.text.parse();
            let name = parsed.map_err(|found| Problem::new(&given.at, found, ""))?;
            Ok(json!(name.to_string()))
        }
        _ => Ok(json!(given.text)),
    }
}

/// Parses `20%` or `0.2`.
fn share(given: &WrittenValue) -> Result<f64, Problem> {
    let text = given.text.trim();
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|number| number / 100.0),
        None => text.parse(),
    };
    number
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| {
            let found = format!("`{text}` is not a share");
            Problem::new(&given.at, found, "0% to 100%, or 0 to 1")
        })
}

/// Converts the problem of a field for a command; `at` returns the name of a field in it.
pub(super) fn problem(problem: FieldProblem, at: impl Fn(&str) -> String) -> Problem {
    let told = Problem::new(at(&problem.field), problem.found, problem.wanted);
    match problem.hint {
        Some(hint) => told.hint(hint),
        None => told,
    }
}

/// Returns the flag of a field, for problems.
pub(super) fn flag_of(field: &Field) -> String {
    format!("--{}", flag_name(field))
}

/// The fields of a request as arguments of a command. It holds no values: `read` takes them from
/// the matches.
#[derive(Debug)]
pub(super) struct RequestArgs<T>(PhantomData<T>);

impl<T: Request> Args for RequestArgs<T> {
    fn augment_args(command: Command) -> Command {
        command.args(T::fields().iter().filter_map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Request> FromArgMatches for RequestArgs<T> {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(PhantomData))
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

/// Parses the given request. Adds its errors to `problems`.
pub(super) fn read<T: Request + Default>(matches: &ArgMatches, problems: &mut Vec<Problem>) -> T {
    let fields = T::fields();
    let typed = typed(&fields, matches, flag_of, problems);
    let read = read_given(request::UnreadFields::typed(typed), |_: &T| Vec::new());
    read.unwrap_or_else(|wrong| {
        problems.extend(wrong.into_iter().map(|one| {
            problem(one, |name: &str| {
                let field = fields.iter().find(|field| field.name == name);
                field.map_or_else(|| name.to_owned(), flag_of)
            })
        }));
        T::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_operate::select::Select;

    #[test]
    fn a_share_is_a_percentage_or_a_fraction() {
        for (text, wanted) in [
            ("20%", Some(0.2)),
            ("0.2", Some(0.2)),
            ("100%", Some(1.0)),
            ("2", None),
            ("-1%", None),
            ("x", None),
        ] {
            let read = share(&WrittenValue::new("--stop-at", text)).ok();
            let is_as_wanted = match (read, wanted) {
                (Some(read), Some(wanted)) => (read - wanted).abs() < 1e-9,
                (read, wanted) => read == wanted,
            };
            assert!(is_as_wanted, "{text}: {read:?}");
        }
    }

    #[test]
    fn every_problem_is_found_at_once() {
        let command = RequestArgs::<Select>::augment_args(Command::new("test"));
        let words = "test --reason ( --where a=1 --where /a=1 --where /b --older soon";
        let matches = command.try_get_matches_from(words.split(' '));
        let mut problems = Vec::new();
        let _select: Select = read(&matches.expect("it is typed"), &mut problems);
        let places: Vec<_> = problems.iter().map(|one| one.at.as_str()).collect();
        assert_eq!(places, ["--older", "--reason", "--where", "--where"]);
    }
}
