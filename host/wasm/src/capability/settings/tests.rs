//! Settings: none until they are granted, and then no others.

use super::ConfigStore;
use crate::tests::*;

#[test]
fn guest_sees_exactly_its_settings() {
    let plain = capable(options());
    assert_eq!(rejection(&plain, "settings"), "got Ok([])");
    assert_eq!(rejection(&plain, "setting colour"), "got Ok(None)");
    let set = capable(granting(|grants| {
        grants.settings = ConfigStore([("colour".into(), "blue = sky".into())].into());
    }));
    assert_eq!(
        rejection(&set, "setting colour"),
        "got Ok(Some(\"blue = sky\"))"
    );
    assert_eq!(rejection(&set, "setting GREETING"), "got Ok(None)");
    assert_eq!(
        rejection(&set, "settings"),
        "got Ok([(\"colour\", \"blue = sky\")])"
    );
}
