//! A message from the command line: its body from an argument, a file or stdin, and its attributes.

use clap::Args;
use dispatcher_config::problem::Problem;
use dispatcher_config::section::WrittenValue;
use dispatcher_config::value;
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use dispatcher_core::message::Attribute;
use std::io::Read;
use std::path::PathBuf;

/// A message as it is typed.
#[derive(Debug, Args)]
pub(super) struct MessageArgs {
    /// The body; `-` reads all of stdin as one body
    #[arg(conflicts_with = "file")]
    pub body: Option<String>,
    /// Take the body from a file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// An attribute of the message; may be repeated
    #[arg(long, value_name = "K=V")]
    pub attribute: Vec<String>,
}

impl MessageArgs {
    /// Returns the body. Reads stdin to its end if requested.
    pub(super) fn body(&self) -> Result<String, Problem> {
        match (self.body.as_deref(), &self.file) {
            (Some("-"), _) => stdin(),
            (Some(body), _) => Ok(body.to_owned()),
            (None, Some(path)) => {
                let at = path.display().to_string();
                let bytes = bounded::read(path, Limits::BODY).map_err(|error| {
                    Problem::new(&at, error.to_string(), "a file with the body")
                })?;
                text(&at, bytes)
            }
            (None, None) => {
                let wanted = "a body: BODY, --file FILE, or - to read it from stdin";
                Err(Problem::new("BODY", "there is none", wanted))
            }
        }
    }

    /// Returns the attributes. Adds errors in them to `problems`.
    pub(super) fn attributes(&self, problems: &mut Vec<Problem>) -> Vec<Attribute> {
        let mut attributes = Vec::<Attribute>::new();
        for pair in self.attribute.iter().flat_map(|text| text.lines()) {
            match value::pair(&WrittenValue::new("--attribute", pair)) {
                Err(problem) => problems.push(problem),
                Ok((name, _)) if attributes.iter().any(|known| known.name == name) => {
                    let found = format!("`{name}` appears twice");
                    problems.push(Problem::new("--attribute", found, "each name once"));
                }
                Ok((name, value)) => attributes.push(Attribute::text(name, value)),
            }
        }
        attributes
    }
}

fn stdin() -> Result<String, Problem> {
    let mut bytes = Vec::new();
    let most = Limits::BODY.bytes;
    // One byte more shows that there is too much.
    std::io::stdin()
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Problem::new("stdin", format!("cannot be read: {error}"), "the body"))?;
    if bytes.len() as u64 > most {
        let found = format!("more than {most} bytes");
        return Err(Problem::new("stdin", found, "the body of one message"));
    }
    text("stdin", bytes)
}

fn text(at: &str, bytes: Vec<u8>) -> Result<String, Problem> {
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Problem::new(
            at,
            format!("byte {place} is not UTF-8"),
            "text, as message bodies are",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(body: Option<&str>, attribute: &[&str]) -> MessageArgs {
        MessageArgs {
            body: body.map(str::to_owned),
            file: None,
            attribute: attribute.iter().map(|&text| text.to_owned()).collect(),
        }
    }

    #[test]
    fn message_body_is_utf8_text() {
        assert_eq!(args(Some("hello"), &[]).body(), Ok("hello".into()));
        let problem = args(None, &[]).body().expect_err("none").to_string();
        assert!(
            problem.starts_with("BODY: there is none; wanted a body: BODY, --file"),
            "{problem}"
        );
        let problem = text("f", vec![b'a', 0xff]).expect_err("binary").to_string();
        assert_eq!(
            problem,
            "f: byte 1 is not UTF-8; wanted text, as message bodies are"
        );
    }

    #[test]
    fn attribute_arguments_are_parsed() {
        let mut problems = Vec::new();
        let good = args(None, &["a=1", "b=x=y", "a=2", "c"]).attributes(&mut problems);
        assert_eq!(
            good,
            [Attribute::text("a", "1"), Attribute::text("b", "x=y")]
        );
        assert_eq!(problems.len(), 2);
    }
}
