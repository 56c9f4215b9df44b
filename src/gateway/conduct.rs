//! How users conduct themselves: what is counted of them beyond one request, and the tasks that carry it to the store.
//!
//! [`Conduct`] is what connections see: each counts its user's requests, and hands over whom it has seen on which device.
//! Neither waits for anything. The tasks run on the gateway's caller's runtime until it stops them.

use std::sync::Arc;

use super::devices::{self, DeviceTask, Devices};
use super::flags::{self, FlagTask, Flags};
use super::tasks::Tasks;
use super::{Core, Settings};
use crate::admission::behaviour::Behaviour;
use crate::stock::calls::ProcessNumber;
use crate::store::devices::DeviceStore;
use crate::store::risk::RiskStore;

/// See the module.
#[derive(Debug)]
pub(super) struct Conduct {
    pub(super) behaviour: Behaviour,
    pub(super) devices: Devices,
    pub(super) flags: Flags,
}

/// What runs beside it.
#[derive(Debug)]
pub(super) struct ConductTasks {
    devices: Option<DeviceTask>,
    flags: FlagTask,
}

/// Both sides.
pub(super) fn new(settings: &Settings) -> (Conduct, ConductTasks) {
    let (devices, device_task) = devices::new(settings.devices);
    let (flags, flag_task) = flags::new();
    let behaviour = Behaviour::new(settings.behaviour);
    (Conduct { behaviour, devices, flags }, ConductTasks { devices: device_task, flags: flag_task })
}

impl ConductTasks {
    /// Starts them.
    pub(super) fn start<S: RiskStore + DeviceStore>(
        self,
        core: &Arc<Core>,
        store: &Arc<S>,
        process: ProcessNumber,
        tasks: &mut Tasks,
    ) {
        tasks.spawn("writing flags", self.flags.run(Arc::clone(core), Arc::clone(store), process));
        if let Some(task) = self.devices {
            tasks.spawn("counting devices", task.run(Arc::clone(core), Arc::clone(store)));
        }
    }
}
