//! Order, groups, priority and age of messages.

mod age;
pub(crate) mod age_scene;
mod fifo;
mod fifo_redrive;
mod group_by;
mod groups_scene;
mod prefetch;
mod priority;
mod priority_many;
mod tenants;
