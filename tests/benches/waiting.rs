//! What waiting costs: two threads that answer each other, over two software devices as in two processes, and one that
//! waits for nobody.
//!
//! ```text
//! cargo bench -p efa-benches --bench waiting -- [--quick]
//! ```
//!
//! Each way of waiting has the time of half of the way there and back, and what a second of idleness takes of a processor. On
//! another device, an EFA or tests/softefa's, with `EFA_OS_DEVICES=efa`.
#![allow(missing_docs)]

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use efa_core::connect::introduce;
use efa_core::qp::Depth;
use efa_core::soft::Profile;
use efa_core::work::Event;
use efa_core::{Context, Token};
use efa_examples::describe::Description;
use efa_examples::fault::Fault;
use efa_examples::human::Time;
use efa_examples::service::Waiting;
use efa_examples::stats::Summary;
use efa_examples::table::Table;
use efa_examples::wait::{Adaptive, SPIN};
use efa_os::{AnyDevice, Choice, soft};

/// A way of waiting, and how long it polls before it sleeps.
const WAYS: [(&str, Duration); 3] =
    [("polls", Duration::MAX), ("polls, then sleeps", SPIN), ("sleeps", Duration::ZERO)];

fn main() -> ExitCode {
    let rounds = if std::env::args().any(|argument| argument == "--quick") { 2_000 } else { 20_000 };
    match run(rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run(rounds: u32) -> Result<(), Fault> {
    let choice = match Choice::from_environment()? {
        Choice::EfaElseSoft => Choice::Soft,
        choice => choice,
    };
    let fabric = format!("waiting-{}", std::process::id());
    let open = || {
        Ok::<_, Fault>(
            AnyDevice::choose(choice, &soft::Options::new(Profile::RDMA).fabric(&fabric))?.devices.swap_remove(0),
        )
    };
    let mut table = Table::new(["waits as one who", "p50", "p99", "p50 against polling", "processor while idle"]);
    let mut polling = None;
    for (name, spin) in WAYS {
        let (a, b) = (Context::open(open()?), Context::open(open()?));
        if polling.is_none() {
            println!("{}\n", Description(&a));
        }
        let latency = latency(&a, &b, spin, rounds)?;
        let idle = idle(&a, spin)?;
        let against = latency.p50.as_secs_f64() / polling.get_or_insert(latency.p50).as_secs_f64();
        table.row([
            name.to_owned(),
            Time(latency.p50).to_string(),
            Time(latency.p99).to_string(),
            format!("{against:.2}"),
            format!("{:.2} %", 100.0 * idle),
        ]);
        println!(
            "figure: who {name}: half of the way there and back {} in the median, {against:.2} of polling; idle {:.2} % of a processor",
            Time(latency.p50),
            100.0 * idle
        );
    }
    println!("\n{table}");
    Ok(())
}

/// Half of the way there and back.
fn latency(
    a: &Context<AnyDevice>,
    b: &Context<AnyDevice>,
    spin: Duration,
    rounds: u32,
) -> Result<Summary<Duration>, Fault> {
    let depth = Depth::new(8, 8);
    let (mut a, mut b) = (Waiting::open(a, depth)?, Waiting::open(b, depth)?);
    let (to_b, to_a) = introduce(&a.endpoint, &b.endpoint)?;
    b.answers(to_a)?;
    let answering = thread::spawn(move || {
        let mut wait = Adaptive::new(spin);
        let (mut messages, mut sent) = (0, 0);
        while messages < rounds || sent < rounds {
            let event = wait.next(&mut b.endpoint, &b.channel, Some(Duration::from_secs(10)))?;
            let event = event.ok_or(Fault::Stalled { waiting: "a question" })?;
            if b.took(event)? { messages += 1 } else { sent += 1 }
        }
        Ok::<_, Fault>(())
    });
    let mut wait = Adaptive::new(spin);
    let mut samples = Vec::with_capacity(rounds as usize);
    for number in 0..rounds {
        let begun = Instant::now();
        a.endpoint.post(to_b.send_inline(&[7; 8]), Token(number.into()))?;
        let mut ends = 0;
        while ends < 2 {
            let event = wait.next(&mut a.endpoint, &a.channel, Some(Duration::from_secs(10)))?;
            match event.ok_or(Fault::Stalled { waiting: "an answer" })? {
                Event::Received(message) => {
                    samples.push(begun.elapsed() / 2);
                    a.repost(message)?;
                }
                Event::Sent(_) => {}
                event => return Err(Fault::Protocol(format!("{event:?}"))),
            }
            ends += 1;
        }
    }
    answering.join().map_err(|_| Fault::OtherSide)??;
    Summary::of(&mut samples).ok_or(Fault::Protocol("no rounds".into()))
}

/// What a thread that waits for nothing takes of a processor.
fn idle(ctx: &Context<AnyDevice>, spin: Duration) -> Result<f64, Fault> {
    let mut side = Waiting::open(ctx, Depth::new(8, 8))?;
    let (begun, before) = (Instant::now(), thread_time()?);
    let event = Adaptive::new(spin).next(&mut side.endpoint, &side.channel, Some(Duration::from_secs(1)))?;
    if event.is_some() {
        return Err(Fault::Protocol("an event of nothing".into()));
    }
    Ok((thread_time()? - before).as_secs_f64() / begun.elapsed().as_secs_f64())
}

/// What this thread has had of a processor.
fn thread_time() -> Result<Duration, Fault> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").map_err(Fault::Read)?;
    let nanoseconds = stat.split_whitespace().next().and_then(|number| number.parse().ok());
    nanoseconds.map(Duration::from_nanos).ok_or(Fault::Protocol("no time in schedstat".into()))
}
