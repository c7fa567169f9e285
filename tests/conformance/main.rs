//! One suite for every backend: what the port promises, asked of each. Where backends differ for
//! good reason the checks ask the queue's `Identity`. A check that only one backend needs stands
//! in that backend's own file.

#[macro_use]
mod checks;

#[allow(dead_code, reason = "accounts are opened by the suite for AWS alone")]
mod backend;
mod buckets;
mod controls;
mod delivery;
mod directory_own;
mod dispatchers;
mod dynamodb_own;
mod dynamodb_own_faults;
mod dynamodb_own_life;
mod fleet;
mod leases;
mod listing;
mod postgres_own;
mod redis_faults;
mod redis_full;
mod redis_lines;
mod redis_sharing;
mod redis_sharing_model;
mod redis_worqr;
mod settling;
mod sqs_faults;
mod sqs_limits;

/// Every check of the suite as a test of one backend.
macro_rules! suite {
    ($name:ident, $backend:expr, $($file:ident: [$($check:ident),* $(,)?]),* $(,)?) => {
        mod $name {
            $($(
                #[tokio::test]
                async fn $check() {
                    crate::$file::$check(&$backend).await;
                }
            )*)*
        }
    };
}

macro_rules! conformance {
    ($name:ident, $backend:expr) => {
        with_checks!(suite!($name, $backend,));
    };
}

conformance!(sqs, crate::backend::Backend::sqs());
conformance!(served, crate::backend::Backend::served());
conformance!(local, crate::backend::Backend::local());
conformance!(
    directory,
    crate::backend::Backend::directory(env!("CARGO_BIN_EXE_dispatcher-with-directory"))
);
conformance!(redis, crate::backend::Backend::redis());
conformance!(redis_cluster, crate::backend::Backend::redis_cluster());
conformance!(postgres, crate::backend::Backend::postgres().await);
conformance!(dynamodb, crate::backend::Backend::dynamodb());
conformance!(dynamodb_sharded, crate::backend::Backend::sharded());
