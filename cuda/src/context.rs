//! A context of the device that is meant, for as long as a closure runs.
//!
//! None is ever made: one costs hundreds of MiB of a GPU's memory.

#![allow(unsafe_code)]

use core::marker::PhantomData;

use crate::driver::{Device, Driver};
use crate::error::Error;
use crate::raw::Handle;

/// The proof that this thread has a context of a device: it is lent to a closure, and cannot leave its thread.
#[derive(Debug)]
pub struct Current {
    device: Device,
    not_send: PhantomData<*mut ()>,
}

impl Current {
    /// The context's device.
    pub fn device(&self) -> Device {
        self.device
    }
}

/// Undone when it is dropped, by a panic too.
struct Pushed {
    driver: Driver,
    /// The device whose primary context is to be released.
    retained: Option<i32>,
    popped: bool,
}

impl Drop for Pushed {
    fn drop(&mut self) {
        // What this answers could only be told by panicking.
        if self.popped {
            let _ = self.driver.pop_context();
        }
        if let Some(device) = self.retained {
            // SAFETY: retained in `within`, and released once.
            let _ = unsafe { self.driver.release_primary(device) };
        }
    }
}

impl Device {
    /// Runs with a context of this device: the thread's own if it is one, else the device's primary one if somebody uses that.
    ///
    /// # Errors
    /// [`Error::NoContext`] if there is none, or what the driver answered.
    pub fn within<R>(self, run: impl FnOnce(&Current) -> R) -> Result<R, Error> {
        let current = Current { device: self, not_send: PhantomData };
        if self.driver.current_context()? != 0 && self.driver.current_device()? == self.ordinal {
            return Ok(run(&current));
        }
        if !self.driver.primary_is_active(self.ordinal)? {
            return Err(Error::NoContext { device: self.ordinal });
        }
        let context = self.driver.retain_primary(self.ordinal)?;
        let mut pushed = Pushed { driver: self.driver, retained: Some(self.ordinal), popped: false };
        // SAFETY: retained until `pushed` is dropped, which pops it first.
        unsafe { self.driver.push_context(context) }?;
        pushed.popped = true;
        let result = run(&current);
        drop(pushed);
        Ok(result)
    }

    /// Runs with a given context, of this device.
    ///
    /// # Errors
    /// What the driver answered.
    ///
    /// # Safety
    /// The context is alive for as long.
    pub(crate) unsafe fn within_context<R>(self, context: Handle, run: impl FnOnce(&Current) -> R) -> Result<R, Error> {
        // SAFETY: by the caller's word.
        unsafe { self.driver.push_context(context) }?;
        let pushed = Pushed { driver: self.driver, retained: None, popped: true };
        let result = run(&Current { device: self, not_send: PhantomData });
        drop(pushed);
        Ok(result)
    }
}
