//! The tables hold together, and the reference page says what is in them.

use super::*;
use std::collections::BTreeSet;

#[test]
fn only_settings_have_variables() {
    assert_eq!(variable("poll-for"), Some("DISPATCHER_POLL_FOR"));
    assert_eq!(variable("config"), Some("DISPATCHER_CONFIG"));
    assert_eq!(variable("delay"), None);
}

#[test]
fn setting_names_are_unique() {
    let (mut flags, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for setting in all() {
        let key = setting.key;
        assert!(keys.insert((format!("{:?}", setting.part), key)), "{key}");
        let flag = setting.flag_name();
        assert!(flag.is_none_or(|flag| flags.insert(flag)), "{flag:?}");
        for table in setting.tables {
            let written = setting.key_in(*table);
            let same = table.settings().filter(|(key, _)| Some(*key) == written);
            assert_eq!(same.count(), 1, "{key} in {}", table.title());
        }
    }
}

#[test]
fn every_setting_has_a_section_and_help() {
    for setting in all() {
        let (key, help) = (setting.key, setting.summary());
        assert!(
            setting.flag.is_some() || !setting.tables.is_empty(),
            "{key}"
        );
        assert!(help.len() > 10 && !help.ends_with('.'), "{key}: {help}");
        assert!(!help.contains("[default"), "{key}: {help}");
        assert!(!setting.value.is_empty(), "{key}");
    }
}

#[test]
fn map_of_queues_is_a_setting() {
    for setting in all() {
        if let Some(Syntax::PerQueue(form)) = setting.flag.map(|flag| flag.syntax) {
            let map = of_key(setting.part, form.map).expect(form.map);
            assert_eq!(map.shape, Shape::Map, "{}", form.map);
        }
    }
}

#[test]
fn names_of_queues_get_the_prefix() {
    // Patterns of other things.
    const OTHERS: [&str; 3] = ["allow-lambda", "filter", "functions"];
    let forms = all().filter_map(|setting| match setting.flag?.syntax {
        Syntax::PerQueue(form) => Some((setting.part, form.map)),
        _ => None,
    });
    let maps: Vec<_> = forms.collect();
    for setting in all().filter(|setting| !setting.names_queues) {
        let key = setting.key;
        let is_name = ["QUEUE", "PATTERN", "LIST"]
            .iter()
            .any(|word| setting.value.starts_with(word));
        assert!(!is_name || OTHERS.contains(&key), "{key}");
        assert!(!maps.contains(&(setting.part, key)), "{key}");
    }
}

#[test]
fn table_has_at_most_one_shorthand() {
    for setting in all().filter(|setting| setting.is_shorthand) {
        let table = setting.key.split_once('.').expect("a key of a table").0;
        let others = all().filter(|other| {
            let own = other.key.split_once('.').map(|(table, _)| table);
            other.part == setting.part && other.is_shorthand && own == Some(table)
        });
        assert_eq!(others.count(), 1, "{table}");
    }
}

#[test]
fn settings_page_matches_the_declarations() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/settings.md");
    let page = page::page();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).expect("the page is written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "host/docs/settings.md is not what the tables say: write it again with \
         `UPDATE=1 cargo test settings_page`"
    );
}
