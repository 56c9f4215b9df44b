//! The tasks of a gateway on its caller's runtime: they end with their owner, also when a start fails half way.

use std::future::Future;

use tokio::task::AbortHandle;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tasks(Vec<AbortHandle>);

impl Tasks {
    /// Runs one more.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(task).abort_handle());
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
