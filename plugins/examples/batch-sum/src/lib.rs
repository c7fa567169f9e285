//! Adds up the numbers of a batch and prints the sum. What is no number is rejected, alone.

use dispatcher_guest::{Failed, Failure, Message, OrFailure, Reject, batch_handler, each};

fn sum(messages: Vec<Message>) -> Result<Vec<Failed>, Failure> {
    let mut sum = 0_i64;
    let failed = each(messages, |message| {
        let number: i64 = message.body.trim().parse().map_err(Reject)?;
        sum = sum
            .checked_add(number)
            .ok_or("the sum overflows")
            .or_reject()?;
        Ok(())
    });
    println!("{sum}");
    failed
}

batch_handler!(sum);
