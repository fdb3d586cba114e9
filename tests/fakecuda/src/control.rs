//! What a test has besides: to set the driver up, to have calls fail, and to read what was called.

use std::ffi::c_char;

use crate::memory::Kind;
use crate::out::{Out, text};
use crate::state::{Answer, Fake, Fault, INVALID_VALUE, NOT_FOUND};
use crate::stream::Capture;

/// As when the library was loaded; whoever initialised the driver has it initialised still.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_reset() {
    Fake::lock().reset();
}

/// Sets a number by its name: `devices`, `version`, `dmabuf`, `flush_options`, `writes_ordering`, `c2c`, `p2p`,
/// `pool_dmabuf`, `attach`, `reads_push`.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_set(name: *const c_char, value: i64) -> i32 {
    if Fake::lock().settings.set(&text(name), value) { 0 } else { NOT_FOUND }
}

/// Has the `nth` call of a function from now on fail with a number; 0: each one.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_fail(symbol: *const c_char, code: i32, nth: u32) {
    Fake::lock().faults.push(Fault { symbol: text(symbol), code, countdown: nth });
}

/// Writes a line of the test's own into the log.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_mark(line: *const c_char) {
    Fake::lock().log.push(text(line));
}

/// Copies the log, a line for each call: `symbol ctx=context argument=value ..`. Returns how long it is.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_log(to: Out<u8>, room: usize) -> usize {
    let log = Fake::lock().log.join("\n");
    if !to.is_null() && log.len() <= room {
        to.copy_from(log.as_bytes());
    }
    log.len()
}

/// Memory of a kind: 2 virtual, in mappings of 2 MiB; 3 of a pool; 4 managed; 5 of the host, pinned; 6 virtual, whose
/// second mapping is not there.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_alloc(kind: i32, device: i32, len: u64, va: Out<u64>) -> i32 {
    let mut fake = Fake::lock();
    let made = match kind {
        2 => fake.memory.make(Kind::Virtual, device, len, None),
        3 => fake.memory.make(Kind::Pool, device, len, None),
        4 => fake.memory.make(Kind::Managed, device, len, None),
        5 => fake.memory.make(Kind::Host, device, len, None),
        6 => fake.memory.make(Kind::Virtual, device, len, Some(1)),
        _ => Err(INVALID_VALUE),
    };
    done(made.map(|at| va.set(at)))
}

/// Whether a stream is captured: 0 not, 1 so, 2 broken off.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_capture(stream: u64, state: i32) -> i32 {
    let mut fake = Fake::lock();
    let state = [Capture::None, Capture::Active, Capture::Invalidated][state as usize % 3];
    done(fake.stream(stream).map(|key| fake.streams.entry(key).or_default().capture = state))
}

/// What a device on the bus reads at an address.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_bus_read(va: u64, to: Out<u8>, len: usize) -> i32 {
    let mut fake = Fake::lock();
    done(fake.memory.find(va).and_then(|(block, _)| block.read_bus(va, len as u64)).map(|bytes| to.copy_from(&bytes)))
}

/// What a device calls that has read the memory behind a file of a ticket: on PCIe a read pushes what was written
/// before it, so that the GPU sees it, if `reads_push` is set.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_bus_was_read(file: i32) {
    let mut fake = Fake::lock();
    let device = fake.memory.blocks.iter().find(|block| block.is_in(file)).map(|block| block.device);
    if let (Some(device), true) = (device, fake.settings.reads_push != 0) {
        fake.flush(device);
    }
}

/// What a device on the bus writes to an address: nobody else sees it yet.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_bus_write(va: u64, from: Out<u8>, len: usize) -> i32 {
    let mut fake = Fake::lock();
    done(fake.memory.find(va).and_then(|(block, _)| block.write_bus(va, &from.to_vec(len))))
}

fn done(answer: Answer) -> i32 {
    answer.err().unwrap_or(0)
}
