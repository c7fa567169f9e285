//! Bodies of requests as they arrive. They are admitted by the bytes that have been received, not
//! by those that were announced. When all memory is taken, the slowest upload is ended for the
//! others. Independent of the protocol.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The bytes of a body that need no room, so that small requests never wait for large ones: 64 MiB
/// with the maximum number of connections.
const FREE: usize = 16 * 1024;
/// The time before which an upload is not cut, however slow it is.
const GRACE: Duration = Duration::from_secs(1);

/// The limits of the memory and of the time of uploads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UploadLimits {
    /// The maximum of all bodies together beyond their first `FREE` bytes, in KiB.
    pub room_kib: u32,
    /// The maximum number of bytes of a body.
    pub longest: usize,
    /// The time limit for the arrival of a body.
    pub arrival: Duration,
}

/// The uploads under way.
pub(crate) struct Uploads {
    limits: UploadLimits,
    /// The free room. A permit is a KiB.
    room: Arc<Semaphore>,
    active: Mutex<Active>,
}

#[derive(Default)]
struct Active {
    next: u64,
    by_number: BTreeMap<u64, Upload>,
}

/// One upload that holds room.
#[derive(Debug, Clone)]
struct Upload {
    began: BootInstant,
    bytes: usize,
    /// Whether it waits for room itself, and so is not slow.
    waits: bool,
    cut: CancellationToken,
}

/// A body that has arrived, with the room that it takes.
#[derive(Debug)]
pub(crate) struct UploadedBody {
    /// The whole body.
    pub body: Bytes,
    /// The room, released when dropped; `None` for a small body.
    pub room: Option<OwnedSemaphorePermit>,
}

impl Uploads {
    /// Creates the state without any upload.
    pub(crate) fn new(limits: UploadLimits) -> Self {
        Self {
            limits,
            room: Arc::new(Semaphore::new(limits.room_kib as usize)),
            active: Mutex::default(),
        }
    }

    /// Reads a whole body. `announced` is its length, if the request states it.
    ///
    /// # Errors
    /// Fails with 413 if the body is too long, with 408 if it takes too long or is the slowest
    /// while others need its room, and with 503 if no room becomes free in time.
    pub(crate) async fn read(
        &self,
        mut body: Body,
        announced: Option<usize>,
    ) -> Result<UploadedBody, StatusCode> {
        if announced.is_some_and(|bytes| bytes > self.limits.longest) {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let late = clock::now() + self.limits.arrival;
        let entry = UploadSlot::new(self);
        let mut data = Vec::new();
        let mut room: Option<OwnedSemaphorePermit> = None;
        loop {
            let next = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            let frame = tokio::select! {
                frame = next => frame,
                () = entry.cut.cancelled() => return Err(StatusCode::REQUEST_TIMEOUT),
                () = clock::sleep_until(Some(late)) => return Err(StatusCode::REQUEST_TIMEOUT),
            };
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            let bytes = data.len() + chunk.len();
            if bytes > self.limits.longest {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            let held = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let more = kibibytes(bytes).saturating_sub(held);
            if more > 0 {
                let more = self.room(more, &entry, late).await?;
                match &mut room {
                    Some(room) => room.merge(more),
                    None => room = Some(more),
                }
            }
            data.extend_from_slice(&chunk);
            entry.has(data.len());
        }
        Ok(UploadedBody {
            body: data.into(),
            room,
        })
    }

    /// Returns the bytes of all bodies that are on their way.
    #[cfg(test)]
    pub(crate) fn received(&self) -> usize {
        let active = self.active.lock();
        active.by_number.values().map(|upload| upload.bytes).sum()
    }

    /// Reserves room for more of an upload. If there is none, cuts the slowest upload.
    async fn room(
        &self,
        more: usize,
        entry: &UploadSlot<'_>,
        late: BootInstant,
    ) -> Result<OwnedSemaphorePermit, StatusCode> {
        let permits = u32::try_from(more).unwrap_or(u32::MAX);
        if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(permits) {
            return Ok(room);
        }
        entry.waits(true);
        let mut acquired = std::pin::pin!(Arc::clone(&self.room).acquire_many_owned(permits));
        loop {
            let now = clock::now();
            self.cut_slowest(now);
            tokio::select! {
                room = &mut acquired => {
                    entry.waits(false);
                    return room.map_err(|_| StatusCode::SERVICE_UNAVAILABLE);
                }
                () = entry.cut.cancelled() => return Err(StatusCode::REQUEST_TIMEOUT),
                () = clock::sleep_until(Some(late)) => return Err(StatusCode::SERVICE_UNAVAILABLE),
                () = clock::sleep_until(Some(now + GRACE)) => {}
            }
        }
    }

    fn cut_slowest(&self, now: BootInstant) {
        let active = self.active.lock();
        if let Some(upload) = slowest(active.by_number.values(), now) {
            tracing::warn!(
                received_bytes = upload.bytes,
                seconds = now.since(upload.began).as_secs(),
                "upload cut: no memory for other requests, and it is the slowest"
            );
            upload.cut.cancel();
        }
    }
}

/// Returns the upload with the lowest rate among those that hold room, are past their grace period
/// and are not cut yet. Uploads that wait for room come last, the newest of them first: if all wait
/// for each other, one must go.
fn slowest<'a>(uploads: impl Iterator<Item = &'a Upload>, now: BootInstant) -> Option<&'a Upload> {
    let uploads = uploads.filter(|upload| {
        upload.bytes > FREE && !upload.cut.is_cancelled() && now.since(upload.began) >= GRACE
    });
    uploads.min_by_key(|upload| {
        if upload.waits {
            (true, 0, now.since(upload.began))
        } else {
            let millis = now.since(upload.began).as_millis().max(1);
            let rate = upload.bytes as u128 * 1_000 / millis;
            (false, rate, Duration::ZERO)
        }
    })
}

/// The entry of an upload that is under way. Its drop removes the entry.
struct UploadSlot<'a> {
    uploads: &'a Uploads,
    number: u64,
    cut: CancellationToken,
}

impl<'a> UploadSlot<'a> {
    fn new(uploads: &'a Uploads) -> Self {
        let cut = CancellationToken::new();
        let upload = Upload {
            began: clock::now(),
            bytes: 0,
            waits: false,
            cut: cut.clone(),
        };
        let mut active = uploads.active.lock();
        active.next += 1;
        let number = active.next;
        active.by_number.insert(number, upload);
        Self {
            uploads,
            number,
            cut,
        }
    }

    fn set(&self, change: impl FnOnce(&mut Upload)) {
        if let Some(upload) = self.uploads.active.lock().by_number.get_mut(&self.number) {
            change(upload);
        }
    }

    fn has(&self, bytes: usize) {
        self.set(|upload| upload.bytes = bytes);
    }

    fn waits(&self, waits: bool) {
        self.set(|upload| upload.waits = waits);
    }
}

impl Drop for UploadSlot<'_> {
    fn drop(&mut self) {
        self.uploads.active.lock().by_number.remove(&self.number);
    }
}

/// Returns the room that this many bytes of one body take, in KiB.
fn kibibytes(bytes: usize) -> usize {
    bytes.saturating_sub(FREE).div_ceil(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(began_s: u64, bytes: usize) -> Upload {
        Upload {
            began: BootInstant::from_boot(Duration::from_secs(began_s)),
            bytes,
            waits: false,
            cut: CancellationToken::new(),
        }
    }

    fn waiting(began_s: u64, bytes: usize) -> Upload {
        Upload {
            waits: true,
            ..upload(began_s, bytes)
        }
    }

    #[test]
    fn finding_19_upload_waiting_for_memory_is_not_slow_and_ends_only_in_deadlock() {
        let now = BootInstant::from_boot(Duration::from_secs(100));
        let all = [
            waiting(10, 20_000),
            upload(90, 8_000_000),
            waiting(50, 30_000),
        ];
        let found = slowest(all.iter(), now).map(|upload| upload.bytes);
        assert_eq!(found, Some(8_000_000));
        all[1].cut.cancel();
        let found = slowest(all.iter(), now).map(|upload| upload.bytes);
        assert_eq!(found, Some(30_000), "the newest of those that wait");
    }

    #[test]
    fn finding_19_slowest_upload_is_chosen_after_its_grace_period() {
        let now = BootInstant::from_boot(Duration::from_secs(100));
        let all = [
            upload(90, 8_000_000),
            upload(98, 100_000),
            upload(100, 20_000),
            upload(10, FREE),
        ];
        let found = slowest(all.iter(), now).map(|upload| upload.bytes);
        assert_eq!(found, Some(100_000));
        all[1].cut.cancel();
        let found = slowest(all.iter(), now).map(|upload| upload.bytes);
        assert_eq!(
            found,
            Some(8_000_000),
            "one that is cut already is not chosen again"
        );
    }

    #[test]
    fn small_body_needs_no_upload_slot() {
        assert_eq!(kibibytes(0), 0);
        assert_eq!(kibibytes(FREE), 0);
        assert_eq!(kibibytes(FREE + 1), 1);
    }
}
