//! The seeds of the simulation that the fast tier leaves out.

use dispatcher_simulation::{FAST, FULL, search};

#[test]
fn no_later_seed_breaks_a_rule() {
    search(FAST, FULL - FAST);
}
