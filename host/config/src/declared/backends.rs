//! Where messages are kept: the settings of all backends together, and those that each declares.

use super::macros::settings;
use super::{Flag, Group, PerQueue, Reload, Setting, SettingPart, Shape, Syntax, Table};
use crate::backends;
use dispatcher_core::backend::{Backend, BackendSetting, SettingFlag, SettingForm};

settings! {
    /// Where this program and AWS keep messages.
    STORES of SettingPart::Program, in &[Table::Dispatcher];

    /// The DynamoDB table for scheduled messages of SQS queues
    "schedule-table" => Setting::new("TABLE").default("one table per queue, with its name")
        .flag(Group::ScheduleTable);

    /// The prefix of every queue that the configuration names: with prod-, `orders` is the queue
    /// prod-orders, and redis:orders is redis:prod-orders. ARNs and URLs are complete
    "prefix" => Setting::new("TEXT").default("none").applies(Reload::Live).flag(Group::File);

    /// The folder of the embedded queue
    "data" => Setting::new("FOLDER").default("this user's data folder").path().flag(Group::Data);

    /// Use this address instead of AWS
    "endpoint-url" => Setting::new("URL").flag(Group::Aws);
}

/// Adds what backends declare: their settings, and their sections to the settings that they share.
/// Called once; what it makes lives as long as the program.
pub(super) fn add_to(all: &mut Vec<Setting>) {
    for backend in backends::all() {
        for key in backend.facts().shared_settings {
            let shared = all
                .iter_mut()
                .find(|setting: &&mut Setting| {
                    setting.part == SettingPart::Program && setting.key == *key
                })
                .expect("a backend shares a setting of the program");
            let section = [Table::Backend(backend.name())];
            shared.tables = [shared.tables, &section].concat().leak();
        }
        all.extend(
            backend
                .facts()
                .settings
                .iter()
                .map(|declared| setting(*backend, declared)),
        );
    }
}

/// Its key is `redis-url` for `url` of `[backend.redis]`.
fn setting(backend: &dyn Backend, declared: &'static BackendSetting) -> Setting {
    let key: &'static str = format!("{}-{}", backend.name(), declared.key).leak();
    let per_queue = match &declared.form {
        SettingForm::WordPerQueue {
            noun,
            wanted,
            example,
            ..
        } => Some(PerQueue {
            map: key,
            noun,
            wanted,
            example,
        }),
        _ => None,
    };
    let flag = declared.flag.map(|flag| Flag {
        name: None,
        group: match flag {
            SettingFlag::Place => Group::Backends,
            SettingFlag::Queues => Group::BackendQueues,
        },
        syntax: per_queue.map_or(Syntax::Text, Syntax::PerQueue),
    });
    Setting {
        key,
        help: std::slice::from_ref(&declared.help),
        tables: vec![Table::Backend(backend.name())].leak(),
        default: declared.default,
        shape: if per_queue.is_some() {
            Shape::Map
        } else {
            Shape::Scalar
        },
        flag,
        is_path: matches!(declared.form, SettingForm::Path),
        names_queues: per_queue.is_some(),
        ..Setting::new(declared.value)
    }
}
