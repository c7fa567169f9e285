//! Prints the body of every message. The shortest plugin there is.

use dispatcher_guest::{Failure, Message, handler};

fn hello(message: Message) -> Result<(), Failure> {
    println!("{}", message.body);
    Ok(())
}

handler!(hello);
