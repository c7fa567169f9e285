//! Accounts in the file.

use super::from_file;

const ROUTE: &str = "[plugin.f]\nfunction = 'f'\n[[route]]\n";

#[test]
fn route_and_plugin_name_their_account() {
    let text = "[account.a]\nrole = 'arn:aws-cn:iam::111122223333:role/path/r'\nregion = 'eu-west-1'\n\
                [account.b]\nprofile = 'p'\nqueues = ['sqs:team-b-*']\n\
                [plugin.f]\nfunction = 'f'\naccount = 'b'\nallow-lambda = ['g-*']\n\
                [[route]]\naccount = 'a'\nqueues = ['jobs:3', 'sqs:more:1']\ndead-letter = 'dead'\n";
    let (settings, problems) = from_file(text, &[]);
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
    let plugin = &settings.routes[0].plugin;
    for function in ["f", "g-1", "any"] {
        let account = settings.account_of_function(plugin, function);
        assert_eq!(account.map(|account| account.name.as_str()), Some("b"));
    }
    let role = accounts
        .of_queue("jobs")
        .and_then(|account| account.role.clone());
    assert_eq!(
        role.map(|role| role.session_name).as_deref(),
        Some("dispatcher")
    );
    // Arguments of commands are no queues of the route.
    let (settings, _) = from_file(text, &[("queues", "other")]);
    let accounts = &settings.stores.accounts;
    assert_eq!(accounts.of_queue("other"), None);
    let account = accounts.of_queue("jobs");
    assert_eq!(account.map(|account| account.name.as_str()), Some("a"));
}

#[test]
fn name_belongs_to_one_account() {
    let text = format!(
        "[account.a]\nqueues = ['jobs', 'team-*']\nfunctions = ['f']\n\
         [account.b]\nqueues = ['team-*']\nfunctions = ['f']\n\
         {ROUTE}account = 'b'\nqueues = ['jobs']\ndead-letter = 'other'\n\
         [[route]]\nname = 's'\nqueues = ['team-b']\ndead-letter = 'dead'\n"
    );
    let (_, problems) = from_file(&text, &[]);
    let wanted = "wanted each name and pattern in one account";
    assert_eq!(
        problems,
        [
            format!("d.toml:4: queue `team-*` belongs to account `a` already; {wanted}"),
            format!("d.toml:4: queue `jobs` belongs to account `a` already; {wanted}"),
            format!("d.toml:4: function `f` belongs to account `a` already; {wanted}"),
            "d.toml:13: dead-letter queue `dead` in another account than `team-b`; wanted both in \
             one account, by its `queues` or by `account` in the route"
                .to_owned(),
        ]
    );
}

#[test]
fn bad_accounts_are_all_told() {
    let text = format!(
        "[account.a]\nrole = 'arn:aws:iam::1:role/r'\nqueues = ['a**b']\nendpoint-url = 'here'\n\
         [account.b]\nexternal-id = 'x y'\nsession-name = 's'\nregion = 'eu west 1'\nroles = 'r'\n\
         {ROUTE}account = 'aa'\nqueues = ['jobs']\n\
         [[route]]\nname = 's'\naccount = 'a'\nqueues = ['redis:jobs']\n"
    );
    let (_, problems) = from_file(&text, &[]);
    let wanted = [
        "d.toml:9: unknown key `roles`",
        "d.toml:2: `arn:aws:iam::1:role/r` is not the ARN of a role; wanted arn:aws:iam::ACCOUNT:role/NAME",
        "d.toml:4: ",
        "d.toml:3: `a**b` is not a pattern; wanted a name in which no two `*` follow each other",
        "d.toml:6: `external-id` without a role; wanted a role as well",
        "d.toml:7: `session-name` without a role; wanted a role as well",
        "d.toml:6: `x y` is not an external id; wanted 2 to 1224 letters, digits and +=,.@:/-_",
        "d.toml:7: `s` is not a session name; wanted 2 to 64 letters, digits and +=,.@-_",
        "d.toml:8: `eu west 1` is not a region; wanted 1 to 63 letters, digits and -",
        "d.toml:13: no account `aa`; wanted the name of an [account.NAME] of the file; did you mean `a`?",
        "d.toml:17: an account for `redis:jobs`; wanted a route whose queues are all of AWS",
    ];
    assert_eq!(problems.len(), wanted.len(), "{problems:#?}");
    for (problem, wanted) in problems.iter().zip(wanted) {
        assert!(problem.starts_with(wanted), "{problem}\n{wanted}");
    }
}
