//! A machine without a monitor: memory on a bus, and a driver that does with a function what the kernel's does.

use std::sync::Arc;

use efa_core::entry::{
    Completion as Entry, RecvDescriptor, SendEntry, completion_flags, control1, control2, descriptor_flags,
};
use efa_vm::admin::layout::*;
use efa_vm::function::Function;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Where memory begins, and its bytes.
pub(crate) const RAM: u64 = 0x4000_0000;
pub(crate) const RAM_BYTES: usize = 8 << 20;
const AQ: u64 = RAM;
const ACQ: u64 = RAM + 0x1000;
pub(crate) const AENQ: u64 = RAM + 0x2000;
const READ_INTO: u64 = RAM + 0x3000;
pub(crate) const EQ: u64 = RAM + 0x4000;
/// What is left is given away from here on.
const FREE: u64 = RAM + 0x10000;
pub(crate) const DEPTH: u16 = 32;

pub(crate) struct Driver {
    pub(crate) function: Arc<Function>,
    free: u64,
    sent: u16,
    taken: u16,
    reads: u16,
}

impl Driver {
    /// A machine with one function.
    pub(crate) fn new(function: &Arc<Function>) -> Self {
        let file = rustix::fs::memfd_create("ram", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, RAM_BYTES as u64).unwrap();
        let ram = MmapRegion::from_file(FileOffset::new(file.into(), 0), RAM_BYTES).unwrap();
        function.guest().map(RAM, ram, true).unwrap();
        Self { function: function.clone(), free: FREE, sent: 0, taken: 0, reads: 0 }
    }

    /// So many bytes of memory, on pages of their own.
    pub(crate) fn allocate(&mut self, bytes: usize) -> u64 {
        let at = self.free;
        self.free += bytes.next_multiple_of(4096) as u64;
        assert!(self.free <= RAM + RAM_BYTES as u64, "the machine has no more memory");
        at
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        self.function.guest().write(at, bytes).unwrap();
    }

    pub(crate) fn get(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.function.guest().read(at, &mut out).unwrap();
        out
    }

    pub(crate) fn value<T: FromBytes + IntoBytes + KnownLayout + Immutable>(&self, at: u64) -> T {
        let mut value = T::new_zeroed();
        self.function.guest().read(at, value.as_mut_bytes()).unwrap();
        value
    }

    pub(crate) fn write(&self, offset: u64, value: u32) {
        self.function.write_register(offset, value);
    }

    /// Reads a register as the driver does; which one was answered, and its value.
    pub(crate) fn read(&mut self, offset: u16) -> Option<(u16, u32)> {
        self.reads += 1;
        self.put(READ_INTO, &[0xFF; 8]);
        self.write(0x64, (READ_INTO >> 32) as u32);
        self.write(0x60, READ_INTO as u32);
        self.write(0x5c, u32::from(self.reads) | u32::from(offset) << 16);
        let answer = self.get(READ_INTO, 8);
        let word = |at: usize| u16::from_le_bytes([answer[at], answer[at + 1]]);
        let value = u32::from_le_bytes(answer[4..].try_into().unwrap());
        (word(0) == self.reads).then_some((word(2), value))
    }

    /// Resets the function and sets its queues up.
    pub(crate) fn start(&mut self) {
        self.write(0x54, 1);
        assert_eq!(self.read(0x58), Some((0x58, 1 | 8)), "the reset goes on");
        self.write(0x54, 0);
        assert_eq!(self.read(0x58), Some((0x58, 1)), "it is over");
        (self.sent, self.taken) = (0, 0);
        self.put(AQ, &[0; 4096]);
        self.put(ACQ, &[0; 4096]);
        let entries = u32::from(DEPTH) | 64 << 16;
        for (registers, base) in [([0x10, 0x14, 0x18], AQ), ([0x20, 0x24, 0x28], ACQ), ([0x38, 0x3c, 0x34], AENQ)] {
            self.write(registers[0], base as u32);
            self.write(registers[1], (base >> 32) as u32);
            self.write(registers[2], entries);
        }
        self.write(0x40, 0);
    }

    /// Has a command done: its answer, or the status that it was refused with.
    pub(crate) fn command<T: FromBytes>(
        &mut self,
        opcode: u8,
        flags: u8,
        body: &(impl IntoBytes + Immutable),
    ) -> Result<T, u8> {
        let completion = self.raw(opcode, flags, body.as_bytes());
        if completion.status != 0 {
            return Err(completion.status);
        }
        Ok(T::read_from_prefix(&completion.body).unwrap_or_else(|_| panic!("a short answer")).0)
    }

    pub(crate) fn raw(&mut self, opcode: u8, flags: u8, body: &[u8]) -> Completion {
        let mut command = Command::new_zeroed();
        (command.opcode, command.flags, command.id) = (opcode, flags, (self.sent & 0xFFF).into());
        for (to, from) in command.body.iter_mut().zip(body) {
            *to = *from;
        }
        self.put(AQ + u64::from(self.sent % DEPTH) * 64, command.as_bytes());
        self.sent = self.sent.wrapping_add(1);
        self.write(0x2c, self.sent.into());
        let completion: Completion = self.value(ACQ + u64::from(self.taken % DEPTH) * 64);
        let phase = u8::from(self.taken & DEPTH == 0);
        assert_eq!(
            (completion.phase, completion.id.get()),
            (phase, command.id.get()),
            "command {opcode} has completed"
        );
        self.taken = self.taken.wrapping_add(1);
        completion
    }
}

/// A queue pair with queues of its own.
pub(crate) struct Qp {
    pub(crate) handle: u32,
    pub(crate) qpn: u16,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    made: QpMade,
    rq: u64,
    sends: u32,
    receives: u32,
}

pub(crate) struct Cq {
    pub(crate) number: u16,
    pub(crate) doorbell: u32,
    ring: u64,
    taken: u32,
}

/// Entries of all queues.
pub(crate) const ENTRIES: u32 = 16;
pub(crate) const QKEY: u32 = 0x1234_5678;

impl Driver {
    pub(crate) fn pd(&mut self) -> u16 {
        self.command::<zerocopy::little_endian::U16>(opcode::ALLOC_PD, 0, &[0_u8; 0]).unwrap().get()
    }

    /// A completion queue that raises events at an event queue, or none.
    pub(crate) fn cq(&mut self, eqn: Option<u16>) -> Cq {
        let ring = self.allocate(ENTRIES as usize * 32);
        // As the kernel gives it.
        self.put(ring, &[0; ENTRIES as usize * 32]);
        let mut asked = CreateCq::new_zeroed();
        (asked.entry, asked.depth, asked.sub_cqs) = (8, (ENTRIES as u16).into(), 1.into());
        (asked.low, asked.high) = ((ring as u32).into(), ((ring >> 32) as u32).into());
        (asked.caps, asked.eqn) = (if eqn.is_some() { 1 << 5 } else { 0 }, eqn.unwrap_or(0).into());
        let made: CqMade = self.command(opcode::CREATE_CQ, 0, &asked).unwrap();
        Cq { number: made.index.get(), doorbell: made.doorbell.get(), ring, taken: 0 }
    }

    /// What a queue pair is asked for with.
    pub(crate) fn asked(&mut self, pd: u16, cqs: [u16; 2]) -> CreateQp {
        let rq = self.allocate(ENTRIES as usize * 16);
        let mut asked = CreateQp::new_zeroed();
        (asked.pd, asked.qp_type, asked.rq_base) = (pd.into(), 2, rq.into());
        (asked.send_cq, asked.recv_cq) = (u32::from(cqs[0]).into(), u32::from(cqs[1]).into());
        (asked.sq_depth, asked.sq_bytes) = (ENTRIES.into(), (ENTRIES * 64).into());
        (asked.rq_depth, asked.rq_bytes) = (ENTRIES.into(), (ENTRIES * 16).into());
        asked
    }

    /// A queue pair in RTS.
    pub(crate) fn qp(&mut self, pd: u16, eqn: Option<u16>) -> Qp {
        let (send_cq, recv_cq) = (self.cq(eqn), self.cq(eqn));
        let asked = self.asked(pd, [send_cq.number, recv_cq.number]);
        let made: QpMade = self.command(opcode::CREATE_QP, 0, &asked).unwrap();
        let handle = made.handle.get();
        for (mask, state) in [(0b101, 1), (1, 2), (0b1001, 3)] {
            let mut change = ModifyQp::new_zeroed();
            (change.mask, change.handle, change.state, change.qkey) =
                ((mask | 2_u32).into(), handle.into(), (state as u32).into(), QKEY.into());
            change.cur_state = (state as u32 - 1).into();
            self.command::<[u8; 0]>(opcode::MODIFY_QP, 0, &change).unwrap();
        }
        let rq = asked.rq_base.get();
        Qp { handle, qpn: made.qpn.get(), send_cq, recv_cq, made, rq, sends: 0, receives: 0 }
    }

    pub(crate) fn ah(&mut self, pd: u16, gid: [u8; 16]) -> u16 {
        let asked = CreateAh { gid, pd: pd.into(), reserved: 0.into() };
        self.command::<zerocopy::little_endian::U16>(opcode::CREATE_AH, 0, &asked).unwrap().get()
    }

    /// Registers pages that are in the command.
    pub(crate) fn region(&mut self, pd: u16, pages: &[u64], length: u64, iova: u64) -> MrMade {
        let mut asked = RegMr::new_zeroed();
        (asked.pd, asked.length, asked.iova) = (pd.into(), length.into(), iova.into());
        (asked.flags, asked.permissions, asked.pages) = (12, 0b111, (pages.len() as u32).into());
        for (to, page) in asked.list.chunks_exact_mut(8).zip(pages) {
            to.copy_from_slice(&page.to_le_bytes());
        }
        self.command(opcode::REG_MR, 0, &asked).unwrap()
    }

    pub(crate) fn post_recv(&mut self, qp: &mut Qp, addr: u64, length: u16, lkey: u32) {
        let descriptor = RecvDescriptor {
            addr: addr.into(),
            req_id: (qp.receives as u16).into(),
            length: length.into(),
            lkey_ctrl: (lkey | descriptor_flags::FIRST | descriptor_flags::LAST).into(),
        };
        self.put(qp.rq + u64::from(qp.receives % ENTRIES) * 16, descriptor.as_bytes());
        qp.receives += 1;
        self.write(qp.made.rq_doorbell.get().into(), qp.receives);
    }

    /// Posts an entry of one local buffer, for RDMA behind what is remote.
    pub(crate) fn post(&mut self, qp: &mut Qp, to: (u16, u16), op: u8, data: &[u8]) {
        let mut entry = SendEntry::<32>::new_zeroed();
        entry.req_id = (qp.sends as u16).into();
        entry.ctrl1 = op | control1::META_DESC;
        entry.ctrl2 = control2::FIXED | ((qp.sends / ENTRIES) & 1) as u8;
        (entry.dest_qp_num, entry.ah, entry.qkey, entry.length) = (to.1.into(), to.0.into(), QKEY.into(), 1.into());
        entry.data[..data.len()].copy_from_slice(data);
        let at = qp.made.llq.get() as usize + (qp.sends % ENTRIES) as usize * 64;
        self.function.send_queues().get_slice(at, 64).unwrap().copy_from(entry.as_bytes());
        qp.sends += 1;
        self.write(qp.made.sq_doorbell.get().into(), qp.sends);
    }

    /// The next completion: its request, status and flags.
    pub(crate) fn poll(&self, cq: &mut Cq) -> Option<(u16, u8, u8)> {
        let entry: Entry = self.value(cq.ring + u64::from(cq.taken % ENTRIES) * 32);
        let phase = u8::from((cq.taken / ENTRIES) & 1 == 0);
        if entry.flags & completion_flags::PHASE != phase {
            return None;
        }
        cq.taken += 1;
        Some((entry.req_id.get(), entry.status, entry.flags))
    }
}
