//! Two fabrics, one program: a buffer that was never registered, over `efa-direct` and over `efa`.
//!
//! The report that this is about: puts from a plain buffer worked over `efa`, and failed over `efa-direct` with EINVAL, for no
//! reason that the caller could see. Here the first is a program, and the second does not compile.
//!
//! ```text
//! cargo run --release -p efa-examples --bin fabrics -- [--fabric efa|efa-direct]
//! ```
//!
//! Without `--fabric` the environment says which: `EFA_FABRIC`, or `NVSHMEM_DISABLE_LIBFABRIC_EFA_DIRECT`.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use efa_core::connect::{Side, connect};
use efa_core::fabric::{Choice, Efa, EfaDirect, Event, Fabric, Memory, Messages, Options, PeerId, Why};
use efa_core::qp::{Depth, Srd};
use efa_core::soft::{Profile, SoftDevice};
use efa_core::{Context, Token};

const ROUNDS: u64 = 1000;
const SHORT: usize = 4096;
const LONG: usize = 1 << 20;
const PACKET: usize = 4096;

/// Sends one buffer again and again, over either fabric.
#[derive(Parser)]
struct Arguments {
    /// The application's own choice, which is above the environment's.
    #[arg(long)]
    fabric: Option<Named>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Named {
    Efa,
    EfaDirect,
}

/// Over `efa` sources and targets are plain, or registered.
type Plain = Efa<SoftDevice, Srd, Vec<u8>, Vec<u8>>;

/// The program, once for both fabrics: the same source goes to the same target, round after round.
fn rounds<M: Messages>(
    from: &mut M,
    to: &mut M,
    peer: PeerId,
    mut source: M::Source,
    mut target: M::Target,
) -> Result<(M::Source, M::Target), Why> {
    let mut now = 0;
    for round in 0..ROUNDS {
        // What is posted is gone, until its event gives it back.
        to.recv(target, Token(round))?;
        from.send(peer, source, Token(round))?;
        let (mut sent, mut received) = (None, None);
        while sent.is_none() || received.is_none() {
            now += 1;
            match from.poll(now) {
                Some(Event::Sent { source, .. }) => sent = Some(source),
                Some(Event::Failed { why, .. }) => return Err(why),
                _ => {}
            }
            match to.poll(now) {
                Some(Event::Received { target, .. }) => received = Some(target),
                Some(Event::Failed { why, .. }) => return Err(why),
                _ => {}
            }
        }
        let (Some(back), Some(full)) = (sent, received) else { return Err(Why::Closed) };
        (source, target) = (back, full);
    }
    Ok((source, target))
}

fn direct([a, b]: [Side<SoftDevice>; 2]) -> Result<(), Why> {
    println!("a plain buffer: does not compile over efa-direct, where C's libraries answer EINVAL at the post:");
    println!("  error: `Vec<u8>` is not registered memory, which is all that `efa-direct` takes (R15)");
    println!("  note: register the memory once, `pd.register(memory)?`, and use the slice again and again");
    let (source, target) = (a.pd.register(vec![7; SHORT])?.1, b.pd.register(vec![0; SHORT])?.1);
    let (mut from, mut to) = (EfaDirect::<_, Srd>::new(a.endpoint), EfaDirect::<_, Srd>::new(b.endpoint));
    let peer = from.add(a.peer)?;
    let (source, target) = rounds(&mut from, &mut to, peer, source, target)?;
    println!(
        "the same buffer, registered once: {ROUNDS} messages of {SHORT} bytes, equal: {}",
        source[..] == target[..]
    );
    if let Some(registrations) = a.pd.registrations() {
        println!("what that cost the sender: {registrations}, which it can use for as long as it lives");
    }
    let long = a.pd.register(vec![7; LONG])?.1;
    if let Err(refused) = from.send(peer, long, Token(0)) {
        println!("a message of 1 MiB: {}", refused.error());
    }
    Ok(())
}

fn efa([a, b]: [Side<SoftDevice>; 2]) -> Result<(), Why> {
    let memory = || vec![0; Plain::memory(PACKET, 16)];
    let (slots, others) = (a.pd.register(memory())?.1, b.pd.register(memory())?.1);
    let options = Options::new(PACKET);
    let mut from = Plain::new(a.endpoint, slots, options)?;
    let mut to = Plain::new(b.endpoint, others, options)?;
    let peer = from.add(a.peer)?;
    to.add(b.peer)?;
    let plain = |byte, len| Memory::Plain(vec![byte; len]);
    let (source, target) = rounds(&mut from, &mut to, peer, plain(7, SHORT), plain(0, SHORT))?;
    let equal = source.into_plain() == target.into_plain();
    println!("a plain buffer: {ROUNDS} messages of {SHORT} bytes, equal: {equal}");
    let (source, target) = rounds(&mut from, &mut to, peer, plain(9, LONG), plain(0, LONG))?;
    let equal = source.into_plain() == target.into_plain();
    println!("a plain buffer: {ROUNDS} messages of 1 MiB, equal: {equal}");
    let (source, target) = (a.pd.register(vec![7; SHORT])?.1, b.pd.register(vec![0; SHORT])?.1);
    rounds(&mut from, &mut to, peer, source.into(), target.into())?;
    println!("the program of efa-direct, with registered buffers: {ROUNDS} messages of {SHORT} bytes");
    if let Some(registrations) = a.pd.registrations() {
        println!("what registration cost the sender: {registrations}, for slots and that buffer");
    }
    println!("what it costs besides: {} MiB copied by the sender's CPU", from.counters().copied >> 20);
    Ok(())
}

fn run(choice: Choice) -> Result<(), Why> {
    println!("the fabric is {choice}");
    let device = SoftDevice::new(Profile::RDMA);
    let contexts = [Context::open(device.clone()), Context::open(device.neighbour()?)];
    let sides = connect(contexts, Depth::new(64, Plain::receives()))?;
    match choice.fabric() {
        Fabric::EfaDirect => direct(sides),
        Fabric::Efa => efa(sides),
    }
}

fn main() -> ExitCode {
    let chosen = match Arguments::parse().fabric {
        Some(Named::Efa) => Ok(Choice::of(Fabric::Efa)),
        Some(Named::EfaDirect) => Ok(Choice::of(Fabric::EfaDirect)),
        None => efa_os::fabric(),
    };
    let done = match chosen {
        Ok(choice) => run(choice).map_err(|why| why.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}
