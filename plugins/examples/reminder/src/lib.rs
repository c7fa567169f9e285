//! Sets a reminder for every order: a message that is handed out 36 hours later, however long a queue
//! can delay one. `REMINDERS` names the queue that it goes to, and `AFTER_S` how many seconds later.

use dispatcher_guest::queues::{Outgoing, SendError, send};
use dispatcher_guest::{Failure, Message, handler};

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
    let reminder = Outgoing {
        delay: after_s * 1_000,
        ..Outgoing::new(format!("was {} paid for?", message.body))
    };
    match send(&queue, &reminder) {
        Ok(id) => println!("{}: reminder {id} in {after_s} s", message.body),
        // What it may not do, nobody will allow it while it runs.
        Err(SendError::Forbidden(why) | SendError::Refused(why)) => {
            return Err(Failure::reject(why));
        }
        Err(SendError::Unavailable(_)) => return Err(Failure::retry()),
    }
    Ok(())
}

handler!(remind);
