//! The tasks of a gateway on its caller's runtime: they end with their owner, also when a start fails half way.
//!
//! One that panics is begun anew where it can be; else its process is to end (see `store::watched`): a gateway without one
//! of them would hold clients that others serve.

use std::future::Future;

use tokio::task::AbortHandle;

use crate::store::watched;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tasks(Vec<AbortHandle>);

impl Tasks {
    /// Runs one more, without which a gateway serves nobody.
    pub(super) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(watched::vital(name, task)).abort_handle());
    }

    /// Runs one more that may begin anew at any time.
    pub(super) fn restart<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: &'static str,
        begin: impl FnMut() -> F + Send + 'static,
    ) {
        self.0.push(tokio::spawn(watched::restarted(name, begin)).abort_handle());
    }

    /// Ends those as well that are running already.
    pub(super) fn extend(&mut self, running: impl IntoIterator<Item = AbortHandle>) {
        self.0.extend(running);
    }

    /// Ends them where they stand.
    pub(super) fn abort(&self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.abort();
    }
}
