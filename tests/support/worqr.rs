//! A peer that speaks the very commands of npm `worqr` 1.2.3, which our registries do not have: keys and
//! transactions as the package sends them, its faults included. Knows nothing of the program.

use crate::redis::{Plain, RedisReply, RedisServer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// One process that has the package loaded: a producer, and a worker once it is started.
#[derive(Debug)]
pub struct WorqrPeer {
    data: Plain,
    worker: String,
    alive: Arc<AtomicBool>,
}

/// A task that a worker has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub id: String,
    /// The payload.
    pub task: String,
}

impl WorqrPeer {
    /// A producer.
    pub fn new(server: &RedisServer) -> Self {
        static WORKERS: AtomicUsize = AtomicUsize::new(0);
        Self {
            data: server.connect(),
            worker: format!("peer-{}", WORKERS.fetch_add(1, Ordering::Relaxed)),
            alive: Arc::new(AtomicBool::new(false)),
        }
    }

    fn call(&mut self, words: &[&str]) -> RedisReply {
        self.data.call(words).expect("the server answers")
    }

    /// MULTI, the commands, EXEC.
    fn multi(&mut self, commands: &[&[&str]]) -> Vec<RedisReply> {
        self.call(&["MULTI"]);
        for command in commands {
            self.call(command);
        }
        match self.call(&["EXEC"]) {
            RedisReply::List(answers) => answers,
            other => panic!("{other:?}"),
        }
    }

    /// `enqueue`.
    pub fn enqueue(&mut self, queue: &str, tasks: &[String]) {
        let key = format!("worqr:queues:{queue}");
        let mut push = vec!["LPUSH", &key];
        push.extend(tasks.iter().map(String::as_str));
        let channel = format!("worqr_{queue}_work");
        let count = tasks.len().to_string();
        self.multi(&[&push, &["PUBLISH", &channel, &count]]);
    }

    /// `startWorker` and `startWork`; alive until `die`.
    pub fn start_work(&mut self, server: &RedisServer, queue: &str) {
        let worker = self.worker.clone();
        let timer = format!("worqr:workerTimers:{worker}");
        self.multi(&[
            &["SADD", "worqr:workers", &worker],
            &["SADD", "worqr:expiringWorkers", &worker],
            &["SET", &timer, "RUN", "EX", "3"],
        ]);
        let queues = format!("worqr:workingQueues:{worker}");
        self.call(&["SISMEMBER", "worqr:workers", &worker]);
        self.call(&["SADD", &queues, queue]);
        self.call(&["LLEN", &format!("worqr:queues:{queue}")]);
        self.alive.store(true, Ordering::SeqCst);
        let (alive, mut beats) = (self.alive.clone(), server.connect());
        std::thread::spawn(move || {
            while alive.load(Ordering::SeqCst) {
                // A server that has gone ends it, too.
                if beats
                    .call(&["SET", &timer, "RUN", "EX", "3", "XX"])
                    .is_err()
                {
                    return;
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        });
    }

    /// Shows no more signs of life, and does nothing more, as after `kill -9`.
    pub fn die(self) {
        self.alive.store(false, Ordering::SeqCst);
    }

    /// `dequeue`.
    pub fn dequeue(&mut self, queue: &str) -> Option<Process> {
        let queues = format!("worqr:workingQueues:{}", self.worker);
        if self.call(&["SISMEMBER", &queues, queue]).number() == 0 {
            return None;
        }
        let id = format!("{queue}_{}", uuid::Uuid::new_v4());
        let (key, process) = (format!("worqr:queues:{queue}"), process_key(&id));
        let working = format!("worqr:workingProcesses:{queue}");
        let answers = self.multi(&[&["RPOPLPUSH", &key, &process], &["SADD", &working, &id]]);
        match &answers[0] {
            RedisReply::Text(task) => Some(Process {
                task: task.clone(),
                id,
            }),
            _ => {
                self.multi(&[&["DEL", &process], &["SREM", &working, &id]]);
                None
            }
        }
    }

    /// `finishProcess`.
    pub fn finish(&mut self, queue: &str, process: &Process) {
        let key = process_key(&process.id);
        self.call(&["LRANGE", &key, "0", "-1"]);
        let working = format!("worqr:workingProcesses:{queue}");
        self.multi(&[
            // The lock of another task will do: these are not unique.
            &["DEL", "worqr:uniqueTasks:d41d8cd98f00b204e9800998ecf8427e"],
            &["DEL", &key],
            &["SREM", &working, &process.id],
        ]);
        self.call(&["PUBLISH", &format!("worqr_{queue}_done"), "{}"]);
    }

    /// The sweep of every instance: `failWorker` of those that are dead. Answers with their names.
    pub fn sweep(&mut self) -> Vec<String> {
        let mut dead = self.call(&["SMEMBERS", "worqr:expiringWorkers"]).texts();
        dead.retain(|worker| {
            let timer = format!("worqr:workerTimers:{worker}");
            self.call(&["KEYS", &timer]).texts().is_empty()
        });
        for worker in &dead {
            self.fail(worker);
        }
        dead
    }

    /// `stopProcess`: the task goes to the back of its queue.
    pub fn stop(&mut self, queue: &str, process: &Process) {
        let working = format!("worqr:workingProcesses:{queue}");
        self.multi(&[
            &[
                "RPOPLPUSH",
                &process_key(&process.id),
                &format!("worqr:queues:{queue}"),
            ],
            &["SREM", &working, &process.id],
        ]);
    }

    /// The name of this worker.
    pub fn worker(&self) -> &str {
        &self.worker
    }

    /// `failWorker`: returns every worker's processes of its queues.
    fn fail(&mut self, worker: &str) {
        let queues_key = format!("worqr:workingQueues:{worker}");
        let timer = format!("worqr:workerTimers:{worker}");
        let queues = self.call(&["SMEMBERS", &queues_key]).texts();
        let mut commands: Vec<Vec<String>> = Vec::new();
        for set in ["workers", "expiringWorkers", "permanentWorkers"] {
            commands.push(vec!["SREM".into(), format!("worqr:{set}"), worker.into()]);
        }
        commands.push(vec!["DEL".into(), timer, queues_key]);
        for queue in queues {
            let working = format!("worqr:workingProcesses:{queue}");
            let processes = self.call(&["SMEMBERS", &working]).texts();
            commands.push(vec!["DEL".into(), working]);
            for id in processes {
                let process = process_key(&id);
                let key = format!("worqr:queues:{queue}");
                commands.push(vec!["RPOPLPUSH".into(), process.clone(), key]);
                commands.push(vec!["DEL".into(), process]);
            }
        }
        let commands: Vec<Vec<&str>> = commands
            .iter()
            .map(|words| words.iter().map(String::as_str).collect())
            .collect();
        let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
        self.multi(&commands);
    }
}

fn process_key(id: &str) -> String {
    format!("worqr:processes:{id}")
}
