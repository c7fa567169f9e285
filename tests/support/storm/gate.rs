//! A gate in front of a server: all connections of one process pass it, or none. Knows no protocol.

use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The calls and answers that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GateMode {
    /// Everything.
    Open,
    /// Nothing: connections end, also new ones.
    Cut,
    /// No call until the gate opens: then the server gets calls whose senders wait no more.
    Held,
    /// Calls, and no answers until the gate opens.
    Deaf,
}

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Calls,
    Answers,
}

/// A gate. It closes for good when dropped.
#[derive(Debug)]
pub(super) struct Gate {
    address: SocketAddr,
    mode: watch::Sender<GateMode>,
    accepting: JoinHandle<()>,
}

impl Gate {
    /// Builds a gate that is open.
    pub(super) async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port");
        let mode = watch::Sender::new(GateMode::Open);
        let modes = mode.subscribe();
        Self {
            address: listener.local_addr().expect("it is bound"),
            mode,
            accepting: tokio::spawn(accept(listener, server, modes)),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn is_open(&self) -> bool {
        *self.mode.borrow() == GateMode::Open
    }

    pub(super) fn set(&self, mode: GateMode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, modes: watch::Receiver<GateMode>) {
    while let Ok((client, _)) = listener.accept().await {
        if *modes.borrow() == GateMode::Cut {
            continue;
        }
        let Ok(server) = TcpStream::connect(server).await else {
            continue;
        };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::spawn(pass(from_client, to_server, Way::Calls, modes.clone()));
        tokio::spawn(pass(from_server, to_client, Way::Answers, modes.clone()));
    }
}

/// Passes bytes on until either side ends, or the gate is cut.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Way,
    mut modes: watch::Receiver<GateMode>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            _ = modes.wait_for(|mode| *mode == GateMode::Cut) => 0,
        };
        let passes = modes.wait_for(|mode| match mode {
            GateMode::Open | GateMode::Cut => true,
            GateMode::Held => false,
            GateMode::Deaf => way == Way::Calls,
        });
        let is_cut = passes.await.is_ok_and(|mode| *mode == GateMode::Cut);
        if count == 0 || is_cut || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
