//! Checks the embedded queues that the file declares. Opens nothing.

use super::Check;
use crate::declared::DeclaredQueue;
use crate::file::File;
use crate::name::QueueName;
use crate::problem::Problem;
use crate::section::{Layers, Section};
use dispatcher_core::backend::QueueDeclaration;

/// The suffix of the names of FIFO queues, as on SQS.
const FIFO: &str = ".fifo";

impl Check {
    pub(super) fn declared_queues(&mut self, file: &File) -> Vec<QueueDeclaration> {
        let queues = file.queues.iter();
        let declared = queues.filter_map(|(name, section)| self.declared_queue(name, section));
        declared.collect()
    }

    fn declared_queue(&mut self, name: &str, section: &Section) -> Option<QueueDeclaration> {
        let at = section.at.clone();
        let problems = self.problems.len();
        if let Err(found) = queue_name(name) {
            let wanted = "the bare name of an embedded queue, as in [queue.payments]";
            self.problems.push(Problem::new(&at, found, wanted));
        }
        let declared = DeclaredQueue::read(Layers(&[section]), &mut self.problems);
        let fifo = name.ends_with(FIFO);
        if declared.fifo.is_some_and(|said| said != fifo)
            && let Some(given) = section.one("fifo")
        {
            let found = format!("`fifo` is {} for a queue named `{name}`", given.text);
            let wanted = "a name that ends in .fifo for a FIFO queue, and for no other";
            self.problems.push(Problem::new(&given.at, found, wanted));
        }
        let redrive = self.redrive(name, section, declared.dead_letter, declared.max_receives);
        (self.problems.len() == problems).then(|| QueueDeclaration {
            at,
            name: name.to_owned(),
            fifo,
            visibility: declared.visibility,
            delay: declared.delay,
            retention: declared.retention,
            redrive,
        })
    }

    fn redrive(
        &mut self,
        name: &str,
        section: &Section,
        dead_letter: Option<String>,
        max_receives: Option<u32>,
    ) -> Option<(String, u32)> {
        let (to, most) = (
            section.one("redrive.dead-letter"),
            section.one("redrive.max-receives"),
        );
        let (to, _) = match (to, most) {
            (None, None) => return None,
            (Some(to), Some(most)) => (to, most),
            (Some(given), None) | (None, Some(given)) => {
                let found = "an incomplete redrive policy";
                let wanted = "both, redrive.dead-letter and redrive.max-receives";
                self.problems.push(Problem::new(&given.at, found, wanted));
                return None;
            }
        };
        let (target, most) = dead_letter.zip(max_receives)?;
        let wrong = match queue_name(&target) {
            Err(found) => Some(found),
            Ok(()) if target == name => Some("the queue itself".to_owned()),
            Ok(()) if target.ends_with(FIFO) != name.ends_with(FIFO) => {
                Some(format!("`{target}` is a queue of the other kind"))
            }
            Ok(()) => None,
        };
        if let Some(found) = wrong {
            let wanted = "another embedded queue, FIFO if this one is";
            self.problems.push(Problem::new(&to.at, found, wanted));
            return None;
        }
        Some((target, most))
    }
}

/// Checks that a bare name is valid for an embedded queue.
fn queue_name(name: &str) -> Result<(), String> {
    format!("local:{name}").parse::<QueueName>().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;
    use std::path::Path;
    use std::time::Duration;

    fn read(text: &str) -> (Vec<QueueDeclaration>, Vec<String>) {
        let (file, problems) = file::read(Path::new("d.toml"), text);
        let mut check = Check {
            problems,
            ..Check::default()
        };
        let declared = check.declared_queues(&file);
        let lines = check.problems.iter().map(ToString::to_string);
        (declared, lines.collect())
    }

    #[test]
    fn a_section_declares_a_queue() {
        let text = "[queue.orders]\nvisibility = 60\ndelay = '5s'\nretention = '1day'\n\
                    redrive = { dead-letter = 'given-up', max-receives = 3 }\n\
                    [queue.'one.fifo']\n";
        let (declared, problems) = read(text);
        assert_eq!(problems, [""; 0]);
        let orders = QueueDeclaration {
            at: "d.toml:1".into(),
            name: "orders".into(),
            fifo: false,
            visibility: Some(Duration::from_secs(60)),
            delay: Some(Duration::from_secs(5)),
            retention: Some(Duration::from_secs(86_400)),
            redrive: Some(("given-up".into(), 3)),
        };
        let one = QueueDeclaration {
            at: "d.toml:6".into(),
            name: "one.fifo".into(),
            fifo: true,
            ..QueueDeclaration::default()
        };
        assert_eq!(declared, [one, orders]);
    }

    #[test]
    fn what_cannot_be_a_queue_is_reported_with_its_line() {
        for (text, at, found) in [
            (
                "[queue.a]\nfifo = true",
                "d.toml:2",
                "`fifo` is true for a queue named `a`",
            ),
            (
                "[queue.'a.fifo']\nfifo = false",
                "d.toml:2",
                "`fifo` is false",
            ),
            ("[queue.'a b']", "d.toml:1", "is not a queue name"),
            (
                "[queue.a]\ndelay = '16m'",
                "d.toml:2",
                "`16m` is out of range",
            ),
            (
                "[queue.a]\nvisibilty = 3",
                "d.toml:2",
                "unknown key `visibilty` in [queue.a]",
            ),
            (
                "[queue.a]\nredrive.max-receives = 3",
                "d.toml:2",
                "an incomplete redrive policy",
            ),
            (
                "[queue.a]\nredrive = { dead-letter = 'a', max-receives = 3 }",
                "d.toml:2",
                "the queue itself",
            ),
            (
                "[queue.a]\nredrive = { dead-letter = 'a.fifo', max-receives = 3 }",
                "d.toml:2",
                "`a.fifo` is a queue of the other kind",
            ),
        ] {
            let (declared, problems) = read(text);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].starts_with(at), "{problems:?}");
            assert!(problems[0].contains(found), "{problems:?}");
            let unknown_key = found.contains("unknown");
            assert_eq!(declared.is_empty(), !unknown_key, "{text}");
        }
    }
}
