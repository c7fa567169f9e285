//! How much the downstream bears: how many attempts at once, how many messages a second. Pure, told
//! `now`; knows no queue and no job.

pub mod bucket;
pub mod control;
