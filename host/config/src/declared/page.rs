//! The reference page, host/docs/settings.md, from the tables.

use super::{Reload, Setting, SettingPart, Shape, Table, all, backends};

const HEAD: &str = "\
<!-- Generated from host/config/src/declared: UPDATE=1 cargo test settings_page -->

# Settings

Every setting, by its section of the configuration file. A flag overrides its environment
variable, and both override the file that `--config` names. Flags of routes and plugins apply to
the only route of a run; if the file has several routes, they are refused.

`dispatcher check` reports every problem at once and starts nothing. Unknown keys, flags and misspelt
variables are reported with the nearest name, and problems of the file with their lines.

- **Values**: `TIME` is a duration such as `30s` or `1h 30m`; `S` is the same, and a bare number is
  seconds; `SIZE` is a number of bytes, as in `64MiB`; `N` is a whole number. A flag for a list or a
  table may be repeated, and its variable has one item per line.
- **SIGHUP** [reloads](reload.md) the file. Each setting says when a changed value applies; the log
  names those that need a restart.
";

/// The whole page.
pub(super) fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut tables = vec![
        Table::Dispatcher,
        Table::Route,
        Table::Limit,
        Table::Fleet,
        Table::Account,
        Table::Plugin,
        Table::Queue,
    ];
    tables.extend(backends().into_iter().map(Table::Backend));
    for table in tables {
        let about = match table {
            Table::Dispatcher => "\nSettings of the process.\n",
            Table::Route => {
                "\nWhich messages are received, and how many run concurrently; once per route.\n"
            }
            Table::Plugin => "\nThe handler of the messages, and its permissions.\n",
            Table::Queue => {
                "\nAn embedded queue, `local:NAME`: made at the start of `run` and `local`, or changed to this \
                 where no message is lost. What the section leaves out stays as it is.\n"
            }
            Table::Limit => {
                "\nA limit that holds for all processes together. A message that exceeds it waits; no \
                 attempt is made, and none fails. At least one of `rate` and `concurrency` is needed.\n"
            }
            Table::Account => {
                "\nAn account of AWS, or of a server that speaks its protocol: how calls for some queues and \
                 functions are signed. Other queues and functions use the credentials of the process.\n"
            }
            Table::Fleet => "\nThe processes that share limits, and where they keep them.\n",
            Table::Backend(_) => "",
        };
        line(&mut page, &format!("\n## `{}`\n{about}", table.title()));
        for (key, setting) in table.settings() {
            let is_inherited = table == Table::Dispatcher && setting.part == SettingPart::Route;
            let of_all = if is_inherited {
                " The default of every route."
            } else {
                ""
            };
            entry(&mut page, key, setting, of_all);
        }
    }
    line(&mut page, "\n## Not in the file\n");
    for setting in all().filter(|setting| setting.tables.is_empty()) {
        entry(&mut page, &format!("--{}", setting.key), setting, "");
    }
    page
}

fn entry(page: &mut String, title: &str, setting: &Setting, more: &str) {
    line(
        page,
        &format!("### `{title}`\n\n{}.{more}\n", setting.summary()),
    );
    let value = setting.value;
    line(
        page,
        &match setting.shape {
            Shape::Scalar | Shape::Switch => format!("- Value: `{value}`"),
            Shape::List => format!("- Value: a list of `{value}`"),
            Shape::Map => format!("- Value: a table of `{value}`"),
            Shape::Tables(_) => format!("- Value: a table of tables `{value}`"),
        },
    );
    if !setting.default.is_empty() {
        line(page, &format!("- Default: {}", setting.default));
    }
    if let (Some(flag), Some(variable)) = (setting.flag_name(), setting.variable()) {
        line(page, &format!("- Flag `--{flag}`, variable `{variable}`"));
    }
    if !setting.tables.is_empty() {
        let reload = match setting.reload() {
            Reload::Restart => "at the next start",
            Reload::Route => "for messages that are received from then on",
            Reload::Live => "at once",
            Reload::Plugin => "with the plugin's next attempt",
        };
        line(page, &format!("- SIGHUP: {reload}"));
    }
    line(page, "");
}

fn line(page: &mut String, text: &str) {
    page.push_str(text);
    page.push('\n');
}
