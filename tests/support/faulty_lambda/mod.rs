//! A Lambda on a socket that throttles and breaks as AWS does and as no emulator would, as a script
//! tells it, and counts what every message went through. Executes nothing: *executed* is what it
//! says it did. Cheap enough for 10,000 invocations at once. Knows no client, and nothing of this
//! crate: the benchmarks compile it too.

mod http;
mod record;
mod step;

pub use record::{Execution, InvocationRecords, MessageHistory};
pub use step::{Invocation, LambdaStep, Record, mixed};

use http::{LambdaConnection, LambdaStream, Request, Response};
use serde_json::json;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long at most while it continues.
const MOST_PATIENCE: Duration = Duration::from_secs(600);
/// What Lambda takes: of a call that waits, and of one that does not.
const MOST: [usize; 2] = [6_291_456, 1_048_576];

type Script = Box<dyn FnMut(&Invocation) -> LambdaStep + Send>;

/// A running server. Ends when dropped.
pub struct FaultyLambda {
    url: String,
    shared: Arc<SharedScript>,
    runtime: Option<Runtime>,
}

struct SharedScript {
    state: Mutex<InvocationRecords>,
    changed: Condvar,
    script: Mutex<Script>,
    /// Counts releases of what is held.
    releases: watch::Sender<u64>,
}

impl FaultyLambda {
    /// Starts one whose every function exists, may run for 3 seconds and answers `null`.
    pub fn start() -> Self {
        Self::with(None)
    }

    /// The same over TLS, as `localhost`, with the certificates and the key in these PEM files.
    pub fn start_tls(certificates: &Path, key: &Path) -> Self {
        let chain = CertificateDer::pem_file_iter(certificates).expect("a file");
        let chain = chain.collect::<Result<_, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(key).expect("a key");
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(chain, key).expect("a pair");
        Self::with(Some(Arc::new(config).into()))
    }

    fn with(tls: Option<TlsAcceptor>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = {
            let _inside = runtime.enter();
            let socket = TcpSocket::new_v4().expect("a socket");
            let any = (Ipv4Addr::LOCALHOST, 0).into();
            socket.bind(any).expect("a free port");
            // Thousands may connect at once.
            socket.listen(4_096).expect("it is bound")
        };
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(SharedScript {
            state: Mutex::new(InvocationRecords::new()),
            changed: Condvar::new(),
            script: Mutex::new(Box::new(|_| LambdaStep::answer("null"))),
            releases: watch::Sender::new(0),
        });
        let url = match &tls {
            Some(_) => format!("https://localhost:{}", address.port()),
            None => format!("http://{address}"),
        };
        runtime.spawn(accept(listener, tls, Arc::clone(&shared)));
        Self {
            url,
            shared,
            runtime: Some(runtime),
        }
    }

    /// `http://127.0.0.1:PORT`, or `https://localhost:PORT`.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// What happens to every invocation from now on.
    pub fn script(&self, script: impl FnMut(&Invocation) -> LambdaStep + Send + 'static) {
        let mut current = self.shared.script.lock().expect("no script panicked");
        *current = Box::new(script);
    }

    /// Whether its functions exist.
    pub fn set_missing(&self, missing: bool) {
        self.shared.update(|state| state.missing = missing);
    }

    /// How many seconds its functions may run, as their configuration says.
    pub fn set_timeout(&self, seconds: u64) {
        self.shared.update(|state| state.timeout = seconds);
    }

    /// Whether its functions isolate tenants, as their configuration says.
    pub fn set_isolates_tenants(&self, isolates: bool) {
        self.shared
            .update(|state| state.isolates_tenants = isolates);
    }

    /// Lets all continue that `LambdaStep::Hold` holds now.
    pub fn release(&self) {
        self.shared.releases.send_modify(|count| *count += 1);
    }

    /// Waits until the question has an answer. Panics with all it knows when that takes too long.
    pub fn wait<T>(&self, ask: impl Fn(&InvocationRecords) -> Option<T>) -> T {
        let end = Instant::now() + MOST_PATIENCE;
        let mut deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.lock();
        let mut invocations = state.invocations;
        loop {
            if let Some(answer) = ask(&state) {
                return answer;
            }
            // What continues slowly is not stuck.
            if state.invocations > invocations {
                invocations = state.invocations;
                deadline = (Instant::now() + PATIENCE).min(end);
            }
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.unwrap_or_else(|| panic!("the function waits in vain: {state}"));
            (state, _) = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Everything so far.
    pub fn state(&self) -> InvocationRecords {
        self.shared.lock().clone()
    }
}

impl Drop for FaultyLambda {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl SharedScript {
    fn lock(&self) -> MutexGuard<'_, InvocationRecords> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(&self, change: impl FnOnce(&mut InvocationRecords) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<SharedScript>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        // A broken connection is what this is for: the test sees it from the other side.
        tokio::spawn(async move {
            let stream: Box<dyn LambdaStream> = match tls {
                Some(tls) => Box::new(tls.accept(stream).await?),
                None => Box::new(stream),
            };
            shared.update(|state| state.connections += 1);
            talk(LambdaConnection::new(stream), &shared).await
        });
    }
}

/// Answers the requests of one connection until it ends.
async fn talk(mut connection: LambdaConnection, shared: &SharedScript) -> io::Result<()> {
    while let Some(request) = connection.request().await? {
        let path = request.path.clone();
        if path.ends_with("/invocations") {
            if !invoke(&mut connection, request, shared).await? {
                return Ok(());
            }
        } else {
            connection.respond(&about(&request, shared)).await?;
        }
    }
    Ok(())
}

/// What is answered to questions about a function.
fn about(request: &Request, shared: &SharedScript) -> Response {
    let function = request.function();
    let (missing, timeout, isolates_tenants) = shared.update(|state| {
        state.questions += 1;
        (state.missing, state.timeout, state.isolates_tenants)
    });
    if missing {
        return missing_function(&function);
    }
    let mut configuration = json!({
        "FunctionName": function,
        "FunctionArn": arn(&function),
        "Runtime": "provided.al2023",
        "Timeout": timeout,
        "MemorySize": 128,
        "Version": "$LATEST",
        "State": "Active",
        "LastUpdateStatus": "Successful",
        "PackageType": "Zip",
    });
    if isolates_tenants {
        configuration["TenancyConfig"] = json!({"TenantIsolationMode": "PER_TENANT"});
    }
    let body = match request.path.rsplit('/').next() {
        Some("configuration") => configuration,
        Some("concurrency") => json!({}),
        _ => json!({"Configuration": configuration}),
    };
    Response::new(200, body.to_string())
}

fn arn(function: &str) -> String {
    format!("arn:aws:lambda:us-east-1:000000000000:function:{function}")
}

fn missing_function(function: &str) -> Response {
    let message = format!("Function not found: {}", arn(function));
    Response::error(
        404,
        "ResourceNotFoundException",
        &json!({"Type": "User", "Message": message}),
    )
}

/// One invocation; whether the connection may have another.
async fn invoke(
    connection: &mut LambdaConnection,
    request: Request,
    shared: &SharedScript,
) -> io::Result<bool> {
    let function = request.function();
    if shared.lock().missing {
        shared.update(|state| state.refused += 1);
        connection.respond(&missing_function(&function)).await?;
        return Ok(true);
    }
    let most = MOST[usize::from(request.event)];
    if request.body.len() > most {
        let message =
            format!("Request must be smaller than {most} bytes for the InvokeFunction operation");
        let body = json!({"Type": "User", "message": message});
        let too_large = Response::error(413, "RequestTooLargeException", &body);
        shared.update(|state| state.refused += 1);
        connection.respond(&too_large).await?;
        return Ok(true);
    }
    let isolates_tenants = shared.lock().isolates_tenants;
    if isolates_tenants != request.tenant.is_some() {
        let message = if isolates_tenants {
            "The invoked function is enabled with tenancy configuration. Add a valid tenant ID in your \
             request and try again."
        } else {
            "The invoked function is not enabled with tenancy configuration."
        };
        let body = json!({"Type": "User", "message": message});
        let refused = Response::error(400, "InvalidParameterValueException", &body);
        shared.update(|state| state.refused += 1);
        connection.respond(&refused).await?;
        return Ok(true);
    }
    // The subscription is before the invocation can be seen, so that no release is missed.
    let mut releases = shared.releases.subscribe();
    let invocation = shared.update(|state| state.begin(function, &request));
    let tail = request.tail;
    drop(request);
    let step = (shared.script.lock().expect("no script panicked"))(&invocation);
    shared.update(|state| state.decided(&invocation, &step));
    match step.wait() {
        step::Wait::None => {}
        step::Wait::For(time) => tokio::time::sleep(time).await,
        step::Wait::Release => drop(releases.changed().await),
        // The caller gives up some day, and so ends the connection.
        step::Wait::Forever => connection.until_closed().await,
    }
    shared.update(InvocationRecords::end);
    step.answer_to(connection, invocation.event, tail).await
}
