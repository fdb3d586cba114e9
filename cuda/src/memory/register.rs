//! Registration: as a dma-buf, with the flags that may fit, else by the address.

#![allow(unsafe_code)]

use std::os::fd::AsFd;

use efa_core::memory::{RegisterOptions, RemoteAccess};
use efa_core::{Granted, ProtectionDomain, Provider};

use super::export::{flags, is_refusal};
use super::raw_owner::GpuMemory;
use super::{Access, GpuExposed, GpuRegion, MayBeWritten, MemorySort, Owner, Place, Way};
use crate::driver::Driver;
use crate::error::{Attempt, Error, Failed, Refused};
use crate::order::{Outbound, Unsynced};

/// Whether synchronous copies on an allocation are synchronous indeed, towards the EFA too.
///
/// It takes the place of no wait for a stream. What failed is told, and refuses nothing: virtual memory cannot be set so (H24).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMemops {
    /// They are.
    Set,
    /// It is virtual memory or a pool's, which has no such attribute: wait for the stream, or set the context so.
    NotOfThisMemory,
    /// The driver refused.
    Refused(Failed),
}

impl Driver {
    /// Registers a GPU's memory for local use: to send, receive, read into and write from.
    ///
    /// An allocator's segment is registered once, and cut: each registration costs the device one region of few.
    ///
    /// # Errors
    /// What kind of memory it is, if it cannot be registered; [`Error::Registration`] with both errors; with the owner.
    pub fn register<P: Provider, O: Owner>(
        self,
        pd: &ProtectionDomain<P>,
        memory: O,
    ) -> Result<(GpuRegion<O>, Outbound<Unsynced>), Refused<O>> {
        self.register_with(pd, memory, RegisterOptions::new())
    }

    /// Registers it with options.
    ///
    /// # Errors
    /// As [`Driver::register`].
    pub fn register_with<P: Provider, O: Owner>(
        self,
        pd: &ProtectionDomain<P>,
        memory: O,
        options: RegisterOptions,
    ) -> Result<(GpuRegion<O>, Outbound<Unsynced>), Refused<O>> {
        let options = if O::Access::WRITABLE { options } else { options.read_only() };
        let (place, memops, (region, slice)) = self.attempt(memory, |memory| pd.register_with(memory, options))?;
        Ok((GpuRegion::new(region, place, memops), Outbound::new(slice, place)))
    }

    /// Registers a GPU's memory for peers to reach, as `A` says, by the grants that they are given.
    ///
    /// # Errors
    /// As [`Driver::register`].
    pub fn expose<P: Provider, O: Owner<Access: MayBeWritten>, A: RemoteAccess>(
        self,
        pd: &ProtectionDomain<P>,
        memory: O,
        access: Granted<A>,
    ) -> Result<GpuExposed<O, A>, Refused<O>> {
        self.expose_with(pd, memory, access, RegisterOptions::new())
    }

    /// Registers it so, with options.
    ///
    /// # Errors
    /// As [`Driver::register`].
    pub fn expose_with<P: Provider, O: Owner<Access: MayBeWritten>, A: RemoteAccess>(
        self,
        pd: &ProtectionDomain<P>,
        memory: O,
        access: Granted<A>,
        options: RegisterOptions,
    ) -> Result<GpuExposed<O, A>, Refused<O>> {
        let (place, memops, exposed) = self.attempt(memory, |memory| pd.expose_with(memory, access, options))?;
        Ok(GpuExposed::new(exposed, place, memops))
    }

    /// Each way in its turn, and both errors if none does.
    fn attempt<O: Owner, R>(
        self,
        memory: O,
        mut register: impl FnMut(GpuMemory<O>) -> Result<R, efa_core::Refused<GpuMemory<O>>>,
    ) -> Result<(Place, SyncMemops, R), Refused<O>> {
        let prepared = self.prepare(&memory);
        let (place, memops, dma_buf, [first, second]) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err(Refused::new(memory, error)),
        };
        let (mut owner, mut refused) = (memory, None);
        if dma_buf {
            for flags in [first, second].into_iter().flatten() {
                let exported = match self.export_with(&place, &owner, flags) {
                    Ok(exported) => exported,
                    Err(error) => {
                        let again = is_refusal(&error);
                        match attempt_of(error) {
                            // What was first refused is the reason; another try of other flags says less.
                            Ok(attempt) => refused = refused.or(Some(attempt)),
                            Err(error) => return Err(Refused::new(owner, error)),
                        }
                        if again { continue } else { break }
                    }
                };
                let memory = match GpuMemory::plain(owner) {
                    Ok(memory) => memory,
                    Err(owner) => return Err(Refused::new(owner, Error::NotCuda { address: 0 })),
                };
                // SAFETY: the file is closed at the end of this round, when it was registered or refused.
                let memory = unsafe { memory.exported(exported.file.as_fd(), exported.offset) };
                let error = match register(memory) {
                    Ok(registered) => return Ok((place.reached(Way::File(flags)), memops, registered)),
                    Err(error) => error,
                };
                let (memory, error) = error.into_parts();
                owner = memory.into_owner();
                let efa_core::Error::Device { errno, .. } = error else {
                    return Err(Refused::new(owner, error.into()));
                };
                refused = refused.or(Some(Attempt::Register(error)));
                if errno != ENOTSUPP {
                    break;
                }
            }
        } else {
            refused = Some(Attempt::Unsupported);
        }
        let memory = match GpuMemory::plain(owner) {
            Ok(memory) => memory,
            Err(owner) => return Err(Refused::new(owner, Error::NotCuda { address: 0 })),
        };
        let place = place.reached(Way::Address);
        register(memory).map(|registered| (place, memops, registered)).map_err(|error| {
            let (memory, plain) = error.into_parts();
            let error = match (refused, plain) {
                (Some(dma_buf), efa_core::Error::Device { .. }) => Error::Registration { dma_buf, plain },
                _ => Error::Core(plain),
            };
            Refused::new(memory.into_owner(), error)
        })
    }

    /// Where memory is, and what can be tried with it.
    #[allow(clippy::type_complexity)]
    fn prepare<O: Owner>(self, memory: &O) -> Result<(Place, SyncMemops, bool, [Option<u64>; 2]), Error> {
        let (address, len) = (memory.address(), memory.len());
        if len == 0 {
            return Err(Error::Core(efa_core::Error::ZeroLength));
        }
        let info = self.classify_device(address, len)?;
        let place = Place::of(&info, address);
        let memops = match info.sort {
            MemorySort::Allocation => match place.within(memory, |_| self.set_sync_memops(address))? {
                Ok(()) => SyncMemops::Set,
                Err(failed) => SyncMemops::Refused(failed),
            },
            _ => SyncMemops::NotOfThisMemory,
        };
        let (first, second) = flags(self.version()?, cfg!(target_arch = "aarch64"));
        Ok((place, memops, info.device.exports_dma_bufs()?, [Some(first), second]))
    }
}

/// The kernel's own number for what it does not support: NVIDIA's driver does not let the device reach the GPU by that way.
const ENOTSUPP: i32 = 524;

/// What an export that failed means for the registration; `Err` ends it.
fn attempt_of(error: Error) -> Result<Attempt, Error> {
    match error {
        Error::Call(failed) => Ok(Attempt::Export(failed)),
        Error::NeedsDriver(needs) => Ok(Attempt::TooOld(needs)),
        other => Err(other),
    }
}
