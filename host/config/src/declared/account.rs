//! The settings of an account of AWS.

use super::macros::settings;
use super::{Setting, SettingPart, Shape, Table};

settings! {
    /// `[account.NAME]`.
    ACCOUNT of SettingPart::Account, in &[Table::Account];

    /// The queues of the account, as routes name them. `*` stands for any characters, as in team-*
    /// or arn:aws:sqs:*:111122223333:*; the longest pattern decides
    "queues" => Setting::new("PATTERN").shape(Shape::List).names_queues()
        .default("those of routes with this account");

    /// The functions of the account, by name or ARN, with `*` for any characters
    "functions" => Setting::new("PATTERN").shape(Shape::List).default("none");

    /// The role to assume for them
    "role" => Setting::new("ARN").default("none: the credentials of the profile, or of the process");

    /// The external id that the role's trust policy demands
    "external-id" => Setting::new("TEXT");

    /// The name of the role's sessions, which CloudTrail shows
    "session-name" => Setting::new("NAME").default("dispatcher");

    /// The profile of the credentials, or of those that assume the role
    "profile" => Setting::new("NAME").default("the process's own");

    /// The region of its queues and functions
    "region" => Setting::new("REGION").default("that of an ARN or URL, else of the profile, else of the process");

    /// The address to use for every call instead of the service's own
    "endpoint-url" => Setting::new("URL").default("that of [dispatcher]");
}
