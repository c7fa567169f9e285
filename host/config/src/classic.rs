//! The environment variables of the classic tool, as a layer below this program's own and above the
//! file, so that its users can migrate a container by changing only the image. The environment is
//! an argument.

use super::flags::Flags;
use super::section::WrittenValue;

/// The suffix of each variable, which is the same in both tools, and the flag that it sets.
const VARIABLES: &[(&str, &str)] = &[
    ("FUNCTION", "function"),
    ("QUEUES", "queues"),
    ("CONCURRENCY", "concurrency"),
    ("POLL_FOR", "poll-for"),
    ("SLEEP", "sleep"),
    ("NAME", "name"),
    ("METRICS_INTERVAL", "metrics-interval"),
];

/// Takes the values of the classic variables that neither a flag nor a variable of this program
/// sets. Returns a line with the used variables and their new names, if there are any. An empty
/// variable counts as not set, since images set empty variables.
pub fn take(flags: &mut Flags, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut taken = Vec::new();
    for (end, flag) in VARIABLES {
        let name = format!("WORKERLESS_{end}");
        let Some(text) = variable(&name).filter(|text| !text.trim().is_empty()) else {
            continue;
        };
        // A component in a higher layer replaces the function.
        let named = flags.is_set(flag) || (*flag == "function" && flags.is_set("plugin"));
        if !named && flags.take(flag, WrittenValue::new(&name, text)) {
            taken.push(format!("{name} as DISPATCHER_{end}"));
        }
    }
    (!taken.is_empty()).then(|| {
        let list = taken.join(", ");
        format!("read from the classic tool's environment: {list}; please use the new names")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        let value = match name {
            "WORKERLESS_FUNCTION" => "old",
            "WORKERLESS_QUEUES" => "payments:3,default:1",
            "WORKERLESS_CONCURRENCY" => "7",
            "WORKERLESS_SLEEP" => "",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn classic_variables_fill_unset_settings_with_one_notice() {
        let mut flags = Flags::default();
        flags.take(
            "concurrency",
            WrittenValue::new("--concurrency", "payments=2"),
        );
        flags.take("queues", WrittenValue::new("DISPATCHER_QUEUES", "payments"));
        let notice = take(&mut flags, environment);
        assert_eq!(
            notice.as_deref(),
            Some(
                "read from the classic tool's environment: \
                 WORKERLESS_FUNCTION as DISPATCHER_FUNCTION, \
                 WORKERLESS_CONCURRENCY as DISPATCHER_CONCURRENCY; please use the new names"
            )
        );
        let function = WrittenValue::new("WORKERLESS_FUNCTION", "old");
        assert_eq!(flags.plugin.one("function"), Some(&function));
        let queues = WrittenValue::new("DISPATCHER_QUEUES", "payments");
        assert_eq!(flags.route.one("queues"), Some(&queues));
        assert!(flags.route.one("sleep").is_none());
        // The total and the limit of one queue are two things.
        let total = WrittenValue::new("WORKERLESS_CONCURRENCY", "7");
        assert_eq!(flags.route.one("concurrency"), Some(&total));
        assert!(flags.route.has("queue-concurrency"));
        assert_eq!(flags.problems, []);
    }

    #[test]
    fn component_replaces_the_function() {
        let mut flags = Flags::default();
        flags.take("plugin", WrittenValue::new("--plugin", "p.wasm"));
        let notice = take(&mut flags, |name| {
            let is_wanted = name == "WORKERLESS_FUNCTION";
            is_wanted.then(|| environment(name)).flatten()
        });
        assert_eq!(notice, None);
        assert!(flags.plugin.one("function").is_none());
    }

    #[test]
    fn all_seven_classic_variables_are_known() {
        let mut flags = Flags::default();
        let notice = take(&mut flags, |_| Some("1".to_owned())).expect("a notice");
        assert_eq!(notice.matches("WORKERLESS_").count(), 7, "{notice}");
        for key in ["metrics-interval", "name"] {
            assert!(flags.program.has(key), "{key}");
        }
    }
}
