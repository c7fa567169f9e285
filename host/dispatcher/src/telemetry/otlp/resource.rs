//! What all signals say about this process. Knows no collector.

use dispatcher_core::process;
use std::sync::LazyLock;
use uuid::Uuid;

/// Names of the conventions, and their values.
pub(crate) type Resource = Vec<(String, String)>;

const INSTANCE: &str = "service.instance.id";
const HOST: &str = "host.name";

/// Random, and the same in all signals of this process.
static INSTANCE_ID: LazyLock<String> = LazyLock::new(|| Uuid::new_v4().to_string());

/// Adds what tells this process from others of its service, unless it is configured. Without, the
/// metrics of replicas would be one series, which each of them overwrites.
pub(crate) fn of_this_process(configured: &Resource) -> Resource {
    let mut resource = configured.clone();
    let is_set = |name: &str| configured.iter().any(|(key, _)| key == name);
    if !is_set(INSTANCE) {
        resource.push((INSTANCE.to_owned(), INSTANCE_ID.clone()));
    }
    let host = (!is_set(HOST)).then(process::host_name).flatten();
    resource.extend(host.map(|host| (HOST.to_owned(), host)));
    resource
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(resource: &'a Resource, name: &str) -> Vec<&'a str> {
        let named = resource.iter().filter(|(key, _)| key == name);
        named.map(|(_, value)| value.as_str()).collect()
    }

    #[test]
    fn process_has_one_random_id_unless_it_is_configured() {
        let [one, other] = [(); 2].map(|()| of_this_process(&Resource::new()));
        assert_eq!(one, other);
        let [id] = value(&one, INSTANCE)[..] else {
            panic!("{one:?}");
        };
        assert!(Uuid::parse_str(id).is_ok_and(|id| !id.is_nil()), "{id}");
        let configured = [(INSTANCE, "orders-0"), (HOST, "node-1")];
        let configured = configured.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let configured = Resource::from(configured);
        assert_eq!(of_this_process(&configured), configured);
    }
}
