//! Data of earlier and later versions, and upgrades.

mod earlier_content;
mod earlier_dynamodb;
mod earlier_redis;
mod newer_content;
mod upgrade;
