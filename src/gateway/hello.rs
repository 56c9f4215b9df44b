//! HELLO: what a client says of its software and device, and whether it is served.
//!
//! Runs on the connection's task, inside one wake, as a part of the session; synchronous, no I/O. A client that is too
//! old is told so and its connection closes; a HELLO without such a device as is asked for has not happened. Both are
//! counted.

use bytes::BytesMut;

use super::clock::Now;
use super::counters::{Ending, Event};
use super::greeting::Greeting;
use super::session::Session;
use super::stage::{Flow, Stage};
use crate::admission::clients::{AppVersion, Platform, Verdict};
use crate::protocol::{ClientVersion, Frame, Reply, Status, UserId};

impl Session {
    pub(super) fn on_hello(
        &mut self,
        now: Now,
        frame: &Frame<'_>,
        said: (ClientVersion, &str),
        out: &mut BytesMut,
    ) -> Flow {
        let (ClientVersion { platform, app }, device) = said;
        let platform = Platform::from_wire(platform);
        match self.worker.core.settings.clients.judge(platform, AppVersion(app), device) {
            Verdict::Fine => {
                self.greeting = Greeting::new(platform, device);
                self.greet(now, frame, out);
                Flow::Go
            }
            Verdict::NotServed => self.turn_away(frame, AppVersion([0; 3]), out),
            Verdict::TooOld(least) => self.turn_away(frame, least, out),
            Verdict::BadDevice => {
                self.worker.sheet.event(Event::DeviceRefused, 1);
                self.refuse(frame, Status::BadBody, out);
                Flow::Go
            }
        }
    }

    /// The app's device, if it has named one.
    pub(super) fn device(&self) -> Option<&str> {
        Some(self.greeting.device()).filter(|device| !device.is_empty())
    }

    /// This user has authenticated: his device is counted.
    pub(super) fn seen_on_device(&self, now: Now, user: UserId) {
        if let Some(device) = self.device() {
            self.worker.core.conduct.devices.seen(now, device, user, &self.worker.sheet);
        }
    }

    fn greet(&mut self, now: Now, frame: &Frame<'_>, out: &mut BytesMut) {
        self.stage = Stage::Greeted;
        let settings = &self.worker.core.settings;
        let hello = Reply::Hello {
            server_time_ms: now.sale_ms,
            connection_id: self.peer.id,
            keepalive_ms: u32::try_from(settings.keepalive.as_millis()).unwrap_or(u32::MAX),
            frame_bytes_max: u32::try_from(settings.frame_bytes_max).unwrap_or(u32::MAX),
            in_flight_max: settings.in_flight_max,
        };
        self.reply(frame, Status::Ok, 0, &hello, out);
    }

    fn turn_away(&self, frame: &Frame<'_>, AppVersion(min_version): AppVersion, out: &mut BytesMut) -> Flow {
        self.reply(frame, Status::UpgradeRequired, 0, &Reply::Upgrade { min_version }, out);
        Flow::Close(Ending::UpgradeRequired)
    }

    /// Whether a user may have this connection: what said that it was a back end was not asked for a device.
    pub(super) fn may_be_an_app(&self) -> bool {
        let is_fine = !self.greeting.is_back_end()
            || self.worker.core.settings.clients.is_device_fine(self.device().unwrap_or_default());
        if !is_fine {
            self.worker.sheet.event(Event::DeviceRefused, 1);
        }
        is_fine
    }
}
