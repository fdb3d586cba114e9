//! `efa doctor --with HOST`: two hosts tell each other what they are, and ping each other both ways.
//!
//! Over TCP each side says a greeting, its report as JSON, and whether it has a device. Then the two endpoints are
//! introduced; the side that connected pings first. What the other side says is data: it is bounded, and shown
//! without control characters.

use efa_core::Context;
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::Solicited;
use efa_os::{AnyDevice, Choice, soft};

use super::compare::compare;
use super::doctor::{Outcome, Report, Severity, Style, Verdict, outcomes_text};
use super::probe::{PINGS, Pinger};
use crate::device::Kind;
use crate::exchange::{Channel, ExchangeError, Tcp, hear, introduce, recv_text, send_text};
use crate::fault::Fault;
use crate::human::Time;

/// How programs that speak this are told from others.
const MAGIC: [u8; 8] = *b"efadoc\x00\x01";
/// Bytes of a report at most.
const MOST: u32 = 1 << 20;
/// Where a doctor listens, unless it is told otherwise.
pub const PORT: u16 = 18_516;

/// What two hosts found of each other.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Met {
    /// The other side's report.
    pub theirs: Report,
    /// What does not fit, and the pings.
    pub between: Vec<Outcome>,
}

impl Met {
    /// As text.
    pub fn text(&self, style: Style) -> String {
        let line = format!("the other side: {}\n\n", self.theirs.host.line());
        let worst = self.theirs.worst().map_or(String::new(), |_| {
            let named = self.theirs.outcomes.iter().filter(|one| one.severity == Some(Severity::Problem));
            let named: Vec<_> = named.map(|one| format!("{}: {}", one.id, one.found)).collect();
            if named.is_empty() { String::new() } else { format!("its own problems: {}\n\n", named.join("; ")) }
        });
        line + &worst + &outcomes_text(&self.between, style)
    }

    /// The worst of what does not fit.
    pub fn worst(&self) -> Option<Severity> {
        self.between.iter().filter_map(|outcome| outcome.severity).max()
    }
}

/// An address with a port: the doctor's own, if none is said.
pub fn with_port(address: &str) -> String {
    let has = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')));
    match (has, address.contains(':') && !address.starts_with('[')) {
        (true, _) => address.to_owned(),
        (false, true) => format!("[{address}]:{PORT}"),
        (false, false) => format!("{address}:{PORT}"),
    }
}

/// Tells the other side, hears it, and pings both ways. `leads`: whether this side connected.
///
/// # Errors
/// That the other side is none of these, or says nothing in time. That a ping fails is an outcome.
pub fn meet(report: &Report, channel: &mut Tcp, leads: bool, kind: Option<Kind>) -> Result<Met, Fault> {
    channel.send(&MAGIC)?;
    let mut magic = [0; MAGIC.len()];
    channel.recv(&mut magic)?;
    if magic != MAGIC {
        return Err(Fault::Protocol("it is no doctor of this version".into()));
    }
    send_report(channel, report)?;
    let theirs = recv_report(channel)?;
    let mut between = compare(&report.host, &theirs.host);
    between.extend(pings(channel, leads, kind)?);
    Ok(Met { theirs, between })
}

fn send_report(channel: &mut Tcp, report: &Report) -> Result<(), Fault> {
    let bytes = serde_json::to_vec(report).map_err(|error| Fault::Protocol(error.to_string()))?;
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    channel.send(&len.to_le_bytes())?;
    Ok(channel.send(&bytes)?)
}

fn recv_report(channel: &mut Tcp) -> Result<Report, Fault> {
    let mut len = [0; 4];
    channel.recv(&mut len)?;
    let len = u32::from_le_bytes(len);
    if len > MOST {
        return Err(ExchangeError::TooLong { bytes: len, most: MOST }.into());
    }
    let mut bytes = vec![0; len as usize];
    channel.recv(&mut bytes)?;
    parsed(&bytes).map_err(|error| Fault::Protocol(format!("its report cannot be read: {error}")))
}

fn parsed(bytes: &[u8]) -> serde_json::Result<Report> {
    let mut value: serde_json::Value = serde_json::from_slice(bytes)?;
    printable(&mut value);
    serde_json::from_value(value)
}

/// Texts without what a terminal would obey.
fn printable(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = text.replace(char::is_control, "\u{FFFD}"),
        serde_json::Value::Array(values) => values.iter_mut().for_each(printable),
        serde_json::Value::Object(values) => values.values_mut().for_each(printable),
        _ => {}
    }
}

/// An EFA, unless the command line or the environment says software devices: a ping on those proves nothing of a
/// network.
fn open(kind: Option<Kind>) -> Result<Context<AnyDevice>, Fault> {
    let choice = match (kind, Choice::from_environment()?) {
        (Some(Kind::Soft), _) | (None, Choice::Soft) => Choice::Soft,
        _ => Choice::Efa,
    };
    let mut chosen = AnyDevice::choose(choice, &soft::Options::from_environment())?;
    Ok(Context::open(chosen.devices.swap_remove(0)))
}

fn pings(channel: &mut Tcp, leads: bool, kind: Option<Kind>) -> Result<Vec<Outcome>, Fault> {
    let opened = open(kind).and_then(|ctx| Ok((Pinger::open(&ctx)?, ctx)));
    let ours = opened.as_ref().err().map(Fault::to_string).unwrap_or_default();
    send_text(channel, &ours)?;
    let (mut pinger, ctx, theirs) = match opened {
        Err(_) => {
            let theirs = recv_text(channel)?;
            return Ok(vec![no_device(&ours, &theirs)]);
        }
        Ok((pinger, ctx)) => {
            let theirs = hear(channel, ctx.provider())?;
            (pinger, ctx, theirs)
        }
    };
    if !theirs.is_empty() {
        return Ok(vec![no_device(&ours, &theirs)]);
    }
    let peer = introduce(&pinger.endpoint, channel)?;
    let mut found = Vec::new();
    for out in [leads, !leads] {
        let (id, title) = if out {
            ("ping-out", "pings go from here to the other side, and their answers come")
        } else {
            ("ping-in", "pings come from the other side, and are answered")
        };
        let result = ping(&mut pinger, &peer, out);
        send_text(channel, &result.as_ref().err().map(Fault::to_string).unwrap_or_default())?;
        let theirs = hear(channel, ctx.provider())?;
        let verdict = match (result, theirs.as_str()) {
            (Ok(text), "") => Verdict::Fine(format!("{}: {text}", ctx.name())),
            (Ok(_), theirs) => failed(&format!("the other side says: {theirs}")),
            (Err(fault), _) => failed(&fault.to_string()),
        };
        found.push(Outcome::new("between", id, title, Severity::Problem, verdict));
    }
    Ok(found)
}

fn ping(pinger: &mut Pinger<AnyDevice>, peer: &Peer<Mutual, Solicited>, out: bool) -> Result<String, Fault> {
    if !out {
        pinger.answer_all(peer)?;
        return Ok(format!("{PINGS} answered"));
    }
    let times = pinger.ping(peer, || Ok(()))?;
    let [median, most] = [times.p50, times.max].map(|time| Time(time).to_string());
    Ok(format!("{PINGS} pings, half of the way there and back in {median} (median), {most} (longest)"))
}

fn failed(found: &str) -> Verdict {
    Verdict::Found {
        found: found.to_owned(),
        expected: "an answer to each".to_owned(),
        remedy: "rules for all traffic from and to the security group itself, in both directions, on both sides (H28: \
                 `efa doctor --explain security-group`); the same zone and network"
            .to_owned(),
        severity: None,
    }
}

fn no_device(ours: &str, theirs: &str) -> Outcome {
    let side = |name: &str, text: &str| (!text.is_empty()).then(|| format!("{name}: {text}"));
    let why: Vec<_> = [side("here", ours), side("there", theirs)].into_iter().flatten().collect();
    let verdict = Verdict::Unknown { why: why.join("; "), ask: None };
    Outcome::new("between", "ping-out", "the two sides reach each other", Severity::Problem, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_the_doctors_port_where_it_has_none() {
        for (address, expected) in [
            ("node7", "node7:18516"),
            ("node7:1", "node7:1"),
            ("10.0.0.7", "10.0.0.7:18516"),
            ("fe80::7", "[fe80::7]:18516"),
            ("[fe80::7]:5", "[fe80::7]:5"),
            ("[fe80::7]", "[fe80::7]:18516"),
        ] {
            assert_eq!(with_port(address), expected);
        }
    }

    #[test]
    fn what_the_other_side_says_is_shown_without_control_characters_or_refused() {
        let json = br#"{"version":"1","host":{"name":"a\u001b[2J"},"lists":[],"outcomes":[]}"#;
        assert_eq!(parsed(json).unwrap().host.name, "a\u{FFFD}[2J");
        assert!(parsed(b"{}").is_err() && parsed(b"\xff").is_err());
    }
}
