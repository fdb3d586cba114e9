//! The two sides in two programs.
//!
//! Side A connects and leads: it says what to run. B listens and takes what A says; it is ready for each case before A
//! starts it, which it says over the channel, as what went wrong on either side is said there.

use std::time::{Duration, Instant};

use efa_core::connect::Side;
use efa_core::peer::RemoteWindow;
use efa_core::qp::{SendOnly, Srd};
use efa_core::{Caps, Context, Limits, Provider};

use super::case::{Operation, Schedule};
use super::initiator::Initiator;
use super::kind::{Common, Kind, SendRead};
use super::port::{Memory, Port};
use super::responder::Responder;
use super::{DEPTH, Options, Plan, Row};
use crate::exchange::{Channel, ExchangeError, Tcp, introduce, recv_text, send_text, swap_grants};
use crate::fault::Fault;

/// Empty polls between two looks at the channel, where the other side says why it failed.
const POLLS: u32 = 1 << 14;
/// With nothing for so long, something is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// How programs that speak this are told from others.
const MAGIC: [u8; 8] = *b"pingpo\x00\x01";
/// Bytes of what a side says of itself.
const GREETING: usize = 64;

/// What each side says first: what it has, and, of A, what to run.
#[derive(Debug, Clone, Copy)]
struct Greeting {
    caps: Caps,
    limits: [u32; 3],
    iterations: u32,
    max_size: u64,
    seed: u64,
}

impl Greeting {
    fn of<P: Provider>(context: &Context<P>, options: &Options) -> Self {
        let limits = context.limits();
        Self {
            caps: context.caps(),
            limits: [limits.max_msg_size, limits.max_rdma_size, limits.max_inline.into()],
            iterations: options.iterations,
            max_size: options.max_size as u64,
            seed: options.seed,
        }
    }

    fn to_bytes(self) -> [u8; GREETING] {
        let mut bytes = [0; GREETING];
        let numbers = [
            u64::from(self.caps.bits()),
            self.limits[0].into(),
            self.limits[1].into(),
            self.limits[2].into(),
            self.iterations.into(),
            self.max_size,
            self.seed,
        ];
        bytes[..8].copy_from_slice(&MAGIC);
        for (place, number) in bytes[8..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn parse(bytes: [u8; GREETING]) -> Result<Self, Fault> {
        let (magic, rest) = bytes.split_at(8);
        if magic != MAGIC {
            return Err(Fault::Protocol("it is no pingpong of this version".into()));
        }
        let mut numbers = rest.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
        let mut number = || numbers.next().unwrap_or_default();
        let small = |number: u64| {
            u32::try_from(number).map_err(|_| Fault::Protocol(format!("{number} is beyond any limit of a device")))
        };
        Ok(Self {
            caps: Caps::from_bits_truncate(small(number())?),
            limits: [small(number())?, small(number())?, small(number())?],
            iterations: small(number())?,
            max_size: number(),
            seed: number(),
        })
    }

    /// What both have of what limits a case.
    fn within(&self, limits: &Limits) -> Limits {
        let [message, rdma, inline] = self.limits;
        let mut limits = *limits;
        limits.max_msg_size = limits.max_msg_size.min(message);
        limits.max_rdma_size = limits.max_rdma_size.min(rdma);
        limits.max_inline = limits.max_inline.min(u16::try_from(inline).unwrap_or(u16::MAX));
        limits
    }
}

fn greet(channel: &mut Tcp, ours: Greeting) -> Result<Greeting, Fault> {
    channel.send(&ours.to_bytes())?;
    let mut bytes = [0; GREETING];
    channel.recv(&mut bytes)?;
    Greeting::parse(bytes)
}

/// Runs the cases that both devices have as side A, with a program at the other end of the channel that calls [`respond`];
/// `begun` hears how many cases there are, `done` sees each row.
///
/// # Errors
/// The first [`Fault`] on either side; that of the other side as it says it.
pub fn lead<P: Provider>(
    options: &Options,
    context: Context<P>,
    channel: &mut Tcp,
    begun: impl FnOnce(usize),
    done: impl FnMut(&Row),
) -> Result<Vec<Row>, Fault> {
    let theirs = greet(channel, Greeting::of(&context, options))?;
    let device = context.provider().clone();
    let led = match Common::of(context.caps() & theirs.caps) {
        Common::All => lead_as::<P, Srd>(options, context, theirs, channel, begun, done),
        Common::SendRead => lead_as::<P, SendRead>(options, context, theirs, channel, begun, done),
        Common::SendOnly => lead_as::<P, SendOnly>(options, context, theirs, channel, begun, done),
    };
    told(channel, &device, led)
}

/// Answers as side B until side A is done; how many cases that were.
///
/// # Errors
/// As [`lead`].
pub fn respond<P: Provider>(context: Context<P>, corrupt: bool, channel: &mut Tcp) -> Result<usize, Fault> {
    let operations = Operation::ALL.to_vec();
    let ours = Options { operations, iterations: 0, max_size: 0, seed: 0, corrupt, threads: false };
    let theirs = greet(channel, Greeting::of(&context, &ours))?;
    let max_size = usize::try_from(theirs.max_size).unwrap_or(usize::MAX).max(1);
    let options = Options { iterations: theirs.iterations, max_size, seed: theirs.seed, ..ours };
    let device = context.provider().clone();
    let responded = match Common::of(context.caps() & theirs.caps) {
        Common::All => respond_as::<P, Srd>(&options, context, theirs, channel),
        Common::SendRead => respond_as::<P, SendRead>(&options, context, theirs, channel),
        Common::SendOnly => respond_as::<P, SendOnly>(&options, context, theirs, channel),
    };
    told(channel, &device, responded)
}

/// The end of a side: says how it went, and hears how the other one did, whose fault may be the cause.
fn told<T>(channel: &mut Tcp, device: &impl Provider, outcome: Result<T, Fault>) -> Result<T, Fault> {
    // That the other side failed it knows itself.
    let ours = outcome.as_ref().err().filter(|fault| !matches!(fault, Fault::OtherSide | Fault::Told(_)));
    let text = ours.map(Fault::to_string).unwrap_or_default();
    let said = send_text(channel, &text);
    if matches!(outcome, Err(Fault::Told(_))) {
        return outcome;
    }
    match (outcome, said.and_then(|()| hear(channel, device))) {
        // What is only that the other side failed gives way to why.
        (Err(Fault::OtherSide | Fault::Stalled { .. } | Fault::Exchange(_)), Ok(text)) if !text.is_empty() => {
            Err(Fault::Told(text))
        }
        (Err(fault), _) => Err(fault),
        (Ok(_), Err(error)) => Err(error.into()),
        (Ok(_), Ok(text)) if !text.is_empty() => Err(Fault::Told(text)),
        (Ok(value), Ok(_)) => Ok(value),
    }
}

/// What A says before a case, and B when it is ready for it, and A after the last; anything else is why there will be none.
/// While a case runs nobody says anything unless it fails.
const NEXT: &str = "next";
const READY: &str = "ready";
const DONE: &str = "done";

fn expect(channel: &mut Tcp, device: &impl Provider, expected: &str) -> Result<(), Fault> {
    let said = hear(channel, device)?;
    if said == expected { Ok(()) } else { Err(Fault::Told(said)) }
}

/// Waits for a text. A software device does nothing unless it is driven: not even what the other side waits for before
/// it says something.
fn hear(channel: &mut Tcp, device: &impl Provider) -> Result<String, ExchangeError> {
    let begun = Instant::now();
    while !channel.has_news() && begun.elapsed() < channel.timeout() {
        device.progress();
    }
    recv_text(channel)
}

/// A side that is introduced, with its memory and the window on the other's.
struct Ready<P: Provider, K: Kind> {
    side: Side<P, K>,
    memory: Memory<K>,
    window: Option<RemoteWindow<K::Access>>,
}

fn introduced<P: Provider, K: Kind>(
    context: Context<P>,
    largest: usize,
    channel: &mut Tcp,
) -> Result<Ready<P, K>, Fault> {
    let pd = context.alloc_pd()?;
    let mut endpoint = pd.endpoint(context.require::<K>()?, DEPTH)?;
    let memory = Memory::new(&context, &pd, &mut endpoint, largest)?;
    let peer = introduce(&endpoint, channel)?;
    let window = match &memory.shared {
        Some(shared) => Some(swap_grants(&endpoint, &peer, shared, channel)?),
        None => None,
    };
    Ok(Ready { side: Side { endpoint, peer, pd, ctx: context }, memory, window })
}

fn lead_as<P: Provider, K: Kind>(
    options: &Options,
    context: Context<P>,
    theirs: Greeting,
    channel: &mut Tcp,
    begun: impl FnOnce(usize),
    mut done: impl FnMut(&Row),
) -> Result<Vec<Row>, Fault> {
    let plan = Plan::new::<K>(options, &theirs.within(&context.limits()));
    let Ready { mut side, mut memory, window } = introduced::<P, K>(context, plan.largest(), channel)?;
    begun(plan.cases.len());
    let mut rows = Vec::new();
    for case in plan.cases() {
        send_text(channel, NEXT)?;
        expect(channel, side.ctx.provider(), READY)?;
        let mut polls = 0_u32;
        let schedule = Schedule::new(case, options.iterations);
        let mut initiator = Initiator::new(Port::new(&mut side, &mut memory, window, case)?, schedule);
        let measured = initiator.run(|_| {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS) && channel.has_news() { Err(Fault::OtherSide) } else { Ok(()) }
        })?;
        initiator.end()?;
        let row = measured.row(case);
        done(&row);
        rows.push(row);
    }
    send_text(channel, DONE)?;
    Ok(rows)
}

fn respond_as<P: Provider, K: Kind>(
    options: &Options,
    context: Context<P>,
    theirs: Greeting,
    channel: &mut Tcp,
) -> Result<usize, Fault> {
    let plan = Plan::new::<K>(options, &theirs.within(&context.limits()));
    let Ready { mut side, mut memory, window } = introduced::<P, K>(context, plan.largest(), channel)?;
    for case in plan.cases() {
        expect(channel, side.ctx.provider(), NEXT)?;
        let schedule = Schedule::new(case, options.iterations);
        let mut responder = Responder::new(Port::new(&mut side, &mut memory, window, case)?, schedule)?;
        send_text(channel, READY)?;
        let (mut polls, mut last, mut since) = (0_u32, None, Instant::now());
        while let Some(round) = responder.awaited() {
            responder.step()?;
            responder.settle()?;
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS) {
                if channel.has_news() {
                    return Err(Fault::OtherSide);
                }
                if last != Some(round) {
                    (last, since) = (Some(round), Instant::now());
                } else if since.elapsed() > PATIENCE {
                    return Err(Fault::Stalled { waiting: "the other side's next operation" });
                }
            }
        }
        responder.end()?;
    }
    expect(channel, side.ctx.provider(), DONE)?;
    Ok(plan.cases.len())
}
