//! The program: a temporary entry.
use dispatcher::*;
use std::sync::Arc;
use std::time::Duration;
#[tokio::main]
async fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args: Vec<String> = std::env::args().collect();
    let local = queue::name::QueueName{backend: queue::name::Backend::Local, name: "default".into()};
    if args[1]=="send" {
        let b = app::build::Backends::new(args[2].clone().into(), None);
        let q = b.open(&local, None).await.unwrap();
        let n: usize = args[4].parse().unwrap();
        let mut left=n;
        while left>0 { let k=left.min(100); let m = vec![message::Outgoing{body: args[3].clone(), ..Default::default()}; k]; for r in q.send(&m).await { r.unwrap(); } left-=k; }
        return;
    }
    let s = config::Settings{ data: args[2].clone().into(), endpoint_url: None, shutdown_grace: Duration::from_secs(30), log_format: config::LogFormat::Text, log_level: "info".into(), workers: 2.try_into().unwrap(),
      routes: vec![config::Route{ name:"r".into(), at:"x".into(), queues: vec![config::WeightedQueue{name: local, weight: None, at: "q".into()}], plugin: config::Plugin{name:"p".into(), at:"p".into(), file: args[3].clone().into(), timeout: Duration::from_secs(5), max_memory: 64<<20, env: vec![], reuse: None}, batch_size:1, concurrency: args[4].parse().unwrap(), visibility: None, poll_for: Duration::from_secs(20), sleep: Duration::ZERO, retry: config::Retry{first: Duration::from_secs(1), most: Duration::from_secs(900), attempts: None}, dead_letter: None}] };
    let counters = Arc::new(telemetry::counters::Counters::default());
    let c2 = counters.clone();
    let r = app::run(&s, counters).await;
    println!("{r:?} {:?}", c2.snapshot());
}
