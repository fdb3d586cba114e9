//! What is limited, and what to do about it.

#![forbid(unsafe_code)]

use core::fmt;

/// What is limited.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Queue pairs.
    QueuePairs,
    /// Completion queues.
    CompletionQueues,
    /// Memory regions.
    MemoryRegions,
    /// Protection domains.
    ProtectionDomains,
    /// Address handles.
    AddressHandles,
    /// Bytes of a memory region.
    RegionBytes,
    /// Pages of a memory region that peers may write.
    WritablePages,
    /// Send queue entries.
    SendDepth,
    /// Receives in a receive queue.
    RecvDepth,
    /// Buffers of a receive.
    RecvBuffers,
    /// Inline bytes.
    InlineBytes,
    /// Completion queue entries.
    CompletionEntries,
    /// Software devices on one wire.
    Devices,
    /// Frozen ranges of one region.
    FrozenRanges,
    /// Bytes that a pool is made of.
    PoolBytes,
    /// Slots of a pool.
    PoolSlots,
    /// Buffers of one SEND.
    SendBuffers,
    /// Bytes of one message.
    MessageBytes,
    /// Bytes of one RDMA operation.
    RdmaBytes,
    /// Bytes of one buffer of a receive.
    RecvBytes,
    /// Bytes of a receive of a UD queue pair.
    DatagramBytes,
    /// Receiver-not-ready retries.
    RnrRetries,
    /// A packet sequence number.
    SequenceNumber,
    /// Peers in a table.
    Peers,
    /// Queue pairs of a group.
    Members,
    /// Parts of one operation.
    Parts,
    /// Messages held back for their turn.
    ReorderWindow,
    /// Completion counters.
    Counters,
    /// Completion channels.
    Channels,
    /// A completion vector, of those that a device has.
    CompletionVector,
}

impl Limit {
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::SendBuffers => "send them one by one, or ask for two with `Depth::send_buffers` (R09)",
            Self::MessageBytes => "split it, or use RDMA, which takes more (R11)",
            Self::RdmaBytes => "`flow::Split` does it in parts (R11)",
            Self::RecvBytes => "post less of it: a receive's length has 16 bits, a message fewer (R12)",
            Self::RecvBuffers => "ask for two with `Depth::recv_buffers` (R19)",
            Self::InlineBytes => "register the bytes and send a slice; `Wide` entries have room for up to 80 (R10)",
            Self::RegionBytes => "register it in parts (R36)",
            Self::WritablePages => "register it in parts, or in larger pages (R36)",
            Self::RnrRetries => "`RnrRetry::FOREVER` is for ever",
            Self::CompletionEntries => {
                "ask for smaller depths, or, in a group, for more completion queue entries (R17)"
            }
            Self::SendDepth | Self::RecvDepth => "ask for less; `Context::limits` says what there is",
            _ => "ask for less",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueuePairs => "queue pairs",
            Self::CompletionQueues => "completion queues",
            Self::MemoryRegions => "memory regions",
            Self::ProtectionDomains => "protection domains",
            Self::AddressHandles => "address handles",
            Self::RegionBytes => "bytes of a memory region",
            Self::WritablePages => "pages of a memory region that peers may write",
            Self::SendDepth => "send queue entries",
            Self::RecvDepth => "receive queue descriptors",
            Self::RecvBuffers => "buffers of a receive",
            Self::InlineBytes => "inline bytes",
            Self::CompletionEntries => "completion queue entries",
            Self::Devices => "software devices on one wire",
            Self::FrozenRanges => "frozen ranges of one region",
            Self::PoolBytes => "bytes of a pool",
            Self::PoolSlots => "slots of the pool",
            Self::SendBuffers => "buffers of one SEND",
            Self::MessageBytes => "bytes of one message",
            Self::RdmaBytes => "bytes of one RDMA operation",
            Self::RecvBytes => "bytes of one receive buffer",
            Self::DatagramBytes => "bytes of a UD receive, where a header of 40 precedes the payload",
            Self::RnrRetries => "receiver-not-ready retries",
            Self::SequenceNumber => "a packet sequence number",
            Self::Members => "queue pairs of the group",
            Self::Peers => "peers in the table",
            Self::Parts => "parts of one operation",
            Self::ReorderWindow => "messages held back for their turn",
            Self::Counters => "completion counters",
            Self::Channels => "completion channels",
            Self::CompletionVector => "the completion vector",
        })
    }
}
