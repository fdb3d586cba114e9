//! What a device, its port, a queue pair and a region say of themselves.

#![forbid(unsafe_code)]

use core::ffi::{c_char, c_int};
use core::fmt;

use efa_core::qp::QpState;
use efa_core::{Caps, Context, DataPath, Gid, Limits, Provider, Qkey, Qpn};

use crate::Device;
use crate::ffi::*;

/// What a device is, can do and has. `Display` has a line for each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Its name.
    pub name: String,
    /// Its node's GUID.
    pub guid: u64,
    /// The GUID of the system that it is in, as the device has it.
    pub system_guid: u64,
    /// Its address.
    pub gid: Gid,
    /// Its firmware's version; EFA's kernel driver tells none.
    pub firmware: String,
    /// The PCI vendor: 0x1d0f is Amazon.
    pub vendor: u32,
    /// The PCI device: 0xefa0 to 0xefa4 are the generations of EFA.
    pub part: u32,
    /// The hardware's version: of EFA, its PCI subsystem.
    pub hardware: u32,
    /// The sizes of page that regions can have: bit `n` is 2 to the `n` bytes (R36).
    pub page_sizes: u64,
    /// What it can do. Over the verbs path some of it is left out.
    pub caps: Caps,
    /// How much of it.
    pub limits: Limits,
    /// Buffers of one RDMA operation, the local ones.
    pub rdma_buffers: u32,
    /// How it is driven.
    pub path: DataPath,
    /// libibverbs and libefa, with their newest version nodes.
    pub libraries: [String; 2],
    /// Its only port.
    pub port: PortAttributes,
}

/// What a port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortAttributes {
    /// Whether it works.
    pub state: PortState,
    /// Bytes of a packet of its link, as the verbs count them, and at most: a message may be longer.
    pub mtu: [Option<u32>; 2],
    /// Bytes of a SEND at most (R11).
    pub max_message: u32,
    /// What its link is.
    pub link_layer: LinkLayer,
    /// Megabits that it carries in a second: as the library says from IBVERBS_1.16 (rdma-core 62) on; before, as far as the
    /// verbs have numbers for it, which may be less than there is.
    pub megabits: Option<u64>,
    /// GIDs that it has.
    pub gids: u32,
}

/// The state of a port.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortState {
    /// Down.
    Down,
    /// Coming up.
    Init,
    /// Almost up.
    Armed,
    /// Up.
    Active,
    /// Up, after it lost its link for a moment.
    ActiveDefer,
    /// A number that this crate does not know.
    Unknown(i32),
}

/// What a port's link is.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLayer {
    /// Neither of the others: EFA's own.
    Unspecified,
    /// InfiniBand.
    InfiniBand,
    /// Ethernet.
    Ethernet,
    /// A number that this crate does not know.
    Unknown(u8),
}

/// What a device says of a queue pair: its state, and what was granted when it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairInfo {
    /// Its number.
    pub qpn: Qpn,
    /// Its state.
    pub state: QpState,
    /// Its queue key.
    pub qkey: Qkey,
    /// Its first packet's number.
    pub sq_psn: u32,
    /// Operations that its send queue holds.
    pub sends: u32,
    /// Receives that its receive queue holds.
    pub receives: u32,
    /// Buffers of a SEND.
    pub send_buffers: u32,
    /// Buffers of a receive.
    pub recv_buffers: u32,
    /// Inline bytes of an operation.
    pub inline: u32,
}

/// By which of a device's interconnects it reaches a region, in which role; `None` where it does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interconnects {
    /// What is received.
    pub recv: Option<u16>,
    /// What is read by RDMA here, by operations of this side.
    pub rdma_read: Option<u16>,
    /// What peers write or read by RDMA.
    pub rdma_recv: Option<u16>,
}

impl Attributes {
    pub(crate) fn new(
        of: &Device,
        device: &IbvDeviceAttr,
        efa: &EfadvDeviceAttr,
        port: &IbvPortAttr,
        speed: Option<u64>,
    ) -> Self {
        let ctx = Context::open(of.clone());
        let hundreds = speed.map(|hundreds| hundreds.saturating_mul(100));
        Self {
            name: ctx.name().to_owned(),
            guid: u64::from_be(device.node_guid),
            system_guid: u64::from_be(device.sys_image_guid),
            gid: ctx.gid(),
            firmware: text(&device.fw_ver),
            vendor: device.vendor_id,
            part: device.vendor_part_id,
            hardware: device.hw_ver,
            page_sizes: device.page_size_cap,
            caps: of.caps(),
            limits: of.limits(),
            rdma_buffers: u32::try_from(device.max_sge_rd).unwrap_or(0).min(efa.max_sq_sge.into()),
            path: ctx.data_path(),
            libraries: of.libraries().clone(),
            port: PortAttributes {
                state: PortState::of(port.state),
                mtu: [port.active_mtu, port.max_mtu].map(mtu),
                max_message: port.max_msg_sz,
                link_layer: LinkLayer::of(port.link_layer),
                megabits: hundreds.or_else(|| megabits(port.active_width, port.active_speed)),
                gids: u32::try_from(port.gid_tbl_len).unwrap_or(0),
            },
        }
    }

    /// The smallest and the largest page that regions can have, in bytes.
    pub fn page_range(&self) -> Option<[u64; 2]> {
        let largest = self.page_sizes.checked_ilog2()?;
        Some([1 << self.page_sizes.trailing_zeros(), 1 << largest])
    }
}

impl Interconnects {
    pub(crate) fn of(attr: &EfadvMrAttr) -> Self {
        let told = |bit, id| (attr.ic_id_validity & bit != 0).then_some(id);
        Self {
            recv: told(EFADV_MR_ATTR_VALIDITY_RECV_IC_ID, attr.recv_ic_id),
            rdma_read: told(EFADV_MR_ATTR_VALIDITY_RDMA_READ_IC_ID, attr.rdma_read_ic_id),
            rdma_recv: told(EFADV_MR_ATTR_VALIDITY_RDMA_RECV_IC_ID, attr.rdma_recv_ic_id),
        }
    }
}

impl PortState {
    fn of(number: c_int) -> Self {
        match number {
            IBV_PORT_DOWN => Self::Down,
            IBV_PORT_INIT => Self::Init,
            IBV_PORT_ARMED => Self::Armed,
            IBV_PORT_ACTIVE => Self::Active,
            IBV_PORT_ACTIVE_DEFER => Self::ActiveDefer,
            number => Self::Unknown(number),
        }
    }
}

impl LinkLayer {
    fn of(number: u8) -> Self {
        match c_int::from(number) {
            IBV_LINK_LAYER_UNSPECIFIED => Self::Unspecified,
            IBV_LINK_LAYER_INFINIBAND => Self::InfiniBand,
            IBV_LINK_LAYER_ETHERNET => Self::Ethernet,
            _ => Self::Unknown(number),
        }
    }
}

/// Characters up to the zero behind them.
fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|byte| byte.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn mtu(number: c_int) -> Option<u32> {
    (IBV_MTU_256..=IBV_MTU_4096).contains(&number).then(|| 128 << number)
}

/// What so many lanes carry at such a rate, of those that the verbs have numbers for.
fn megabits(width: u8, speed: u8) -> Option<u64> {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return None,
    };
    let rate = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => return None,
    };
    Some(lanes * rate)
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("down"),
            Self::Init => f.write_str("coming up"),
            Self::Armed => f.write_str("armed"),
            Self::Active => f.write_str("active"),
            Self::ActiveDefer => f.write_str("active, its link was lost for a moment"),
            Self::Unknown(number) => write!(f, "unknown ({number})"),
        }
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unspecified => f.write_str("EFA's own"),
            Self::InfiniBand => f.write_str("InfiniBand"),
            Self::Ethernet => f.write_str("Ethernet"),
            Self::Unknown(number) => write!(f, "unknown ({number})"),
        }
    }
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limits, port) = (&self.limits, &self.port);
        let [libibverbs, libefa] = &self.libraries;
        writeln!(f, "device {}", self.name)?;
        writeln!(f, "  address            {}", self.gid)?;
        writeln!(f, "  node GUID          {:#018x}, of system {:#018x}", self.guid, self.system_guid)?;
        writeln!(
            f,
            "  PCI                vendor {:#06x}, device {:#06x}, version {:#x}",
            self.vendor, self.part, self.hardware
        )?;
        if !self.firmware.is_empty() {
            writeln!(f, "  firmware           {}", self.firmware)?;
        }
        writeln!(f, "  can                {}", Names(self.caps))?;
        writeln!(f, "  data path          {} by {libibverbs} and {libefa}", self.path)?;
        write!(f, "  port               {}, {} link", port.state, port.link_layer)?;
        if let Some(megabits) = port.megabits {
            write!(f, ", {}.{} Gb/s", megabits / 1000, megabits % 1000 / 100)?;
        }
        if let [Some(active), Some(most)] = port.mtu {
            write!(f, ", MTU {active} of {most}")?;
        }
        writeln!(f, ", {} GIDs", port.gids)?;
        writeln!(
            f,
            "  a message          {} bytes, {} inline, {} in wide entries",
            { port.max_message },
            limits.max_inline,
            limits.max_inline_wide
        )?;
        writeln!(f, "  an RDMA operation  {} bytes, {} local buffers", limits.max_rdma_size, self.rdma_buffers)?;
        write!(f, "  regions            {} of up to {} bytes", limits.max_mr, limits.max_mr_size)?;
        if let Some([least, most]) = self.page_range() {
            write!(f, ", in pages of {least} to {most} bytes")?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "  queue pairs        {} of {} to {} sends ({} at once) with {} buffers, {} receives with {} buffers",
            limits.max_qp,
            limits.min_send_depth,
            limits.max_send_depth,
            limits.max_batch,
            limits.max_send_sge,
            limits.max_recv_depth,
            limits.max_recv_sge
        )?;
        writeln!(f, "  completion queues  {} of {} entries", limits.max_cq, limits.max_cqe)?;
        write!(f, "  domains, handles   {}, {}", limits.max_pd, limits.max_ah)
    }
}

impl fmt::Display for QueuePairInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { qpn, state, sends, receives, send_buffers, recv_buffers, inline, .. } = self;
        write!(
            f,
            "queue pair {} in {state}: {sends} sends of {send_buffers} buffers or {inline} inline bytes, {receives} receives of \
             {recv_buffers} buffers",
            qpn.0
        )
    }
}

impl fmt::Display for Interconnects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = [("receives", self.recv), ("RDMA reads", self.rdma_read), ("RDMA by peers", self.rdma_recv)];
        let mut told = roles.into_iter().filter_map(|(role, id)| Some((role, id?))).peekable();
        if told.peek().is_none() {
            return f.write_str("the device does not say by which interconnects");
        }
        for (nth, (role, id)) in told.enumerate() {
            write!(f, "{}{role} by interconnect {id}", if nth > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// The names of capabilities.
struct Names(Caps);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (name, _)) in self.0.iter_names().enumerate() {
            write!(f, "{}{}", if nth > 0 { ", " } else { "" }, name.to_lowercase().replace('_', " "))?;
        }
        if self.0.is_empty() { f.write_str("SEND alone") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_rates_become_the_speed_that_they_carry_and_what_is_unknown_none() {
        assert_eq!(megabits(2, 64), Some(200_000));
        assert_eq!(megabits(4, 64), Some(400_000));
        assert_eq!(megabits(2, 32), Some(100_000));
        assert_eq!((megabits(3, 32), megabits(2, 0)), (None, None));
        assert_eq!((mtu(1), mtu(5), mtu(6), mtu(-1)), (Some(256), Some(4096), None, None));
    }

    #[test]
    fn numbers_of_the_kernel_that_nobody_knows_are_values() {
        assert_eq!(PortState::of(99).to_string(), "unknown (99)");
        assert_eq!(LinkLayer::of(7).to_string(), "unknown (7)");
        assert_eq!((PortState::of(4), LinkLayer::of(0)), (PortState::Active, LinkLayer::Unspecified));
    }

    #[test]
    fn interconnects_are_told_where_the_device_says_them() {
        let (recv_ic_id, rdma_read_ic_id, rdma_recv_ic_id) = (1, 9, 2);
        let of = |ic_id_validity| {
            let attr = EfadvMrAttr { comp_mask: 0, ic_id_validity, recv_ic_id, rdma_read_ic_id, rdma_recv_ic_id };
            Interconnects::of(&attr)
        };
        assert_eq!(of(2), Interconnects { recv: None, rdma_read: Some(9), rdma_recv: None });
        let some = of(1 | 4);
        assert_eq!(some.to_string(), "receives by interconnect 1, RDMA by peers by interconnect 2");
        assert!(of(0).to_string().contains("does not say"));
    }
}
