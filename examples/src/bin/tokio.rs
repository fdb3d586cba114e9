//! Completions awaited in a tokio task, which sleeps with all other tasks of its thread: the channel's file in an `AsyncFd`.
//! On EFAs where there are some, on software devices else.

#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use efa_core::Token;
use efa_core::connect::introduce;
use efa_core::qp::Depth;
use efa_core::work::Event;
use efa_examples::device::{self, Why};
use efa_examples::fault::Fault;
use efa_examples::service::{Other, Waiting};
use efa_os::{AnyChannel, AnyDevice, soft};
use tokio::io::unix::AsyncFd;

/// An endpoint whose events are awaited.
struct Async {
    side: Waiting<AnyDevice>,
    /// Of the same channel.
    readable: AsyncFd<AnyChannel>,
}

impl Async {
    fn new(side: Waiting<AnyDevice>) -> Result<Self, Fault> {
        // SAFETY: a channel has one file, which is open for as long as one of its clones is there, as this one is.
        let registered = unsafe { AsyncFd::register(side.channel.clone()) };
        let readable = registered.map_err(|error| Fault::Read(error.into()))?;
        Ok(Self { side, readable })
    }

    /// The next event. Dropping this future loses nothing: what is in flight is the queue pair's.
    async fn next(&mut self) -> Result<Event, Fault> {
        loop {
            if let Some(event) = self.side.endpoint.poll() {
                return Ok(event);
            }
            if let Some(event) = self.side.endpoint.arm()? {
                return Ok(event);
            }
            let mut ready = self.readable.readable().await.map_err(Fault::Read)?;
            // Before what there was is taken: what comes after makes it readable again.
            ready.clear_ready();
            self.side.channel.take()?;
        }
    }
}

/// Answers each message, for ever.
async fn serve(mut service: Async) -> Result<(), Fault> {
    loop {
        let event = service.next().await?;
        service.side.took(event)?;
    }
}

async fn ask(mut client: Async, to_service: Other) -> Result<Duration, Fault> {
    let mut fastest = Duration::MAX;
    for number in 0..100 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let begun = Instant::now();
        client.side.endpoint.post(to_service.send_inline(b"are you there?"), Token(number))?;
        let mut ends = 0;
        while ends < 2 {
            match client.next().await? {
                Event::Received(message) => client.side.repost(message)?,
                Event::Sent(_) => {}
                event => return Err(Fault::Protocol(format!("{event:?}"))),
            }
            ends += 1;
        }
        fastest = fastest.min(begun.elapsed());
    }
    Ok(fastest)
}

async fn run() -> Result<(), Fault> {
    let chosen = device::open(None, &soft::Options::from_environment().devices(2))?;
    print!("{}", Why(&chosen));
    let [here, there] = device::both_sides(&chosen);
    let (client, mut service) = (Waiting::open(&here, Depth::new(8, 8))?, Waiting::open(&there, Depth::new(8, 8))?);
    let (to_service, to_client) = introduce(&client.endpoint, &service.endpoint)?;
    service.answers(to_client)?;
    let (client, service) = (Async::new(client)?, Async::new(service)?);
    tokio::select! {
        served = serve(service) => served,
        asked = tokio::time::timeout(Duration::from_secs(30), ask(client, to_service)) => {
            let fastest = asked.map_err(|_| Fault::Stalled { waiting: "the service's answer" })??;
            println!("100 questions answered, the fastest in {fastest:?}, both sides in one thread that sleeps between");
            Ok(())
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), String> {
    run().await.map_err(|fault| fault.to_string())
}
