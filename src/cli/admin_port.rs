//! The HTTP port for operators, which a process opens before anything else: it tells that it is starting, too.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::Failure;
use crate::admin::http;
use crate::admin::probe::Probe;
use crate::store::watched;

/// Opens it, if there is to be one; its address for people. `key` is the configuration's.
pub(super) async fn open_admin<P: Probe>(
    listen: Option<SocketAddr>,
    key: &str,
    probe: &Arc<P>,
) -> Result<String, Failure> {
    let Some(listen) = listen else { return Ok("off".to_owned()) };
    let failed = |error| {
        Failure::cannot_start(format!(
            "cannot listen on {listen}: {error}; stop what uses it, or set {key} (\"\" = off)"
        ))
    };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    let probe = Arc::clone(probe);
    tokio::spawn(watched::vital("the admin port", async move {
        if let Err(error) = http::serve(listener, probe).await {
            tracing::error!(%error, "the admin port ended");
        }
    }));
    Ok(addr.to_string())
}
