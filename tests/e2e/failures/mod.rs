//! Crashes, faulty networks, full memory and stops.

mod crash;
mod faults;
mod memory;
mod stop;
mod unread;
