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

impl Counters {
    /// Those that the driver has, by the names of its files in hw_counters.
    pub const fn of_the_driver(&self) -> [(&'static str, u64); 19] {
        [
            ("tx_bytes", self.tx_bytes),
            ("tx_pkts", self.tx_pkts),
            ("rx_bytes", self.rx_bytes),
            ("rx_pkts", self.rx_pkts),
            ("rx_drops", self.rx_drops),
            ("send_bytes", self.send_bytes),
            ("send_wrs", self.send_wrs),
            ("recv_bytes", self.recv_bytes),
            ("recv_wrs", self.recv_wrs),
            ("rdma_read_wrs", self.rdma_read_wrs),
            ("rdma_read_bytes", self.rdma_read_bytes),
            ("rdma_read_wr_err", self.rdma_read_wr_err),
            ("rdma_read_resp_bytes", self.rdma_read_resp_bytes),
            ("rdma_write_wrs", self.rdma_write_wrs),
            ("rdma_write_bytes", self.rdma_write_bytes),
            ("rdma_write_wr_err", self.rdma_write_wr_err),
            ("rdma_write_recv_bytes", self.rdma_write_recv_bytes),
            ("retrans_pkts", self.retrans_pkts),
            ("unresponsive_remote_events", self.unresponsive_remote_events),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_of_the_drivers_stands_under_its_own_name() {
        let counters = Counters { tx_bytes: 1, rdma_read_wr_err: 2, duplicates: 3, ..Counters::default() };
        let named = counters.of_the_driver();
        let set: [_; 2] = [named[0], named[11]];
        assert_eq!(set, [("tx_bytes", 1), ("rdma_read_wr_err", 2)]);
        assert_eq!(named.iter().map(|(_, value)| value).sum::<u64>(), 3);
    }
}
