//! The checks of the suite, by the file that they are in. Whoever runs them names a macro that makes
//! something of the list: tests, or a table.

/// Calls a macro with its arguments and then the list.
macro_rules! with_checks {
    ($macro:ident!($($own:tt)*)) => {
        $macro! {
            $($own)*
            delivery: [
                sent_message_is_received,
                attributes_survive,
                receive_returns_at_most_the_maximum,
                receives_are_counted,
                order_is_kept_where_supported,
                newest_come_first_where_supported,
                group_waits_for_its_first_message,
                delay_is_respected,
                long_poll_wakes_on_a_send,
                empty_queue_is_drained,
                partial_answer_to_a_long_poll_is_drained,
                depth_separates_waiting_from_in_flight,
                message_ids_are_returned_by_send,
            ],
            leases: [
                unsettled_message_is_redelivered,
                extended_message_stays_invisible,
                zero_extension_releases_the_message,
                each_extension_has_its_own_result,
            ],
            settling: [
                deleted_message_is_not_redelivered,
                settling_twice_has_no_effect,
                released_message_is_redelivered,
                released_message_respects_its_delay,
                settle_results_are_in_order,
                stale_receipt_does_not_settle_a_newer_delivery,
                dead_lettered_message_moves_with_its_reason,
                dead_lettering_without_a_dead_letter_queue_is_refused,
                message_may_be_settled_twice_in_one_call,
                outcomes_of_one_call_may_be_mixed,
            ],
            listing: [
                what_waits_is_listed_without_being_received,
                what_comes_later_is_listed_after_the_end,
                chosen_messages_are_received_and_no_others,
                a_message_that_waits_is_found_by_its_id,
                a_chosen_message_does_not_overtake_one_of_its_group_in_flight,
                a_purge_removes_what_is_not_in_flight,
                what_waits_for_its_time_is_cancelled_by_its_id,
                a_copy_carries_everything,
                a_deduplication_id_counts_where_the_queue_has_one,
            ],
            dispatchers: [
                two_dispatchers_share_a_queue_without_overlap,
                messages_of_a_killed_dispatcher_are_handled_by_another,
            ],
        }
    };
}
