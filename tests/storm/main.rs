//! A process of a storm over the limits of a fleet. Only tests start it.

fn main() {
    dispatcher_tests::storm::hold(&std::env::args().skip(1).collect::<Vec<_>>());
}
