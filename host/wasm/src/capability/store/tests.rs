//! Buckets open by the names that they are granted by, and failures arrive in words.

use super::StoreGrant;
use crate::tests::*;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::keyvalue::{Bucket, Page};

/// Fails as a server that is away does.
struct Away;

#[async_trait::async_trait]
impl Bucket for Away {
    async fn get(&self, _: &[String]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        Err(CallError {
            kind: ErrorKind::Unreachable,
            message: "nobody answers at 192.0.2.7".into(),
        })
    }

    async fn exists(&self, _: &str) -> Result<bool, CallError> {
        std::future::pending().await
    }

    async fn set(&self, _: &[(String, Vec<u8>)]) -> Result<(), CallError> {
        Ok(())
    }

    async fn delete(&self, _: &[String]) -> Result<(), CallError> {
        panic!("no panic of a store ends the program");
    }

    async fn increment(&self, _: &str, _: i64) -> Result<i64, CallError> {
        Ok(i64::MIN)
    }

    async fn swap(&self, _: &str, _: Option<&[u8]>, _: &[u8]) -> Result<bool, CallError> {
        Ok(false)
    }

    async fn keys(&self, _: Option<u64>) -> Result<Page, CallError> {
        Ok(Page::default())
    }
}

#[test]
fn store_opens_by_its_granted_name_and_reports_failures() {
    let (refused, count) = counting();
    let bucket: Arc<dyn Bucket> = Arc::new(Away);
    let plugin = capable(PluginOptions {
        refused: count,
        ..granting(|grants| grants.stores = StoreGrant([("mine".to_owned(), bucket)].into()))
    });
    assert_eq!(rejection(&plugin, "open mine"), "got it");
    for other in ["", "other", "local:mine", "../mine"] {
        assert_eq!(
            rejection(&plugin, &format!("open {other}")),
            "Error::AccessDenied"
        );
    }
    assert_eq!(refused.load(Ordering::SeqCst), 4);
    let told = rejection(&plugin, "get mine k");
    assert_eq!(told, "Error::Other(\"nobody answers at 192.0.2.7\")");
    assert_eq!(
        rejection(&plugin, "increment mine k 1"),
        "got -9223372036854775808"
    );
    // Limits are the host's, whatever the store.
    assert_eq!(rejection(&plugin, "set-sized mine 1024 1048576"), "got set");
    for (sizes, told) in [
        ("0 1", "a key of 0 bytes; wanted 1 to 1024"),
        ("1025 1", "a key of 1025 bytes; wanted 1 to 1024"),
        (
            "1 1048577",
            "the value of `k` has 1048577 bytes; at most 1048576",
        ),
    ] {
        let says = rejection(&plugin, &format!("set-sized mine {sizes}"));
        assert_eq!(says, format!("Error::Other(\"{told}\")"));
    }
    let many = vec!["k"; 101].join(" ");
    let says = rejection(&plugin, &format!("get-many mine {many}"));
    assert_eq!(says, "Error::Other(\"101 keys in one call; at most 100\")");
}

#[test]
fn wait_for_a_store_ends_with_the_attempt() {
    let bucket: Arc<dyn Bucket> = Arc::new(Away);
    let plugin = capable(granting(|grants| {
        grants.stores = StoreGrant([("mine".to_owned(), bucket)].into());
    }));
    let waiting = attempt(&["exists mine k"], LONG);
    let future = drive_until_it_waits(Box::pin(plugin.handle(waiting)));
    drop(future);
    assert_eq!(rejection(&plugin, "open mine"), "got it");
}
