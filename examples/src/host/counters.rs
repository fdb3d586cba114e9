//! `efa stat`: the counters of devices, their rates, and what a rise means.
//!
//! The driver keeps what it read for 10 ms, and counters outlive a reboot of the operating system: one reading says
//! little, the difference of two says what happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use efa_core::connect::introduce;
use efa_core::{Context, Provider, soft};
use serde::Serialize;

use super::doctor::Severity;
use super::probe::Pinger;
use super::view::View;
use crate::fault::Fault;
use crate::human::Rate;
use crate::table::Table;

/// The counters of a device by name.
pub type Values = BTreeMap<String, u64>;

/// The counters of each device, at one time.
pub type Sample = BTreeMap<String, Values>;

/// What a counter counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sort {
    /// What is carried: no rise is wrong.
    Traffic,
    /// Any rise is as bad as this, and means that.
    Fault(Severity, &'static str),
    /// Packets sent again: bad if they are many of those sent.
    Again,
}

/// Each counter of the driver's: its name, what it counts, and what a rise means.
const COUNTERS: &[(&str, &str, Sort)] = {
    use Severity::{Note, Problem, Warning};
    use Sort::{Again, Fault, Traffic};
    &[
        ("tx_bytes", "bytes sent", Traffic),
        ("tx_pkts", "packets sent", Traffic),
        ("rx_bytes", "bytes received", Traffic),
        ("rx_pkts", "packets received", Traffic),
        ("rx_drops", "packets dropped", Fault(Warning, "receivers do not keep up, or have no receive posted")),
        ("send_bytes", "bytes of SENDs", Traffic),
        ("send_wrs", "SENDs", Traffic),
        ("recv_bytes", "bytes put into receives", Traffic),
        ("recv_wrs", "receives taken", Traffic),
        ("rdma_read_wrs", "RDMA reads", Traffic),
        ("rdma_read_bytes", "bytes read by RDMA", Traffic),
        ("rdma_read_wr_err", "RDMA reads failed", Fault(Problem, "reads failed, for a fault here or at the peer")),
        ("rdma_read_resp_bytes", "bytes that peers read", Traffic),
        ("rdma_write_wrs", "RDMA writes", Traffic),
        ("rdma_write_bytes", "bytes written by RDMA", Traffic),
        ("rdma_write_wr_err", "RDMA writes failed", Fault(Problem, "writes failed, for a fault here or at the peer")),
        ("rdma_write_recv_bytes", "bytes that peers wrote", Traffic),
        ("retrans_bytes", "bytes sent again", Traffic),
        ("retrans_pkts", "packets sent again", Again),
        ("retrans_timeout_events", "time-outs", Fault(Note, "packets timed out, and took another path since")),
        ("unresponsive_remote_events", "peers gone", Fault(Problem, "a peer stopped answering")),
        (
            "impaired_remote_conn_events",
            "connections slowed",
            Fault(Warning, "a connection is limited in its rate, since the way to its peer is impaired"),
        ),
        ("submitted_cmds", "commands to the device", Traffic),
        ("completed_cmds", "commands done", Traffic),
        (
            "cmds_err",
            "commands failed",
            Fault(Warning, "the device refused commands: the calls that made them say why"),
        ),
        ("no_completion_cmds", "commands lost", Fault(Problem, "the device did not answer commands")),
        ("keep_alive_rcvd", "signs of life", Traffic),
        ("alloc_pd_err", "domains refused", Fault(Warning, "protection domains were refused")),
        ("create_qp_err", "queue pairs refused", Fault(Warning, "queue pairs were refused: a limit, mostly")),
        (
            "create_cq_err",
            "completion queues refused",
            Fault(Warning, "completion queues were refused: a limit, mostly"),
        ),
        (
            "reg_mr_err",
            "registrations refused",
            Fault(Warning, "registrations were refused: RLIMIT_MEMLOCK, or a limit"),
        ),
        ("alloc_ucontext_err", "openings refused", Fault(Warning, "the device could not be opened")),
        ("create_ah_err", "address handles refused", Fault(Warning, "address handles were refused: a limit, mostly")),
        ("mmap_err", "mappings refused", Fault(Warning, "queues could not be mapped")),
        ("alloc_mr_err", "regions of the kernel's refused", Fault(Warning, "regions of the kernel's were refused")),
        ("get_dma_mr_err", "regions of the kernel's refused", Fault(Warning, "regions of the kernel's were refused")),
    ]
};

/// One in so many packets sent again is a lot. EFA has no number for it: this is this tool's.
const OFTEN: u64 = 100;

/// What a difference means.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Judgement {
    /// The device.
    pub device: String,
    /// The counter.
    pub counter: String,
    /// By how much it rose.
    pub rise: u64,
    /// How bad that is.
    pub severity: Severity,
    /// What it means.
    pub meaning: String,
}

/// What a counter counts, in words; nothing of one that is not known.
pub(super) fn described(counter: &str) -> Option<&'static str> {
    COUNTERS.iter().find(|(name, ..)| *name == counter).map(|(_, what, _)| *what)
}

/// Reads the counters of each EFA of a host: the device's, and its port's.
pub fn read(view: &View) -> Sample {
    let bus = super::Bus::of(view);
    let read = |device: &super::bus::Rdma| {
        let folder = format!("/sys/class/infiniband/{}", device.name);
        let mut values = Values::new();
        for folder in [format!("{folder}/hw_counters"), format!("{folder}/ports/1/hw_counters")] {
            // Beside counters there is `lifespan`, which is how long the driver keeps them.
            for name in view.names(&folder).into_iter().filter(|name| name != "lifespan") {
                let value = view.text(&format!("{folder}/{name}")).and_then(|text| text.parse().ok());
                values.extend(value.map(|value| (name, value)));
            }
        }
        (device.name.clone(), values)
    };
    bus.efa_devices().map(read).collect()
}

/// The counters of a software device, by the driver's names.
pub fn software(counters: &soft::Counters) -> Values {
    counters.of_the_driver().map(|(name, value)| (name.to_owned(), value)).into()
}

/// Two software devices of this process, and a thread that pings between them, so that there is something to count:
/// what they count is theirs alone, and no other process sees it.
#[derive(Debug)]
pub struct Traffic {
    devices: Vec<efa_os::soft::Device>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    /// Opens them, and begins.
    ///
    /// # Errors
    /// What opening them answers.
    pub fn start() -> Result<Self, Fault> {
        let devices = efa_os::soft::Options::from_environment().devices(2).open()?;
        let contexts = [0, 1].map(|nth| Context::open(devices[nth].clone()));
        let (mut a, mut b) = (Pinger::open(&contexts[0])?, Pinger::open(&contexts[1])?);
        let (to_b, to_a) = introduce(&a.endpoint, &b.endpoint)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) && a.ping(&to_b, || b.answer(&to_a).map(drop)).is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        Ok(Self { devices, stop, thread: Some(thread) })
    }

    /// Their counters now.
    pub fn read(&self) -> Sample {
        self.devices.iter().map(|device| (device.name().to_owned(), software(&device.model().counters()))).collect()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What happened between two samples, the worst first.
pub fn judge(before: &Sample, after: &Sample) -> Vec<Judgement> {
    let mut found = Vec::new();
    for (device, values) in after {
        let Some(earlier) = before.get(device) else { continue };
        for (counter, value) in values {
            let Some(was) = earlier.get(counter) else { continue };
            let of = |severity, meaning: &str| Judgement {
                device: device.clone(),
                counter: counter.clone(),
                rise: value.saturating_sub(*was),
                severity,
                meaning: meaning.to_owned(),
            };
            if value < was {
                found.push(of(Severity::Note, "it went back: the device was reset"));
                continue;
            }
            let rise = value - was;
            match COUNTERS.iter().find(|(name, ..)| name == counter).map(|(.., sort)| sort) {
                _ if rise == 0 => {}
                None | Some(Sort::Traffic) => {}
                Some(Sort::Fault(severity, meaning)) => found.push(of(*severity, meaning)),
                Some(Sort::Again) => {
                    let sent = difference(earlier, values, "tx_pkts");
                    let many = rise.saturating_mul(OFTEN) > sent;
                    let (severity, how) = if many {
                        (Severity::Warning, "many: the network or the peer is in trouble")
                    } else {
                        (Severity::Note, "few, which is normal")
                    };
                    found.push(of(severity, &format!("of {sent} packets {rise} were sent again: {how}")));
                }
            }
        }
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.severity));
    found
}

fn difference(before: &Values, after: &Values, counter: &str) -> u64 {
    let of = |values: &Values| values.get(counter).copied().unwrap_or(0);
    of(after).saturating_sub(of(before))
}

/// A row for each device: what went through it between two samples, and what went wrong.
pub fn summary(before: &Sample, after: &Sample, time: Duration) -> String {
    let mut table =
        Table::new(["device", "sent", "received", "packets sent", "read", "written", "again", "dropped", "errors"]);
    for (device, values) in after {
        let empty = Values::new();
        let earlier = before.get(device).unwrap_or(&empty);
        let rise = |counter: &str| difference(earlier, values, counter);
        let bits = |counter| Rate::of(rise(counter), time).map_or("-".into(), |rate| rate.bits().to_string());
        let each = |counter| Rate::of(rise(counter), time).map_or("-".into(), |rate| rate.operations().to_string());
        let errors: u64 = values.keys().filter(|name| name.ends_with("_err")).map(|name| rise(name)).sum();
        table.row([
            device.clone(),
            bits("tx_bytes"),
            bits("rx_bytes"),
            each("tx_pkts"),
            bits("rdma_read_bytes"),
            bits("rdma_write_bytes"),
            rise("retrans_pkts").to_string(),
            rise("rx_drops").to_string(),
            errors.to_string(),
        ]);
    }
    let mut text = table.to_string();
    for one in judge(before, after) {
        let severity = match one.severity {
            Severity::Problem => "problem",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        text += &format!("{severity:<8} {} {} +{}: {}\n", one.device, one.counter, one.rise, one.meaning);
    }
    text
}

/// Each counter of each device: its value, its rate, what it counts.
pub fn all(before: &Sample, after: &Sample, time: Duration) -> String {
    let mut text = String::new();
    for (device, values) in after {
        text += &format!("\n{device}\n");
        let empty = Values::new();
        let earlier = before.get(device).unwrap_or(&empty);
        for (counter, value) in values {
            let rate = Rate::of(difference(earlier, values, counter), time);
            let rate = rate.map_or("-".into(), |rate| rate.operations().to_string());
            let what = described(counter).unwrap_or("not known to this tool");
            text += &format!("  {counter:<28} {value:>20} {rate:>12}  {what}\n");
        }
        if values.is_empty() {
            text += "  no counters: the driver has none, or this is a software device of another process\n";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[(&str, u64)]) -> Sample {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        [("rdmap0s6".to_owned(), values)].into()
    }

    fn judged(before: &[(&str, u64)], after: &[(&str, u64)]) -> Vec<(Severity, String)> {
        judge(&sample(before), &sample(after)).into_iter().map(|one| (one.severity, one.meaning)).collect()
    }

    #[test]
    fn a_rise_is_judged_by_what_it_means_and_traffic_is_none() {
        assert_eq!(judged(&[("tx_bytes", 1), ("cmds_err", 7)], &[("tx_bytes", 9), ("cmds_err", 7)]), []);
        for (counter, severity, part) in [
            ("rdma_read_wr_err", Severity::Problem, "reads failed"),
            ("unresponsive_remote_events", Severity::Problem, "stopped answering"),
            ("rx_drops", Severity::Warning, "do not keep up"),
            ("impaired_remote_conn_events", Severity::Warning, "limited in its rate"),
            ("retrans_timeout_events", Severity::Note, "another path"),
            ("reg_mr_err", Severity::Warning, "RLIMIT_MEMLOCK"),
        ] {
            let found = judged(&[(counter, 5)], &[(counter, 6)]);
            assert!(
                matches!(&found[..], [(is, text)] if *is == severity && text.contains(part)),
                "{counter}: {found:?}"
            );
        }
    }

    #[test]
    fn packets_sent_again_are_judged_by_how_many_were_sent() {
        let found = judged(&[("tx_pkts", 0), ("retrans_pkts", 0)], &[("tx_pkts", 10_000), ("retrans_pkts", 100)]);
        assert_eq!(found[0].0, Severity::Note);
        let found = judged(&[("tx_pkts", 0), ("retrans_pkts", 0)], &[("tx_pkts", 10_000), ("retrans_pkts", 101)]);
        assert_eq!(found[0].0, Severity::Warning);
    }

    #[test]
    fn a_counter_that_went_back_is_a_reset_and_the_worst_comes_first() {
        let found = judged(&[("tx_bytes", 9), ("cmds_err", 0)], &[("tx_bytes", 1), ("cmds_err", 1)]);
        assert_eq!(found[0].0, Severity::Warning);
        assert!(found[1].1.contains("reset"), "{found:?}");
    }

    #[test]
    fn a_software_device_counts_by_names_that_are_known_here() {
        let values = software(&soft::Counters { tx_bytes: 7, ..Default::default() });
        assert_eq!(values["tx_bytes"], 7);
        assert!(values.keys().all(|name| described(name).is_some()));
    }

    #[test]
    fn the_summary_has_rates_and_what_went_wrong() {
        let before = sample(&[("tx_bytes", 0), ("rx_drops", 0)]);
        let after = sample(&[("tx_bytes", 2_500_000_000), ("rx_drops", 3)]);
        let text = summary(&before, &after, Duration::from_secs(2));
        assert!(text.contains("10 Gb/s") && text.contains("warning  rdmap0s6 rx_drops +3"), "{text}");
        let text = all(&before, &after, Duration::from_secs(2));
        assert!(text.contains("2500000000") && text.contains("packets dropped"), "{text}");
    }
}
