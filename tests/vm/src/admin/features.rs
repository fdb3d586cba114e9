//! What the device says of itself, what the driver says of its host, and what was counted.

#![forbid(unsafe_code)]

use efa_core::soft::SoftDevice;
use efa_core::{Caps, Provider};
use zerocopy::FromZeros;
use zerocopy::little_endian::{U32, U64};

use super::layout::{DeviceAttributes, Feature, GetStats, NetworkAttributes, QueueAttributes, WITH_BUFFER, feature};
use super::{Admin, Answer, Reply, Status};
use crate::events::{AENQ_GROUPS, EQ_DEPTH, EQS};
use crate::fault::Fault;
use crate::guest::PAGE;
use crate::pci::DOORBELL_REGION;

/// Page sizes that a region may have: each from 4 KiB on.
const PAGE_SIZES: u64 = !0xFFF;
/// Gigabits a second that the link is said to have.
const LINK: u16 = 100;
/// Bytes of the text by which a driver names its system.
const HOST_TEXT: usize = 128;

const FEATURES: [u8; 8] = [
    feature::DEVICE,
    feature::AENQ,
    feature::NETWORK,
    feature::QUEUES,
    feature::HARDWARE_HINTS,
    feature::HOST_INFO,
    feature::EVENT_QUEUES,
    feature::QUEUES_2,
];

/// As the device numbers them.
fn device_caps(device: &SoftDevice) -> u32 {
    let bits = [(Caps::RDMA_READ, 0), (Caps::RNR_RETRY, 1), (Caps::RDMA_WRITE, 3), (Caps::UNSOLICITED_WRITE_RECV, 4)];
    bits.iter().filter(|(cap, _)| device.caps().contains(*cap)).fold(0, |all, (_, bit)| all | 1 << bit)
}

impl Admin {
    fn has(&self, id: u8) -> bool {
        FEATURES.contains(&id) && !(id == feature::HARDWARE_HINTS && self.fault == Some(Fault::NoHardwareHints))
    }

    pub(super) fn get_feature(&self, asked: &Feature) -> Answer {
        if !self.has(asked.id) {
            return Err(Status::Unsupported);
        }
        let limits = self.device.limits();
        Ok(match asked.id {
            feature::DEVICE => Reply::of(&self.device_attributes()),
            feature::AENQ => {
                let without = self.fault == Some(Fault::NoAenqGroup);
                let groups = if without { AENQ_GROUPS & !(1 << 4) } else { AENQ_GROUPS };
                Reply::of(&[U32::from(groups), U32::from(self.events.enabled)])
            }
            feature::NETWORK => {
                Reply::of(&NetworkAttributes { gid: self.device.gid().0, mtu: limits.max_msg_size.into() })
            }
            feature::QUEUES => Reply::of(&self.queue_attributes()),
            feature::QUEUES_2 => {
                let wide = self.device.caps().contains(Caps::WIDE_ENTRIES);
                let inline = if wide { limits.max_inline_wide } else { limits.max_inline };
                Reply::of(&U32::from(u32::from(inline)))
            }
            feature::EVENT_QUEUES => Reply::of(&[EQS as u32, EQ_DEPTH, 1].map(U32::from)),
            // Milliseconds: of reading a register; the driver's own for the rest. An emulated machine is slow.
            feature::HARDWARE_HINTS => Reply::of(&[U32::from(1000), U32::from(0)]),
            _ => return Err(Status::Unsupported),
        })
    }

    fn device_attributes(&self) -> DeviceAttributes {
        let supported = (0..64).filter(|id| self.has(*id)).fold(0, |all, id| all | 1 << id);
        DeviceAttributes {
            features: U64::new(supported),
            page_sizes: U64::new(PAGE_SIZES),
            firmware: 1.into(),
            admin_version: 1.into(),
            device_version: 1.into(),
            doorbell_region: DOORBELL_REGION.into(),
            physical_bits: 48,
            virtual_bits: 64,
            caps: device_caps(&self.device).into(),
            max_rdma_size: self.device.limits().max_rdma_size.into(),
            // In network byte order.
            guid: U64::new(self.device.gid().interface_id().swap_bytes()),
            gigabits: LINK.into(),
            reserved: [0; 6],
        }
    }

    fn queue_attributes(&self) -> QueueAttributes {
        let limits = self.device.limits();
        QueueAttributes {
            max_qp: limits.max_qp.into(),
            max_sq_depth: limits.max_send_depth.into(),
            inline: u32::from(limits.max_inline).into(),
            max_rq_depth: limits.max_recv_depth.into(),
            max_cq: limits.max_cq.into(),
            max_cq_depth: limits.max_cqe.into(),
            sub_cqs: 1.into(),
            // One is no minimum.
            min_sq_depth: 0.into(),
            send_sges: u16::from(limits.max_send_sge).into(),
            recv_sges: u16::from(limits.max_recv_sge).into(),
            max_mr: limits.max_mr.into(),
            max_mr_pages: u32::try_from(limits.max_mr_size / PAGE as u64).unwrap_or(u32::MAX).into(),
            max_pd: limits.max_pd.into(),
            max_ah: limits.max_ah.into(),
            max_llq_bytes: (limits.max_send_depth * 64).into(),
            rdma_sges: 1.into(),
            max_batch: limits.max_batch.into(),
        }
    }

    pub(super) fn set_feature(&mut self, asked: &Feature, flags: u8) -> Answer {
        match asked.id {
            feature::AENQ => self.events.enabled = asked.values[1].get() & AENQ_GROUPS,
            feature::HOST_INFO if flags & WITH_BUFFER != 0 => {
                let mut host = [0; HOST_TEXT];
                self.guest.read(asked.buffer.at(), &mut host)?;
                let text: String = host.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
                self.driver = Some(text.escape_default().to_string());
            }
            _ => return Err(Status::Unsupported),
        }
        Ok(Reply::empty())
    }

    pub(super) fn get_stats(&self, asked: &GetStats) -> Answer {
        let counters = self.device.counters();
        let values: &[u64] = match asked.kind {
            0 => &[counters.tx_bytes, counters.tx_pkts, counters.rx_bytes, counters.rx_pkts, counters.rx_drops, 0],
            1 => &[counters.send_bytes, counters.send_wrs, counters.recv_bytes, counters.recv_wrs],
            2 => &[
                counters.rdma_read_wrs,
                counters.rdma_read_bytes,
                counters.rdma_read_wr_err,
                counters.rdma_read_resp_bytes,
            ],
            3 => &[
                counters.rdma_write_wrs,
                counters.rdma_write_bytes,
                counters.rdma_write_wr_err,
                counters.rdma_write_recv_bytes,
            ],
            // Of bytes and of time-outs that were met the model keeps no count.
            4 => &[0, counters.retrans_pkts, 0, counters.unresponsive_remote_events, 0],
            _ => return Err(Status::IllegalParameter),
        };
        if asked.scope != 0 {
            return Err(Status::Unsupported);
        }
        let mut reply = [U64::new_zeroed(); 7];
        for (to, from) in reply.iter_mut().zip(values) {
            *to = U64::new(*from);
        }
        Ok(Reply::of(&reply))
    }
}
