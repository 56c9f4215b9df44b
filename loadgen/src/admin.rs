//! What gateways tell on their admin ports of the BUYs that they have counted. One short request each; whoever does not
//! answer within two seconds cannot be asked.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rushgate::rehearsal::GatewayCounts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::output::Failure;
use crate::target::resolve;

const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Metrics take a few kilobytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// One gateway's admin port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admin(pub(crate) SocketAddr);

impl Admin {
    /// What it has counted; else what is wrong, and what to do.
    pub(crate) async fn counts(self) -> Result<GatewayCounts, String> {
        let Self(addr) = self;
        let wrong = |what: String| {
            format!("no counters at {addr} ({what}); --admin names the admin.listen of gateways")
        };
        let answer = timeout(ANSWERS_WITHIN, self.ask()).await;
        let answer = answer.map_err(|_| wrong(format!("no answer within {ANSWERS_WITHIN:?}")))?;
        let text = answer.map_err(|error| wrong(error.to_string()))?;
        GatewayCounts::from_metrics(&text).ok_or_else(|| wrong("not the metrics of a gateway".to_owned()))
    }

    async fn ask(self) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.0).await?;
        // By this version of HTTP the answer comes in one piece and ends with the connection.
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut text = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text).await?;
        Ok(text)
    }
}

/// The admin ports that an argument names.
pub(crate) fn admins(addrs: &[String]) -> Result<Vec<Admin>, Failure> {
    addrs.iter().map(|addr| Ok(Admin(resolve(addr)?))).collect()
}

/// Of each, before anything is sent: one that cannot be asked is better known then.
pub(crate) async fn counts_before(admins: &[Admin]) -> Result<Vec<Option<GatewayCounts>>, Failure> {
    let mut before = Vec::with_capacity(admins.len());
    for admin in admins {
        before.push(Some(admin.counts().await.map_err(Failure::cannot_start)?));
    }
    Ok(before)
}

/// Of each; `None` where it cannot be asked.
pub(crate) async fn all_counts(admins: &[Admin]) -> Vec<Option<GatewayCounts>> {
    let mut counts = Vec::with_capacity(admins.len());
    for admin in admins {
        counts.push(admin.counts().await.ok());
    }
    counts
}
