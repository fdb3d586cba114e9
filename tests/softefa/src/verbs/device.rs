//! What the device is: context, device, port and GID attributes.

#![forbid(unsafe_code)]

use efa_core::{Caps, Provider};

use super::Context;
use crate::driver::Driver;
use crate::errno::Errno;
use crate::ioctl::{Call, UserMemory};
use crate::sysfs;
use crate::uapi::{Answer, Fields, attr};

/// Completion vectors: to this library all are one.
pub(super) const VECTORS: u32 = 2;

/// What the program's library must take care of, if it can.
const USER_TX_BATCH: u32 = 1 << 0;
const USER_MIN_SQ: u32 = 1 << 1;
/// Optional access bits are ignored rather than refused.
const OPTIONAL_MR_ACCESS: u64 = 1;
/// This driver answers more of a device query, and of an address handle, than the interface has.
const DRIVER_ANSWERS: u32 = 0b11;

/// Bits of `device_caps`, in the kernel driver's numbering, which differs from libefa's.
fn device_caps(caps: Caps, driver: &Driver) -> u32 {
    const NOTIFICATIONS: u32 = 1 << 2;
    const CQ_MEMORY: u32 = 1 << 7;
    const REQ_ID_64: u32 = 1 << 9;
    let of_driver = [(driver.cq_memory, CQ_MEMORY), (driver.req_id_64, REQ_ID_64)];
    let of_driver = of_driver.iter().filter(|(has, _)| *has).fold(NOTIFICATIONS, |all, (_, bit)| all | bit);
    let bits = [
        (Caps::RDMA_READ, 0),
        (Caps::RNR_RETRY, 1),
        (Caps::CQ_WITH_SGID, 3),
        (Caps::RDMA_WRITE, 5),
        (Caps::UNSOLICITED_WRITE_RECV, 6),
        (Caps::COMP_CNTR, 8),
    ];
    bits.iter().filter(|(cap, _)| caps.contains(*cap)).fold(of_driver, |all, (_, bit)| all | 1 << bit)
}

impl Context {
    pub(super) fn get_context<M: UserMemory>(&mut self, call: &Call<'_, M>) -> Result<(), Errno> {
        if self.opened {
            return Err(Errno::EINVAL);
        }
        let limits = self.device.limits();
        let input = call.input(attr::UHW_IN)?;
        let takes = Fields(&input).u32(0);
        let needs = USER_TX_BATCH | if limits.min_send_depth > 1 { USER_MIN_SQ } else { 0 };
        if takes & needs != needs {
            return Err(Errno::EOPNOTSUPP);
        }
        call.put(0, &VECTORS.to_ne_bytes())?;
        call.put(1, &OPTIONAL_MR_ACCESS.to_ne_bytes())?;
        // One is no minimum.
        let least = if limits.min_send_depth > 1 { limits.min_send_depth as u16 } else { 0 };
        let wide = if self.device.caps().contains(Caps::WIDE_ENTRIES) { limits.max_inline_wide } else { 0 };
        let answer = Answer::<24>::new()
            .u32(4, DRIVER_ANSWERS)
            .u16(8, self.driver.layout.sub_cqs)
            .u16(10, limits.max_inline)
            .u32(12, limits.max_send_depth * 64)
            .u16(16, limits.max_batch)
            .u16(18, least)
            .u16(20, wide.max(limits.max_inline));
        call.put(attr::UHW_OUT, &answer.0)?;
        crate::progress::Progress::start(self.progress, &self.device)?;
        self.opened = true;
        Ok(())
    }

    fn device_attr(&self) -> Answer<304> {
        const PAGE_SIZES: u64 = !0xFFF;
        const AMAZON: u32 = 0x1D0F;
        const EFA: u32 = 0xEFA1;
        let limits = self.device.limits();
        let guid = sysfs::guid(self.device.gid()).to_be_bytes();
        Answer::new()
            .with(8, &guid)
            .with(16, &guid)
            .u64(24, limits.max_mr_size)
            .u64(32, PAGE_SIZES)
            .u32(40, AMAZON)
            .u32(44, EFA)
            .u32(52, limits.max_qp)
            .u32(56, limits.max_send_depth.min(limits.max_recv_depth))
            .u32(64, limits.max_send_sge.min(limits.max_recv_sge).into())
            .u32(68, 1)
            .u32(72, limits.max_cq)
            .u32(76, limits.max_cqe)
            .u32(80, limits.max_mr)
            .u32(84, limits.max_pd)
            .u32(144, limits.max_ah)
            .u16(168, 1)
            .u8(171, 1)
    }

    pub(super) fn query_device<M: UserMemory>(&self, call: &Call<'_, M>) -> Result<(), Errno> {
        call.put(attr::CORE_OUT, &self.device_attr().0[..176])
    }

    pub(super) fn query_device_ex<M: UserMemory>(&self, call: &Call<'_, M>, input: Fields<'_>) -> Result<(), Errno> {
        if input.u32(0) != 0 || input.u32(4) != 0 {
            return Err(Errno::EINVAL);
        }
        let length = call.room(attr::CORE_OUT).min(304) as u32;
        call.put(attr::CORE_OUT, &self.device_attr().u32(180, length).0)?;
        let limits = self.device.limits();
        let answer = Answer::<24>::new()
            .u32(4, limits.max_send_depth)
            .u32(8, limits.max_recv_depth)
            .u16(12, limits.max_send_sge.into())
            .u16(14, limits.max_recv_sge.into())
            .u32(16, limits.max_rdma_size)
            .u32(20, device_caps(self.device.caps(), &self.driver));
        call.put(attr::UHW_OUT, &answer.0)
    }

    pub(super) fn query_port<M: UserMemory>(&self, call: &Call<'_, M>) -> Result<(), Errno> {
        const ACTIVE: u8 = 4;
        const MTU_4096: u8 = 5;
        const LINK_UP: u8 = 5;
        const WIDTH_4X: u8 = 2;
        const SPEED_EDR: u8 = 32;
        if call.number(0)? != 1 {
            return Err(Errno::EINVAL);
        }
        let answer = Answer::<48>::new()
            .u32(4, self.device.limits().max_msg_size)
            .u32(16, 1)
            .u16(20, 1)
            .u8(26, ACTIVE)
            .u8(27, MTU_4096)
            .u8(28, MTU_4096)
            .u8(29, 1)
            .u8(30, 1)
            .u8(34, WIDTH_4X)
            .u8(35, SPEED_EDR)
            .u8(36, LINK_UP);
        call.put(1, &answer.0)
    }

    pub(super) fn query_port_speed<M: UserMemory>(&self, call: &Call<'_, M>) -> Result<(), Errno> {
        /// In units of 100 Mb/s: what `query_port` says as a speed and a width.
        const SPEED: u64 = 4 * 250;
        if call.number(0)? != 1 {
            return Err(Errno::EINVAL);
        }
        call.put(1, &SPEED.to_ne_bytes())
    }

    fn gid_entry(&self) -> Answer<32> {
        Answer::new().with(0, &self.device.gid().0).u32(20, 1)
    }

    pub(super) fn query_gid_entry<M: UserMemory>(&self, call: &Call<'_, M>) -> Result<(), Errno> {
        if call.number(0)? != 1 || call.number(1)? != 0 || call.number(2)? != 0 {
            return Err(Errno::EINVAL);
        }
        call.put(3, &self.gid_entry().0)
    }

    pub(super) fn query_gid_table<M: UserMemory>(&self, call: &Call<'_, M>) -> Result<(), Errno> {
        let size = call.number(0)?;
        if !(1..=u64::from(u16::MAX)).contains(&size) || call.number(1)? != 0 {
            return Err(Errno::EINVAL);
        }
        if (call.room(2) as u64) < size {
            return Err(Errno::EINVAL);
        }
        let entry = self.gid_entry().0;
        call.put(2, &entry[..entry.len().min(size as usize)])?;
        call.put(3, &1u64.to_ne_bytes())
    }
}
