//! How long a release may be.

use super::*;
use crate::queue::tests::delivery;

#[test]
fn release_delay_fits_within_twelve_hours_of_the_first_receive() {
    let hours = |n: u64| Duration::from_secs(n * 3_600);
    let today = Timestamp(100_000_000_000);
    let first = |held: Duration| {
        let mut message = delivery("a", 1);
        let held_ms = u64::try_from(held.as_millis()).expect("hours");
        message.first_received_at = Some(Timestamp(today.0 - held_ms));
        message
    };
    assert_eq!(release_s(&first(hours(1)), Duration::ZERO, today), 0);
    assert_eq!(release_s(&first(hours(1)), hours(2), today), 7_200);
    assert_eq!(
        release_s(&first(hours(1)), hours(12), today),
        43_195 - 3_600
    );
    assert_eq!(release_s(&first(hours(20)), hours(1), today), 0);
    assert_eq!(
        release_s(&first(hours(0)), Duration::from_millis(1_001), today),
        2
    );
    let mut second = first(hours(5));
    second.receive_count = 2;
    assert_eq!(release_s(&second, hours(12), today), 43_195);
    assert_eq!(release_s(&second, Duration::MAX, today), 43_195);
}
