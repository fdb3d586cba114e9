//! What a software device counts, under the names of the kernel driver's hw_counters.

#![forbid(unsafe_code)]

/// Counts since the device was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes sent, whatever the operation.
    pub tx_bytes: u64,
    /// Packets sent: one for each `max_msg_size` bytes begun, and one for an empty message.
    pub tx_pkts: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_pkts: u64,
    /// Messages that arrived and were refused: no such queue pair, no receive, no right. Datagrams too, though nobody
    /// is told.
    pub rx_drops: u64,
    /// Bytes of SENDs done.
    pub send_bytes: u64,
    /// SENDs done; of UD queue pairs those that have left.
    pub send_wrs: u64,
    /// Bytes put into receives.
    pub recv_bytes: u64,
    /// Receives that took a SEND.
    pub recv_wrs: u64,
    /// RDMA reads done.
    pub rdma_read_wrs: u64,
    /// Bytes read by RDMA.
    pub rdma_read_bytes: u64,
    /// RDMA reads that failed.
    pub rdma_read_wr_err: u64,
    /// Bytes that peers read here.
    pub rdma_read_resp_bytes: u64,
    /// RDMA writes done.
    pub rdma_write_wrs: u64,
    /// Bytes written by RDMA.
    pub rdma_write_bytes: u64,
    /// RDMA writes that failed.
    pub rdma_write_wr_err: u64,
    /// Bytes that peers wrote here.
    pub rdma_write_recv_bytes: u64,
    /// Requests and answers that were lost and sent again.
    pub retrans_pkts: u64,
    /// Messages given up because too many in a row were lost.
    pub unresponsive_remote_events: u64,
    /// Messages that arrived again and were not executed again. Not in the driver.
    pub duplicates: u64,
    /// Completions that found no room: see [`Config::count_overruns`](super::Config::count_overruns). Not in the
    /// driver.
    pub cq_overruns: u64,
    /// Doorbells and receive descriptors that made no sense: each put its queue pair into ERR. Not in the driver.
    pub protocol_errors: u64,
    /// Send completions with an error. Not in the driver.
    pub wr_errors: u64,
}
