//! The description of this process, which all signals contain. Knows no collector.

use dispatcher_core::process;
use std::sync::LazyLock;
use uuid::Uuid;

/// The attributes: names of the conventions, and their values.
pub type Resource = Vec<(String, String)>;

const INSTANCE: &str = "service.instance.id";
const HOST: &str = "host.name";

/// A random id, which is the same in all signals of this process.
static INSTANCE_ID: LazyLock<String> = LazyLock::new(|| Uuid::new_v4().to_string());

/// Adds attributes that distinguish this process from others of its service, unless they are
/// configured. Without them, the metrics of all replicas would be one series, and each replica
/// would overwrite the values of the others.
pub fn of_this_process(configured: &Resource) -> Resource {
    let mut resource = configured.clone();
    if !has(configured, INSTANCE) {
        resource.push((INSTANCE.to_owned(), INSTANCE_ID.clone()));
    }
    let host = (!has(configured, HOST)).then(process::host_name).flatten();
    resource.extend(host.map(|host| (HOST.to_owned(), host)));
    resource
}

fn has(attributes: &[(String, String)], name: &str) -> bool {
    attributes.iter().any(|(key, _)| key == name)
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
        let attributes = [(INSTANCE, "orders-0"), (HOST, "node-1")];
        let configured =
            Resource::from(attributes.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(of_this_process(&configured), configured);
    }
}
