//! Live probes: what no file says. On one host, traffic of each device to itself and registrations; between two, a
//! ping.

use std::time::{Duration, Instant};

use efa_core::connect::introduce;
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, SendOnly, Solicited};
use efa_core::work::Event;
use efa_core::{Context, Provider, Token};
use efa_cuda::{Allocation, Driver};

use super::doctor::{Outcome, Severity, Verdict};
use crate::fault::Fault;
use crate::human::Time;
use crate::stats::Summary;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pings of a probe.
pub(super) const PINGS: u32 = 100;
/// Bytes of a receive.
const MESSAGE: usize = 64;
const DEPTH: Depth = Depth::new(16, 16);
/// Two pages, as libfabric tries it.
const PAGES: usize = 2 * 4096;

/// An endpoint that pings, or answers.
pub(super) struct Pinger<P: Provider> {
    pub(super) endpoint: Endpoint<P, SendOnly>,
}

impl<P: Provider> Pinger<P> {
    /// On this device, with its receives posted: a peer may send as soon as it knows it.
    pub(super) fn open(ctx: &Context<P>) -> Result<Self, Fault> {
        let pd = ctx.alloc_pd()?;
        let mut endpoint = pd.endpoint(ctx.require::<SendOnly>()?, DEPTH)?;
        let receives = endpoint.granted().recv as usize;
        let (_, mut rest) = pd.register(vec![0; receives * MESSAGE])?;
        for number in 0..receives {
            let (receive, after) = rest.split_at(MESSAGE)?;
            endpoint.post_recv(receive, Token(number as u64))?;
            rest = after;
        }
        Ok(Self { endpoint })
    }

    /// What came, if something did; its receive is posted again.
    fn took(&mut self) -> Result<bool, Fault> {
        match self.endpoint.poll() {
            None | Some(Event::Sent(_)) => Ok(false),
            Some(Event::Received(mut message)) => {
                let receive = message.buffers.take_slice().ok_or(Fault::Protocol("a message nowhere".into()))?;
                self.endpoint.post_recv(receive, message.token)?;
                Ok(true)
            }
            Some(Event::Failed { failure, .. }) => Err(failure.into()),
            Some(event) => Err(Fault::Protocol(format!("an event that nothing here asks for: {event:?}"))),
        }
    }

    fn send(&mut self, to: &Peer<Mutual, Solicited>) -> Result<(), Fault> {
        Ok(self.endpoint.post(to.send_inline(b"ping"), Token(0))?)
    }

    /// Sends, waits for the answer, so often; half of each way there and back. `meanwhile` drives what else must be.
    pub(super) fn ping(
        &mut self,
        to: &Peer<Mutual, Solicited>,
        mut meanwhile: impl FnMut() -> Result<(), Fault>,
    ) -> Result<Summary<Duration>, Fault> {
        let mut times = Vec::new();
        for _ in 0..PINGS {
            let begun = Instant::now();
            self.send(to)?;
            while !self.took()? {
                meanwhile()?;
                if begun.elapsed() > PATIENCE {
                    return Err(Fault::Stalled { waiting: "an answer to a ping" });
                }
            }
            times.push(begun.elapsed() / 2);
        }
        Summary::of(&mut times).ok_or(Fault::Stalled { waiting: "a ping" })
    }

    /// Answers what has come; whether something had.
    pub(super) fn answer(&mut self, to: &Peer<Mutual, Solicited>) -> Result<bool, Fault> {
        let came = self.took()?;
        if came {
            self.send(to)?;
        }
        Ok(came)
    }

    /// Answers so many pings.
    pub(super) fn answer_all(&mut self, to: &Peer<Mutual, Solicited>) -> Result<(), Fault> {
        let mut begun = Instant::now();
        let mut answered = 0;
        while answered < PINGS {
            if self.answer(to)? {
                (answered, begun) = (answered + 1, Instant::now());
            } else if begun.elapsed() > PATIENCE {
                return Err(Fault::Stalled { waiting: "a ping" });
            }
        }
        Ok(())
    }
}

/// Tries each EFA of this machine: registers memory, and sends to itself; and GPU memory, where there is a GPU.
pub fn host() -> Vec<Outcome> {
    let devices = match efa_os::devices() {
        Ok(devices) => devices,
        Err(error) => {
            let verdict = Verdict::Unknown { why: error.to_string(), ask: None };
            return vec![outcome("probe-traffic", "each EFA reaches itself", verdict)];
        }
    };
    let mut found = Vec::new();
    for device in &devices {
        let name = Provider::name(device).to_owned();
        found.push(outcome("probe-register", "two pages can be registered", tried(&name, register(device))));
        found.push(outcome("probe-traffic", "the EFA reaches itself", tried(&name, itself(device))));
    }
    if let Some(device) = devices.first() {
        found.extend(gpus(device));
    }
    found
}

fn outcome(id: &str, title: &str, verdict: Verdict) -> Outcome {
    Outcome::new("probe", id, title, Severity::Problem, verdict)
}

fn tried(name: &str, result: Result<String, Fault>) -> Verdict {
    match result {
        Ok(text) => Verdict::Fine(format!("{name}: {text}")),
        Err(fault) => Verdict::Found {
            found: format!("{name}: {fault}"),
            expected: "that it works".to_owned(),
            remedy: "what the error says; then the checks above".to_owned(),
            severity: None,
        },
    }
}

fn register(device: &efa_os::Device) -> Result<String, Fault> {
    let ctx = Context::open(device.clone());
    let begun = Instant::now();
    let (_region, _memory) = ctx.alloc_pd()?.register(vec![0; PAGES])?;
    Ok(format!("in {}", Time(begun.elapsed())))
}

fn itself(device: &efa_os::Device) -> Result<String, Fault> {
    let contexts = [device.clone(), device.clone()].map(Context::open);
    let (mut a, mut b) = (Pinger::open(&contexts[0])?, Pinger::open(&contexts[1])?);
    let (to_b, to_a) = introduce(&a.endpoint, &b.endpoint)?;
    let times = a.ping(&to_b, || b.answer(&to_a).map(drop))?;
    Ok(format!("{PINGS} pings, half of the way in {} (median)", Time(times.p50)))
}

/// GPU memory as dma-bufs; by its address nobody registers it here.
fn gpus(device: &efa_os::Device) -> Vec<Outcome> {
    let (id, title) = ("probe-gpu", "GPU memory can be registered as a dma-buf");
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(error) => return vec![outcome(id, title, Verdict::Moot(format!("no CUDA: {error}")))],
    };
    let gpus = match driver.devices() {
        Ok(gpus) => gpus,
        Err(error) => return vec![outcome(id, title, Verdict::Unknown { why: error.to_string(), ask: None })],
    };
    let ctx = Context::open(device.clone());
    let mut found = Vec::new();
    for gpu in gpus {
        let name = format!("GPU {}", gpu.ordinal());
        let register = || -> Result<String, Box<dyn std::error::Error>> {
            let pd = ctx.alloc_pd()?;
            let primary = gpu.primary()?;
            let (_region, _memory) = driver.register(&pd, Allocation::new(&primary, PAGES)?)?;
            Ok("two pages".to_owned())
        };
        let result = register().map_err(|error| Fault::Protocol(error.to_string()));
        found.push(outcome(id, title, tried(&name, result)));
    }
    found
}
