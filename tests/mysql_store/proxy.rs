//! Between a client and MariaDB: passes packets on, until told to cut a connection at its COMMIT, or at another statement.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What becomes of the next COMMIT's connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Nowhere = 0,
    /// The server never sees it.
    BeforeCommit = 1,
    /// The server has executed it; its answer is lost.
    AfterCommit = 2,
    /// Nothing comes or goes any more, and neither end is told.
    Silence = 3,
}

pub struct Proxy {
    pub port: u16,
    plan: Arc<Plan>,
}

struct Plan {
    cut: AtomicU8,
    /// The whole packet, or a part of it.
    at: Mutex<(bool, &'static str)>,
}

impl Plan {
    fn is_met_by(&self, body: &[u8]) -> bool {
        let (is_whole, at) = *self.at.lock().unwrap();
        let is_at = if is_whole {
            body == at.as_bytes()
        } else {
            body.windows(at.len()).any(|part| part == at.as_bytes())
        };
        is_at && self.cut.load(Ordering::SeqCst) != Cut::Nowhere as u8
    }
}

const COMMIT: &str = "\x03COMMIT";

impl Proxy {
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let plan = Plan { cut: AtomicU8::new(Cut::Nowhere as u8), at: Mutex::new((true, COMMIT)) };
        let plan = Arc::new(plan);
        let shared = Arc::clone(&plan);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                // Either side may vanish; then so does the other.
                tokio::spawn(pass(client, server, Arc::clone(&shared)));
            }
        });
        Self { port, plan }
    }

    /// Once.
    pub fn cut(&self, cut: Cut) {
        *self.plan.at.lock().unwrap() = (true, COMMIT);
        self.plan.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Once, at a statement that contains this.
    pub fn cut_at(&self, cut: Cut, statement: &'static str) {
        *self.plan.at.lock().unwrap() = (false, statement);
        self.plan.cut.store(cut as u8, Ordering::SeqCst);
    }

    pub fn has_cut(&self) -> bool {
        self.plan.cut.load(Ordering::SeqCst) == Cut::Nowhere as u8
    }
}

async fn pass(client: TcpStream, server: TcpStream, plan: Arc<Plan>) -> Option<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let silence = Arc::new(Notify::new());
    let silent = Arc::clone(&silence);
    let answers = tokio::spawn(async move {
        tokio::select! {
            _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
            () = silent.notified() => std::future::pending().await,
        }
    });
    loop {
        // A packet: its length in three bytes, its number, its body.
        let mut head = [0; 4];
        from_client.read_exact(&mut head).await.ok()?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut body = vec![0; length as usize];
        from_client.read_exact(&mut body).await.ok()?;
        if plan.is_met_by(&body) {
            let cut = &plan.cut;
            let at = cut.load(Ordering::SeqCst);
            if at == Cut::Silence as u8 {
                silence.notify_one();
                cut.store(Cut::Nowhere as u8, Ordering::SeqCst);
                while from_client.read(&mut body).await.ok()? > 0 {}
                return None;
            }
            // Answers are held back from here on; the client waits for this one.
            answers.abort();
            let _ = answers.await;
            if at == Cut::AfterCommit as u8 {
                to_server.write_all(&[&head[..], &body].concat()).await.ok()?;
            }
            cut.store(Cut::Nowhere as u8, Ordering::SeqCst);
            // Half-closed, so that the server executes what it has got before it notices.
            to_server.shutdown().await.ok()?;
            return None;
        }
        to_server.write_all(&[&head[..], &body].concat()).await.ok()?;
    }
}
