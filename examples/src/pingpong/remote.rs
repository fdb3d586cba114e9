//! The two sides in two programs.
//!
//! Side A connects and leads: it says what to run. B listens and takes what A says; it is ready for each case before A
//! starts it, which it says over the channel, as what went wrong on either side is said there.

use std::time::Instant;

use efa_core::connect::Side;
use efa_core::peer::RemoteWindow;
use efa_core::qp::{SendOnly, Srd};
use efa_core::{Caps, Context, Limits, Provider};

use super::case::Schedule;
use super::initiator::Initiator;
use super::kind::{Common, Kind, SendRead};
use super::port::{Memory, Port};
use super::responder::Responder;
use super::{DEPTH, Options, PATIENCE, Plan, Row};
use crate::exchange::{Channel, Tcp, conclude, expect, introduce, send_text, swap_grants};
use crate::fault::Fault;

/// Empty polls between two looks at the channel, where the other side says why it failed.
const POLLS: u32 = 1 << 14;
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

    /// No sizes beyond those of either side.
    fn limit(&self, options: &Options) -> Options {
        let max_size = usize::try_from(self.max_size).unwrap_or(usize::MAX);
        Options { max_size: options.max_size.min(max_size).max(1), ..options.clone() }
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
    let options = &theirs.limit(options);
    match Common::of(context.caps() & theirs.caps) {
        Common::All => as_side::<P, Srd, _>(options, context, theirs, channel, Lead { begun, done }),
        Common::SendRead => as_side::<P, SendRead, _>(options, context, theirs, channel, Lead { begun, done }),
        Common::SendOnly => as_side::<P, SendOnly, _>(options, context, theirs, channel, Lead { begun, done }),
    }
}

/// Answers as side B until side A is done; how many cases that were. Iterations and seed are A's; sizes are those that both
/// allow; operations are to be the same.
///
/// # Errors
/// As [`lead`].
pub fn respond<P: Provider>(options: &Options, context: Context<P>, channel: &mut Tcp) -> Result<usize, Fault> {
    let theirs = greet(channel, Greeting::of(&context, options))?;
    let options = theirs.limit(&Options { iterations: theirs.iterations, seed: theirs.seed, ..options.clone() });
    match Common::of(context.caps() & theirs.caps) {
        Common::All => as_side::<P, Srd, _>(&options, context, theirs, channel, Respond),
        Common::SendRead => as_side::<P, SendRead, _>(&options, context, theirs, channel, Respond),
        Common::SendOnly => as_side::<P, SendOnly, _>(&options, context, theirs, channel, Respond),
    }
}

/// What A says before a case, and B when it is ready for it, and A after the last; anything else is why there will be none.
/// While a case runs nobody says anything unless it fails.
const NEXT: &str = "next";
const READY: &str = "ready";
const DONE: &str = "done";

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

/// What a side does, of whichever kind its queue pair is.
trait Role {
    type Outcome;

    fn run<P: Provider, K: Kind>(
        self,
        ready: &mut Ready<P, K>,
        plan: &Plan,
        iterations: u32,
        channel: &mut Tcp,
    ) -> Result<Self::Outcome, Fault>;
}

fn as_side<P: Provider, K: Kind, R: Role>(
    options: &Options,
    context: Context<P>,
    theirs: Greeting,
    channel: &mut Tcp,
    role: R,
) -> Result<R::Outcome, Fault> {
    let device = context.provider().clone();
    let plan = Plan::new::<K>(options, &theirs.within(&context.limits()));
    // It lives until the other side is done, too, which may wait for an answer of this device.
    let mut kept = None;
    let outcome = introduced(context, plan.largest(), channel)
        .and_then(|ready| role.run::<P, K>(kept.insert(ready), &plan, options.iterations, channel));
    conclude(channel, &device, outcome)
}

struct Lead<B, D> {
    begun: B,
    done: D,
}

impl<B: FnOnce(usize), D: FnMut(&Row)> Role for Lead<B, D> {
    type Outcome = Vec<Row>;

    fn run<P: Provider, K: Kind>(
        mut self,
        Ready { side, memory, window }: &mut Ready<P, K>,
        plan: &Plan,
        iterations: u32,
        channel: &mut Tcp,
    ) -> Result<Vec<Row>, Fault> {
        (self.begun)(plan.cases.len());
        let mut rows = Vec::new();
        for case in plan.cases() {
            send_text(channel, NEXT)?;
            expect(channel, side.ctx.provider(), READY)?;
            let mut polls = 0_u32;
            let schedule = Schedule::new(case, iterations);
            let mut initiator = Initiator::new(Port::new(side, memory, *window, case)?, schedule);
            let measured = initiator.run(|_| {
                polls = polls.wrapping_add(1);
                if polls.is_multiple_of(POLLS) && channel.has_news() { Err(Fault::OtherSide) } else { Ok(()) }
            })?;
            initiator.end()?;
            let row = measured.row(case);
            (self.done)(&row);
            rows.push(row);
        }
        send_text(channel, DONE)?;
        Ok(rows)
    }
}

struct Respond;

impl Role for Respond {
    type Outcome = usize;

    fn run<P: Provider, K: Kind>(
        self,
        Ready { side, memory, window }: &mut Ready<P, K>,
        plan: &Plan,
        iterations: u32,
        channel: &mut Tcp,
    ) -> Result<usize, Fault> {
        for case in plan.cases() {
            expect(channel, side.ctx.provider(), NEXT)?;
            let schedule = Schedule::new(case, iterations);
            let mut responder = Responder::new(Port::new(side, memory, *window, case)?, schedule)?;
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
            responder.end(PATIENCE)?;
        }
        expect(channel, side.ctx.provider(), DONE)?;
        Ok(plan.cases.len())
    }
}
