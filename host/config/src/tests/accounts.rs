//! Accounts in the file.

use crate::flags::Flags;
use crate::section::WrittenValue;
use crate::{Settings, settings};

fn read(text: &str, queues: Option<&str>) -> (Settings, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("d.toml");
    std::fs::write(&path, text).expect("written");
    let mut flags = Flags::default();
    let given = WrittenValue::new("--config", path.to_string_lossy());
    flags.take("config", given);
    if let Some(queues) = queues {
        flags.take("queues", WrittenValue::new("--queues", queues));
    }
    let (settings, problems) = settings(&flags);
    let texts = problems.iter().map(|problem| {
        let text = problem.to_string();
        let place = text.find("d.toml:").unwrap_or_default();
        text[place..].to_owned()
    });
    (settings, texts.collect())
}

const ROUTE: &str = "[plugin.f]\nfunction = 'f'\n[[route]]\n";

#[test]
fn route_and_plugin_name_their_account() {
    let text = "[account.a]\nrole = 'arn:aws-cn:iam::111122223333:role/path/r'\nregion = 'eu-west-1'\n\
                [account.b]\nprofile = 'p'\nqueues = ['sqs:team-b-*']\n\
                [plugin.f]\nfunction = 'f'\naccount = 'b'\nallow-lambda = ['g-*']\n\
                [[route]]\naccount = 'a'\nqueues = ['jobs:3', 'sqs:more:1']\ndead-letter = 'dead'\n";
    let (settings, problems) = read(text, None);
    assert_eq!(problems, [""; 0]);
    let accounts = &settings.stores.accounts;
    let of_queue = |name: &str| accounts.of_queue(name).map(|account| account.name.as_str());
    for (queue, account) in [
        ("jobs", Some("a")),
        ("more", Some("a")),
        ("dead", Some("a")),
        ("team-b-jobs", Some("b")),
        ("others", None),
        ("arn:aws-cn:sqs:eu-west-1:111122223333:any", Some("a")),
    ] {
        assert_eq!(of_queue(queue), account, "{queue}");
    }
    for function in ["f", "g-*"] {
        let account = accounts.of_function(function);
        assert_eq!(account.map(|account| account.name.as_str()), Some("b"));
    }
    let role = accounts
        .of_queue("jobs")
        .and_then(|account| account.role.clone());
    assert_eq!(
        role.map(|role| role.session_name).as_deref(),
        Some("dispatcher")
    );
    // A flag replaces the queues of the only route, and they have its account.
    let (settings, _) = read(text, Some("other"));
    let account = settings.stores.accounts.of_queue("other");
    assert_eq!(account.map(|account| account.name.as_str()), Some("a"));
}

#[test]
fn bad_accounts_are_all_told() {
    let text = format!(
        "[account.a]\nrole = 'arn:aws:iam::1:role/r'\nqueues = ['a**b']\nendpoint-url = 'here'\n\
         [account.b]\nexternal-id = 'x'\nroles = 'r'\n\
         {ROUTE}account = 'aa'\nqueues = ['jobs']\n\
         [[route]]\nname = 's'\naccount = 'a'\nqueues = ['redis:jobs']\n"
    );
    let (_, problems) = read(&text, None);
    let wanted = [
        "d.toml:7: unknown key `roles`",
        "d.toml:2: `arn:aws:iam::1:role/r` is not the ARN of a role; wanted arn:aws:iam::ACCOUNT:role/NAME",
        "d.toml:4: ",
        "d.toml:3: `a**b` is not a pattern; wanted a name in which no two `*` follow each other",
        "d.toml:6: `external-id` without a role; wanted a role as well",
        "d.toml:11: no account `aa`; wanted the name of an [account.NAME] of the file; did you mean `a`?",
        "d.toml:15: an account for `redis:jobs`; wanted a route whose queues are all of AWS",
    ];
    assert_eq!(problems.len(), wanted.len(), "{problems:#?}");
    for (problem, wanted) in problems.iter().zip(wanted) {
        assert!(problem.starts_with(wanted), "{problem}\n{wanted}");
    }
}
