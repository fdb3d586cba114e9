//! The driver itself, devices, contexts, and memory.

use std::ffi::{CStr, c_char};
use std::os::fd::IntoRawFd;

use crate::memory::{Block, Kind, PAGE, Piece, ticket};
use crate::out::Out;
use crate::state::{
    Answer, CONTEXTS, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, Settings, current, entries, primary,
};

entries! {
    fn cuInit(flags: u32) |fake| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        // For a program that starts with it: nothing could be set before.
        if let Some(code) = std::env::var("FAKECUDA_FAIL_INIT").ok().and_then(|code| code.parse().ok()) {
            return Err(code);
        }
        if !std::mem::replace(&mut fake.initialised, true) {
            fake.settings.set_all(&std::env::var("FAKECUDA_SET").unwrap_or_default());
        }
        Ok(())
    }
    fn cuDriverGetVersion(version: Out<i32>) |fake| {
        version.set(fake.settings.version as i32);
        Ok(())
    }
    fn cuGetErrorName(code: i32, text: Out<*const c_char>) |_fake| { told(code, text, |(name, _)| name) }
    fn cuGetErrorString(code: i32, text: Out<*const c_char>) |_fake| { told(code, text, |(_, said)| said) }
    fn cuDeviceGetCount(count: Out<i32>) |fake| {
        count.set(fake.settings.devices as i32);
        Ok(())
    }
    fn cuDeviceGet(device: Out<i32>, ordinal: i32) |fake| {
        device.set(fake.device(ordinal)?);
        Ok(())
    }
    fn cuDeviceGetName(name: Out<c_char>, len: i32, device: i32) |fake| {
        fake.device(device)?;
        string(name, len, "No GPU (tests/fakecuda)")
    }
    fn cuDeviceGetPCIBusId(text: Out<c_char>, len: i32, device: i32) |fake| {
        fake.device(device)?;
        string(text, len, &format!("0000:{:02x}:00.0", 0x10 + device))
    }
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) |fake| {
        fake.device(device)?;
        let settings = &fake.settings;
        value.set(match attribute {
            41 | 102 | 110 | 115 | 116 => 1,
            75 => 9,
            76 => 0,
            117 => settings.flush_options as i32,
            118 => settings.writes_ordering as i32,
            124 => settings.dmabuf as i32,
            _ => return Err(INVALID_VALUE),
        });
        Ok(())
    }
    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) |fake| {
        fake.device(device)?;
        flags.set(0);
        active.set(i32::from(fake.retained.contains_key(&device)));
        Ok(())
    }
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) |fake| {
        *fake.retained.entry(fake.device(device)?).or_default() += 1;
        context.set(primary(device));
        Ok(())
    }
    fn cuDevicePrimaryCtxRelease_v2(device: i32) |fake| {
        let count = fake.retained.get_mut(&device).ok_or(INVALID_CONTEXT)?;
        *count -= 1;
        if *count == 0 {
            fake.retained.remove(&device);
        }
        Ok(())
    }
    fn cuCtxCreate_v2(context: Out<u64>, flags: u32, device: i32) |fake| {
        let handle = fake.handle();
        fake.created.insert(handle, fake.device(device)?);
        CONTEXTS.with_borrow_mut(|stack| stack.push(handle));
        context.set(handle);
        Ok(())
    }
    fn cuCtxGetCurrent(context: Out<u64>) |_fake| {
        context.set(current());
        Ok(())
    }
    fn cuCtxSetCurrent(context: u64) |fake| {
        if context != 0 {
            fake.device_of(context)?;
        }
        CONTEXTS.with_borrow_mut(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    }
    fn cuCtxPushCurrent_v2(context: u64) |fake| {
        fake.device_of(context)?;
        CONTEXTS.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }
    fn cuCtxPopCurrent_v2(context: Out<u64>) |_fake| {
        context.set(CONTEXTS.with_borrow_mut(Vec::pop).ok_or(INVALID_CONTEXT)?);
        Ok(())
    }
    fn cuCtxGetDevice(device: Out<i32>) |fake| {
        device.set(fake.current()?.1);
        Ok(())
    }
    fn cuMemAlloc_v2(va: Out<u64>, len: usize) |fake| {
        let (context, device) = fake.current()?;
        va.set(fake.memory.malloc(device, context, len as u64)?);
        Ok(())
    }
    fn cuMemFree_v2(va: u64) |fake| {
        fake.current()?;
        // It waits for what is queued.
        fake.run_all()?;
        fake.free(va)
    }
    fn cuPointerGetAttributes(count: u32, which: Out<i32>, answers: Out<Out<u8>>, va: u64) |fake| {
        let found = fake.memory.find(va).ok();
        for nth in 0..count as usize {
            attribute(which.nth(nth), answers.nth(nth), found.as_ref())?;
        }
        Ok(())
    }
    fn cuPointerSetAttribute(value: Out<u32>, attribute: i32, va: u64) |fake| {
        let (block, _) = fake.memory.find(va).map_err(|_| INVALID_VALUE)?;
        if attribute != 6 {
            return Err(INVALID_VALUE);
        }
        if block.kind != Kind::Malloc {
            return Err(NOT_SUPPORTED);
        }
        block.sync_memops = value.nth(0) != 0;
        Ok(())
    }
    fn cuMemGetAddressRange_v2(base: Out<u64>, len: Out<usize>, va: u64) |fake| {
        fake.current()?;
        let (_, piece) = fake.memory.find(va)?;
        base.set(piece.at);
        len.set(piece.len as usize);
        Ok(())
    }
    fn cuMemGetHandleForAddressRange(handle: Out<i32>, va: u64, len: usize, sort: i32, flags: u64) |fake| {
        fake.current()?;
        let Settings { dmabuf, c2c, pool_dmabuf: pools, attach, .. } = fake.settings;
        if dmabuf == 0 {
            return Err(NOT_SUPPORTED);
        }
        let len = len as u64;
        if sort != 1 || flags > 1 || len == 0 || !va.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) {
            return Err(INVALID_VALUE);
        }
        if flags == 1 && c2c == 0 {
            return Err(NOT_SUPPORTED);
        }
        let inside = |block: &&Block| (block.at..block.at + block.len).contains(&va);
        let block = fake.memory.blocks.iter().find(inside).ok_or(INVALID_VALUE)?;
        match block.kind {
            Kind::Managed | Kind::Host => return Err(NOT_SUPPORTED),
            Kind::Pool if pools == 0 => return Err(NOT_SUPPORTED),
            _ if !block.is_mapped(va, len) => return Err(INVALID_VALUE),
            _ if attach != 0 && flags == 0 => handle.set(ticket(-attach, 0, len)?.into_raw_fd()),
            _ => handle.set(block.ticket(va, len)?.into_raw_fd()),
        }
        Ok(())
    }
}

/// One attribute of an address, zero for one that is no memory of CUDA's.
pub(crate) fn attribute(which: i32, to: Out<u8>, found: Option<&(&mut Block, Piece)>) -> Answer {
    let long = |value: u64| to.cast().set(value);
    let short = |value: u32| to.cast().set(value);
    let Some((block, piece)) = found else {
        match which {
            1 | 7 | 11 | 12 | 17 | 18 | 19 | 20 => long(0),
            2 | 8 | 9 | 13 | 15 => short(0),
            _ => return Err(INVALID_VALUE),
        }
        return Ok(());
    };
    match which {
        1 => long(block.context),
        2 => short(if block.kind == Kind::Host { 1 } else { 2 }),
        7 | 20 => long(piece.id),
        8 => short(u32::from(block.kind == Kind::Managed)),
        9 => short(block.device as u32),
        11 => long(if block.kind == Kind::Virtual { block.at } else { piece.at }),
        12 => long(if block.kind == Kind::Virtual { block.len } else { piece.len }),
        13 => short(1),
        15 => short(u32::from(block.kind == Kind::Malloc)),
        17 => long(if block.kind == Kind::Pool { 0x9001 } else { 0 }),
        18 => long(if block.kind == Kind::Virtual { piece.len } else { 0 }),
        19 => long(if block.kind == Kind::Virtual { piece.at } else { 0 }),
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

fn string(to: Out<c_char>, len: i32, text: &str) -> Answer {
    let room = usize::try_from(len).ok().and_then(|len| len.checked_sub(1)).ok_or(INVALID_VALUE)?;
    let bytes = text.bytes().take(room).chain([0]);
    bytes.enumerate().for_each(|(nth, byte)| to.set_nth(nth, byte.cast_signed()));
    Ok(())
}

type Said = (&'static CStr, &'static CStr);

fn told(code: i32, text: Out<*const c_char>, part: fn(Said) -> &'static CStr) -> Answer {
    let said: Option<Said> = Some(match code {
        0 => (c"CUDA_SUCCESS", c"no error"),
        1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        3 => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
        34 => (c"CUDA_ERROR_STUB_LIBRARY", c"CUDA driver is a stub library"),
        100 => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
        101 => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        201 => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        400 => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
        500 => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        600 => (c"CUDA_ERROR_NOT_READY", c"device not ready"),
        700 => (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
        801 => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
        900 => (c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing"),
        901 => (c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"operation failed due to a previous error during capture"),
        _ => {
            text.set(std::ptr::null());
            return Err(INVALID_VALUE);
        }
    });
    said.map(part).map(|said| text.set(said.as_ptr())).ok_or(INVALID_VALUE)
}
