//! Waiting for completions: polls as long as one is likely to come soon, then sleeps.
//!
//! A poll sees a completion at once and costs a processor; an event costs none and some tens of microseconds. So
//! [`Adaptive`] polls for a while after each completion, and sleeps when none came: who is busy is as fast as one who only
//! polls, and who is idle costs nothing. How long it polls it learns: two sides that both sleep would each wait for the
//! other's waking for ever, so after a sleep that was short it polls for longer the next time, after one that was long for as
//! short as at first.

use std::time::{Duration, Instant};

use efa_core::qp::{Endpoint, QpKind};
use efa_core::work::Event;
use efa_core::{Arms, Error};
use efa_os::AnyChannel;

/// How long is polled before a sleep, at least, if the program says nothing else: about what a sleep and its end take.
pub const SPIN: Duration = Duration::from_micros(50);
/// How many times that it is polled at most.
const LONGEST: u32 = 8;

/// Polls between two looks at the clock.
const POLLS: u32 = 32;

/// What can be slept on until there is an event.
pub trait Sleep {
    /// Sleeps until there is an event, or so long, and takes those that there are.
    ///
    /// # Errors
    /// What the system answered.
    fn sleep(&self, most: Option<Duration>) -> Result<(), Error>;
}

macro_rules! sleeps {
    ($($channel:ty)*) => {$(
        impl Sleep for $channel {
            fn sleep(&self, most: Option<Duration>) -> Result<(), Error> {
                self.wait(most).map(drop)
            }
        }
    )*};
}

sleeps!(AnyChannel efa_os::Channel efa_os::soft::Channel);

/// How one endpoint is waited for.
#[derive(Debug)]
pub struct Adaptive {
    shortest: Duration,
    spin: Duration,
    sleeps: u64,
}

impl Adaptive {
    /// Polls for so long before it sleeps, and up to eight times as long where that spares a sleep.
    pub fn new(spin: Duration) -> Self {
        Self { shortest: spin, spin, sleeps: 0 }
    }

    /// Learns from a wait that a sleep ended.
    fn learn(&mut self, waited: Duration) {
        let longest = self.shortest.saturating_mul(LONGEST);
        self.spin = if waited < longest { longest } else { self.shortest };
    }

    /// How often it has slept.
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// The next event, or none within that time.
    ///
    /// # Errors
    /// What the device answered to arming, or the system to sleeping.
    pub fn next<P: Arms, K: QpKind>(
        &mut self,
        endpoint: &mut Endpoint<P, K>,
        channel: &impl Sleep,
        most: Option<Duration>,
    ) -> Result<Option<Event>, Error> {
        if let Some(event) = endpoint.poll() {
            return Ok(Some(event));
        }
        let begun = Instant::now();
        let mut slept = false;
        loop {
            for _ in 0..POLLS {
                if let Some(event) = endpoint.poll() {
                    if slept {
                        self.learn(begun.elapsed());
                    }
                    return Ok(Some(event));
                }
            }
            let waited = begun.elapsed();
            if most.is_some_and(|most| waited >= most) {
                return Ok(None);
            }
            if waited < self.spin && !slept {
                continue;
            }
            // Armed, and polled once more: a completion that came meanwhile is not slept through (R30).
            if let Some(event) = endpoint.arm()? {
                return Ok(Some(event));
            }
            (slept, self.sleeps) = (true, self.sleeps + 1);
            channel.sleep(most.map(|most| most.saturating_sub(waited)))?;
        }
    }
}

impl Default for Adaptive {
    fn default() -> Self {
        Self::new(SPIN)
    }
}

#[cfg(test)]
mod tests {
    use efa_core::connect::introduce;
    use efa_core::qp::Depth;
    use efa_core::soft::Profile;
    use efa_core::{Context, Token};
    use efa_os::{AnyDevice, Choice, soft};

    use super::*;
    use crate::service::Waiting;

    const LIMIT: Option<Duration> = Some(Duration::from_secs(20));

    fn open(name: &str) -> Waiting<AnyDevice> {
        let options = soft::Options::new(Profile::RDMA).fabric(&format!("wait-{name}-{}", std::process::id()));
        let device = AnyDevice::choose(Choice::Soft, &options).unwrap().devices.swap_remove(0);
        Waiting::open(&Context::open(device), Depth::new(8, 8)).unwrap()
    }

    #[test]
    fn who_waits_for_nothing_waits_as_long_as_was_said_and_sleeps() {
        let mut side = open("nothing");
        let mut wait = Adaptive::default();
        let (begun, most) = (Instant::now(), Duration::from_millis(200));
        assert!(wait.next(&mut side.endpoint, &side.channel, Some(most)).unwrap().is_none());
        assert!(begun.elapsed() >= most && (1..10).contains(&wait.sleeps()), "{} sleeps", wait.sleeps());
    }

    #[test]
    fn no_message_is_slept_through_however_long_after_the_last_it_comes() {
        const MESSAGES: u64 = 300;
        let (mut client, mut service) = (open("through"), open("through"));
        let (to_service, to_client) = introduce(&client.endpoint, &service.endpoint).unwrap();
        service.answers(to_client).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut wait = Adaptive::new(Duration::from_micros(10));
                let mut events = 0;
                while events < 2 * MESSAGES {
                    let event = wait.next(&mut service.endpoint, &service.channel, LIMIT).unwrap();
                    service.took(event.expect("a message or its answer's end")).unwrap();
                    events += 1;
                }
            });
            let mut wait = Adaptive::new(Duration::from_micros(10));
            for number in 0..MESSAGES {
                // From at once to long asleep.
                std::thread::sleep(Duration::from_micros(number * number / 30));
                client.endpoint.post(to_service.send_inline(b"now"), Token(number)).unwrap();
                for _ in 0..2 {
                    match wait.next(&mut client.endpoint, &client.channel, LIMIT).unwrap() {
                        Some(Event::Received(message)) => client.repost(message).unwrap(),
                        Some(Event::Sent(_)) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
        });
    }

    #[test]
    fn a_short_sleep_makes_the_next_polls_longer_and_a_long_one_as_short_as_at_first() {
        let mut wait = Adaptive::new(Duration::from_micros(50));
        wait.learn(Duration::from_micros(100));
        assert_eq!(wait.spin, Duration::from_micros(400));
        wait.learn(Duration::from_micros(399));
        assert_eq!(wait.spin, Duration::from_micros(400));
        wait.learn(Duration::from_micros(400));
        assert_eq!(wait.spin, Duration::from_micros(50));
    }
}
