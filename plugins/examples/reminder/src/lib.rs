//! Sets a reminder for every order: a message that is handed out 36 hours later, however long a queue
//! can delay one. `REMINDERS` names the queue that it goes to, and `AFTER_S` how many seconds later.

use dispatcher_guest::queues::{Outgoing, SendError, send};
use dispatcher_guest::{Failure, Message, handler};
use std::time::Duration;

const THIRTY_SIX_HOURS_S: u64 = 36 * 60 * 60;

fn remind(message: Message) -> Result<(), Failure> {
    let queue = std::env::var("REMINDERS").unwrap_or("local:reminders".into());
    if message.queue == queue {
        println!("reminder: {}", message.body);
        return Ok(());
    }
    let after = std::env::var("AFTER_S").ok();
    let after_s = after.and_then(|text| text.parse().ok());
    let after_s: u64 = after_s.unwrap_or(THIRTY_SIX_HOURS_S);
    let reminder = Outgoing::new(format!("was {} paid for?", message.body));
    let id = match send(&queue, reminder.delay(Duration::from_secs(after_s))) {
        // What it may not do, nobody will allow it while it runs.
        Err(SendError::Forbidden(why)) => return Err(Failure::reject(why)),
        sent => sent?,
    };
    println!("{}: reminder {id} in {after_s} s", message.body);
    Ok(())
}

handler!(remind);
