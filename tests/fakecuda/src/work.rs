//! Streams, events and copies.

use crate::out::Out;
use crate::state::{Answer, CAPTURE_UNSUPPORTED, Fake, INVALID_HANDLE, NOT_READY, entries};
use crate::stream::{Capture, Event, Stream, Work};

entries! {
    fn cuStreamCreate(stream: Out<u64>, flags: u32) |fake| {
        let (context, _) = fake.current()?;
        let handle = fake.handle();
        fake.streams.insert(handle, Stream { context, ..Stream::default() });
        stream.set(handle);
        Ok(())
    }
    fn cuStreamDestroy_v2(stream: u64) |fake| {
        fake.streams.remove(&stream).map(drop).ok_or(INVALID_HANDLE)
    }
    fn cuStreamSynchronize(stream: u64) |fake| {
        let stream = fake.stream(stream)?;
        fake.run(stream)
    }
    fn cuStreamGetCtx(stream: u64, context: Out<u64>) |fake| {
        let stream = fake.stream(stream)?;
        context.set(fake.streams[&stream].context);
        Ok(())
    }
    fn cuStreamIsCapturing(stream: u64, status: Out<i32>) |fake| {
        let stream = fake.stream(stream)?;
        status.set(fake.streams[&stream].capture as i32);
        Ok(())
    }
    fn cuEventCreate(event: Out<u64>, flags: u32) |fake| {
        fake.current()?;
        let handle = fake.handle();
        fake.events.insert(handle, Event::default());
        event.set(handle);
        Ok(())
    }
    fn cuEventRecord(event: u64, stream: u64) |fake| {
        let key = fake.stream(stream)?;
        let (context, _) = fake.current()?;
        if fake.streams[&key].context != context {
            return Err(INVALID_HANDLE);
        }
        *fake.events.get_mut(&event).ok_or(INVALID_HANDLE)? = Event { waits_for: Some(key), asked: false };
        queue(fake, key, Work::Event(event))
    }
    fn cuEventQuery(event: u64) |fake| {
        let known = fake.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        // One that was never recorded is done.
        let Some(stream) = known.waits_for else { return Ok(()) };
        if !std::mem::replace(&mut known.asked, true) {
            return Err(NOT_READY);
        }
        fake.run(stream)
    }
    fn cuEventSynchronize(event: u64) |fake| {
        match fake.events.get(&event).ok_or(INVALID_HANDLE)?.waits_for {
            Some(stream) => fake.run(stream),
            None => Ok(()),
        }
    }
    fn cuEventDestroy_v2(event: u64) |fake| {
        fake.events.remove(&event).map(drop).ok_or(INVALID_HANDLE)
    }
    fn cuMemsetD8Async(va: u64, byte: u8, len: usize, stream: u64) |fake| {
        let stream = fake.stream(stream)?;
        queue(fake, stream, Work::Write { va, bytes: vec![byte; len] })
    }
    fn cuMemcpyHtoDAsync_v2(va: u64, from: Out<u8>, len: usize, stream: u64) |fake| {
        let stream = fake.stream(stream)?;
        queue(fake, stream, Work::Write { va, bytes: from.to_vec(len) })
    }
    fn cuMemcpyHtoD_v2(va: u64, from: Out<u8>, len: usize) |fake| {
        fake.current()?;
        let (block, _) = fake.memory.find(va)?;
        block.write(va, &from.to_vec(len))
    }
    fn cuMemcpyDtoH_v2(to: Out<u8>, va: u64, len: usize) |fake| {
        fake.current()?;
        let ordered = fake.settings.writes_ordering >= 100;
        let (block, _) = fake.memory.find(va)?;
        to.copy_from(&block.read(va, len as u64, ordered)?);
        Ok(())
    }
    fn cuFlushGPUDirectRDMAWrites(target: i32, scope: i32) |fake| {
        let (_, device) = fake.current()?;
        if target != 0 || ![100, 200].contains(&scope) {
            return Err(crate::state::INVALID_VALUE);
        }
        if fake.settings.flush_options & 1 == 0 {
            return Err(crate::state::NOT_SUPPORTED);
        }
        fake.flush(device);
        Ok(())
    }
}

/// A stream that is captured takes work into its graph, which nobody here runs.
fn queue(fake: &mut Fake, stream: u64, work: Work) -> Answer {
    let stream = fake.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?;
    match stream.capture {
        Capture::None => stream.work.push(work),
        Capture::Active => {}
        Capture::Invalidated => return Err(CAPTURE_UNSUPPORTED),
    }
    Ok(())
}
