//! The checks of the suite, by the file that they stand in. Whoever runs them names a macro that makes
//! something of the list: tests, or a table.

/// Calls a macro with arguments of its own and then the list.
macro_rules! with_checks {
    ($macro:ident!($($own:tt)*)) => {
        $macro! {
            $($own)*
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
                dead_lettering_without_a_dead_letter_queue_is_refused,
                a_slice_may_name_a_message_twice,
                outcomes_may_be_mixed,
            ],
            listing: [
                what_waits_is_listed_without_being_received,
                what_comes_later_is_listed_after_the_end,
                chosen_messages_are_received_and_no_others,
                a_chosen_message_does_not_overtake_one_of_its_group_in_flight,
                a_purge_removes_what_is_not_in_flight,
                a_copy_carries_everything,
                a_deduplication_id_counts_where_the_queue_has_one,
            ],
            dispatchers: [
                two_at_once_share_a_queue_and_none_does_anothers_work,
                what_a_killed_one_held_is_done_by_another,
            ],
        }
    };
}
