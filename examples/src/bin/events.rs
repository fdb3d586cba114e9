//! Completions and something else waited for at once, by poll(2): a service that sleeps until there is a message, or a word of
//! its operator. On EFAs where there are some, on software devices else.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use efa_core::Token;
use efa_core::connect::introduce;
use efa_core::qp::Depth;
use efa_core::work::Event;
use efa_examples::device::{self, Why};
use efa_examples::fault::Fault;
use efa_examples::service::Waiting;
use efa_examples::wait::Adaptive;
use efa_os::{AnyDevice, soft};
use rustix::event::{PollFd, PollFlags, poll};

/// Answers each message, and sleeps while there is none; until the operator says that it is enough, or goes.
fn serve(mut side: Waiting<AnyDevice>, mut operator: UnixStream) -> Result<(u32, u32), Fault> {
    let (mut messages, mut sleeps) = (0, 0);
    loop {
        while let Some(event) = side.endpoint.poll() {
            messages += u32::from(side.took(event)?);
        }
        // Armed and polled once more: with nothing, it may sleep, until either file has something to read.
        if let Some(event) = side.endpoint.arm()? {
            messages += u32::from(side.took(event)?);
            continue;
        }
        let mut files =
            [side.channel.as_fd(), operator.as_fd()].map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
        poll(&mut files, None).map_err(|error| Fault::Read(error.into()))?;
        let [completions, word] = files.map(|file| !file.revents().is_empty());
        sleeps += 1;
        if completions {
            side.channel.take()?;
        }
        if word {
            // A word, or that there will be none.
            let _ = operator.read(&mut [0; 64]).map_err(Fault::Read)?;
            return Ok((messages, sleeps));
        }
    }
}

fn run() -> Result<(), Fault> {
    let chosen = device::open(None, &soft::Options::from_environment().devices(2))?;
    print!("{}", Why(&chosen));
    let [here, there] = device::both_sides(&chosen);
    let (mut client, mut service) = (Waiting::open(&here, Depth::new(8, 8))?, Waiting::open(&there, Depth::new(8, 8))?);
    let (to_service, to_client) = introduce(&client.endpoint, &service.endpoint)?;
    service.answers(to_client)?;
    let (mut operator, service_end) = UnixStream::pair().map_err(Fault::Read)?;
    let serving = std::thread::spawn(move || serve(service, service_end));

    let mut wait = Adaptive::default();
    for number in 0..20 {
        // The service is asleep when the message comes.
        std::thread::sleep(Duration::from_millis(5));
        let begun = Instant::now();
        client.endpoint.post(to_service.send_inline(b"are you there?"), Token(number))?;
        let mut ends = 0;
        while ends < 2 {
            match wait.next(&mut client.endpoint, &client.channel, Some(Duration::from_secs(10)))? {
                Some(Event::Received(message)) => client.repost(message)?,
                Some(Event::Sent(_)) => {}
                Some(event) => return Err(Fault::Protocol(format!("{event:?}"))),
                None => return Err(Fault::Stalled { waiting: "the service's answer" }),
            }
            ends += 1;
        }
        if number == 19 {
            println!("answered in {:?}, from asleep", begun.elapsed());
        }
    }
    operator.write_all(b"enough").map_err(Fault::Print)?;
    let (messages, sleeps) = serving.join().map_err(|_| Fault::OtherSide)??;
    println!("{messages} messages, {sleeps} sleeps of the service, {} of the client", wait.sleeps());
    Ok(())
}

fn main() -> Result<(), String> {
    run().map_err(|fault| fault.to_string())
}
