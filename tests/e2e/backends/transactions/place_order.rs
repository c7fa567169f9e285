//! The code of the page, without this line.

use tokio_postgres::{Client, Error};

pub async fn place_order(client: &mut Client, id: i64, total: i64) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    let insert = "INSERT INTO orders (id, total) VALUES ($1, $2)";
    transaction.execute(insert, &[&id, &total]).await?;
    let order = format!("{{\"id\": {id}, \"total\": {total}}}");
    let send = "SELECT dispatcher.send('jobs', $1::text)";
    transaction.execute(send, &[&order]).await?;
    transaction.commit().await
}
