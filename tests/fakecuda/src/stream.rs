//! Streams: what they are to do is done when somebody waits.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::state::{Answer, CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, Fake, ILLEGAL_ADDRESS, INVALID_HANDLE};

#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) context: u64,
    pub(crate) capture: Capture,
    pub(crate) work: Vec<Work>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Capture {
    #[default]
    None = 0,
    Active = 1,
    Invalidated = 2,
}

#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// What a kernel writes.
    Write { va: u64, bytes: Vec<u8> },
    /// An event that was recorded.
    Event(u64),
}

#[derive(Debug, Default)]
pub(crate) struct Event {
    /// The stream that is yet to come to it.
    pub(crate) waits_for: Option<u64>,
    /// Whether somebody asked since it was recorded: the first one is told to come again.
    pub(crate) asked: bool,
}

thread_local! {
    /// Which thread it is: each has a default stream of its own.
    static NTH: u64 = {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

impl Fake {
    /// Which stream a handle is: the default ones, 0, 1 and 2, are the current context's, the last the thread's, too.
    pub(crate) fn stream(&mut self, handle: u64) -> Answer<u64> {
        if handle > 2 {
            return if self.streams.contains_key(&handle) { Ok(handle) } else { Err(INVALID_HANDLE) };
        }
        let (context, _) = self.current()?;
        let key = context + if handle == 2 { 2 + (NTH.with(|nth| *nth) << 32) } else { 1 };
        self.streams.entry(key).or_insert(Stream { context, ..Stream::default() });
        Ok(key)
    }

    /// Does what all streams have to do but those that are captured.
    pub(crate) fn run_all(&mut self) -> Answer {
        let idle = |stream: &Stream| stream.capture == Capture::None;
        let keys: Vec<u64> = self.streams.iter().filter(|(_, stream)| idle(stream)).map(|(key, _)| *key).collect();
        keys.into_iter().try_for_each(|key| self.run(key))
    }

    /// Does what a stream has to do; one that is captured is refused, and the capture with it.
    pub(crate) fn run(&mut self, key: u64) -> Answer {
        let stream = self.streams.get_mut(&key).ok_or(INVALID_HANDLE)?;
        match stream.capture {
            Capture::None => {}
            Capture::Active => {
                stream.capture = Capture::Invalidated;
                return Err(CAPTURE_UNSUPPORTED);
            }
            Capture::Invalidated => return Err(CAPTURE_INVALIDATED),
        }
        for work in std::mem::take(&mut stream.work) {
            match work {
                Work::Write { va, bytes } => {
                    let done = self.memory.find(va).and_then(|(block, _)| block.write(va, &bytes));
                    if done.is_err() {
                        self.sticky = Some(ILLEGAL_ADDRESS);
                        return Err(ILLEGAL_ADDRESS);
                    }
                }
                Work::Event(event) => {
                    if let Some(event) = self.events.get_mut(&event) {
                        event.waits_for = None;
                    }
                }
            }
        }
        Ok(())
    }
}
