//! One suite for every backend: what the port promises, asked of each. Where backends differ for
//! good reason the checks ask the queue's `Identity`. A check that only one backend needs stands
//! in that backend's own file.

mod backend;
mod buckets;
mod delivery;
mod dispatchers;
mod dynamodb_own;
mod dynamodb_own_faults;
mod dynamodb_own_life;
mod leases;
mod redis_faults;
mod redis_full;
mod redis_lines;
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
        suite! {
            $name, $backend,
            delivery: [
                what_is_sent_is_received,
                attributes_survive,
                no_more_than_asked,
                receives_are_counted,
                order_is_kept_where_it_is_promised,
                the_newest_come_first_where_that_can_be_asked_for,
                a_group_waits_for_its_first_message,
                a_delay_is_kept,
                a_long_poll_wakes_on_a_send,
                an_empty_queue_is_drained,
                a_partial_answer_to_a_patient_receive_is_drained,
                depth_tells_waiting_from_in_flight,
                ids_are_told,
            ],
            leases: [
                an_unsettled_message_comes_back,
                an_extended_message_stays_away,
                an_extension_to_nothing_gives_back,
                extensions_are_answered_one_by_one,
            ],
            settling: [
                a_deleted_message_is_gone,
                settling_twice_is_harmless,
                a_released_message_comes_back,
                a_released_message_keeps_its_distance,
                answers_stand_in_order,
                a_stale_receipt_does_not_end_a_newer_delivery,
                a_dead_message_moves_with_its_reason,
                burying_without_a_grave_is_refused,
                a_slice_may_name_a_message_twice,
                outcomes_may_be_mixed,
            ],
            dispatchers: [
                two_at_once_share_a_queue_and_none_does_anothers_work,
                what_a_killed_one_held_is_done_by_another,
            ],
        }
    };
}

conformance!(sqs, crate::backend::Backend::sqs());
conformance!(served, crate::backend::Backend::served());
conformance!(local, crate::backend::Backend::local());
conformance!(redis, crate::backend::Backend::redis());
conformance!(redis_cluster, crate::backend::Backend::redis_cluster());
conformance!(dynamodb, crate::backend::Backend::dynamodb());
conformance!(dynamodb_sharded, crate::backend::Backend::sharded());
