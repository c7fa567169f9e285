//! A client of SQS's JSON protocol that costs next to nothing: one connection, requests written by
//! hand, of answers only what is needed. Signs nothing.

use std::fmt::Write;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection.
pub(crate) struct Lean {
    stream: TcpStream,
    address: String,
    read: Vec<u8>,
}

impl Lean {
    /// Connects.
    pub(crate) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("a server");
        stream.set_nodelay(true).expect("a TCP stream");
        Self {
            stream,
            address: address.to_owned(),
            read: Vec::new(),
        }
    }

    /// Makes a queue; its URL.
    pub(crate) async fn create(&mut self, name: &str) -> String {
        let answer = self
            .call("CreateQueue", &format!("{{\"QueueName\":\"{name}\"}}"))
            .await;
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        answer["QueueUrl"].as_str().expect("a URL").to_owned()
    }

    /// Sends ten of this size.
    pub(crate) async fn send(&mut self, url: &str, size: usize) {
        let body = "x".repeat(size);
        let mut text = format!("{{\"QueueUrl\":\"{url}\",\"Entries\":[");
        for number in 0..10 {
            let comma = if number == 0 { "" } else { "," };
            let _ = write!(
                text,
                "{comma}{{\"Id\":\"{number}\",\"MessageBody\":\"{body}\"}}"
            );
        }
        text.push_str("]}");
        let answer = self.call("SendMessageBatch", &text).await;
        assert!(!answer.contains("\"Failed\":[{"), "{answer}");
    }

    /// Sends one.
    pub(crate) async fn send_one(&mut self, url: &str) {
        let text = format!("{{\"QueueUrl\":\"{url}\",\"MessageBody\":\"wake\"}}");
        self.call("SendMessage", &text).await;
    }

    /// Receives up to ten; their receipts.
    pub(crate) async fn receive(&mut self, url: &str, wait_s: u32) -> Vec<String> {
        let text = format!(
            "{{\"QueueUrl\":\"{url}\",\"MaxNumberOfMessages\":10,\"WaitTimeSeconds\":{wait_s}}}"
        );
        let answer = self.call("ReceiveMessage", &text).await;
        let mut receipts = Vec::new();
        let mut rest = answer.as_str();
        while let Some(at) = rest.find("\"ReceiptHandle\"") {
            rest = &rest[at + "\"ReceiptHandle\"".len()..];
            let mut parts = rest.splitn(3, '"');
            receipts.push(parts.nth(1).expect("a receipt").to_owned());
        }
        receipts
    }

    /// Deletes up to ten.
    pub(crate) async fn delete(&mut self, url: &str, receipts: &[String]) {
        if receipts.is_empty() {
            return;
        }
        let mut text = format!("{{\"QueueUrl\":\"{url}\",\"Entries\":[");
        for (number, receipt) in receipts.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let _ = write!(
                text,
                "{comma}{{\"Id\":\"{number}\",\"ReceiptHandle\":\"{receipt}\"}}"
            );
        }
        text.push_str("]}");
        let answer = self.call("DeleteMessageBatch", &text).await;
        assert!(!answer.contains("\"Failed\":[{"), "{answer}");
    }

    async fn call(&mut self, action: &str, body: &str) -> String {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-amz-json-1.0\r\n\
             X-Amz-Target: AmazonSQS.{action}\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/sqs/aws4_request, \
             SignedHeaders=host, Signature=0\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let written = self.stream.write_all(request.as_bytes()).await;
        written.expect("the server reads");
        self.read.clear();
        let (head, length) = loop {
            if let Some(found) = head(&self.read) {
                break found;
            }
            self.more().await;
        };
        while self.read.len() < head + length {
            self.more().await;
        }
        String::from_utf8_lossy(&self.read[head..head + length]).into_owned()
    }

    async fn more(&mut self) {
        let read = self.stream.read_buf(&mut self.read).await;
        assert!(read.expect("an answer") > 0, "the server has hung up");
    }
}

/// Where the head of an answer ends, and how long its body is; fails if it is no success.
fn head(text: &[u8]) -> Option<(usize, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(end) = answer.parse(text).expect("HTTP") else {
        return None;
    };
    let text = String::from_utf8_lossy(text);
    assert_eq!(answer.code, Some(200), "{text}");
    let length = answer
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    Some((end, length.expect("a length")))
}
