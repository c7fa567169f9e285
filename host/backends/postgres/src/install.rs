//! The script of `dispatcher postgres init`: the schema `dispatcher`, and the rights of roles.

use dispatcher_core::backend::BackendRoles;
use std::fmt::Write as _;

/// The rights of a role that sends, by `dispatcher.send`.
const PRODUCER: &str = "
GRANT USAGE ON SCHEMA dispatcher TO {role};
GRANT EXECUTE ON FUNCTION dispatcher.send(text, jsonb, jsonb, interval, text) TO {role};
GRANT EXECUTE ON FUNCTION dispatcher.send(text, text, jsonb, interval, text) TO {role};
";

/// The rights of a role that handles messages. It also gets those on queues that are created later.
const WORKER: &str = "
GRANT USAGE ON SCHEMA dispatcher, pgmq TO {role};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA dispatcher TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dispatcher, pgmq TO {role};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA dispatcher, pgmq TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA pgmq GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA pgmq GRANT USAGE ON SEQUENCES TO {role};
";

/// Returns the statements. They are one transaction, and change nothing if they ran before.
pub(crate) fn script(roles: &BackendRoles) -> String {
    let mut script = format!("BEGIN;\n\n{}", include_str!("install.sql"));
    for (rights, roles) in [(WORKER, &roles.workers), (PRODUCER, &roles.producers)] {
        for role in roles {
            let role = format!("\"{}\"", role.replace('"', "\"\""));
            // Writing to a text cannot fail.
            let _ = write!(script, "{}", rights.replace("{role}", &role));
        }
    }
    script.push_str("\nCOMMIT;\n");
    script
}
