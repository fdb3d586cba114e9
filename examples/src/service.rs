//! A small service to wait with: an endpoint on a channel of its own, which answers each message.

use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, SendOnly, Solicited};
use efa_core::work::{Event, Received};
use efa_core::{Context, Error, Notified, Notifies, Token};
use efa_os::AnyDevice;

use crate::fault::Fault;

/// The other side, as this side's queue pair knows it.
pub type Other = Peer<Mutual, Solicited>;

/// An endpoint of SENDs that can be waited for, with a receive for each message that may come.
#[derive(Debug)]
pub struct Waiting<P: Notifies> {
    /// The endpoint.
    pub endpoint: Endpoint<Notified<P>, SendOnly>,
    /// What tells of its completions.
    pub channel: P::Channel,
    answers: Option<Other>,
}

/// Bytes of a receive.
const MESSAGE: usize = 64;

impl Waiting<AnyDevice> {
    /// On a channel of its own, with its receives posted.
    ///
    /// # Errors
    /// What the device answered.
    pub fn open(ctx: &Context<AnyDevice>, depth: Depth) -> Result<Self, Error> {
        let channel = ctx.provider().channel()?;
        let pd = ctx.alloc_pd()?;
        let mut endpoint = pd.on_channel(&channel).endpoint(ctx.require::<SendOnly>()?, depth)?;
        let receives = endpoint.granted().recv as usize;
        let (_, mut rest) = pd.register(vec![0; receives * MESSAGE])?;
        for number in 0..receives {
            let (receive, after) = rest.split_at(MESSAGE)?;
            endpoint.post_recv(receive, Token(number as u64))?;
            rest = after;
        }
        Ok(Self { endpoint, channel, answers: None })
    }
}

impl<P: Notifies> Waiting<P> {
    /// Answers each message to this other side from now on.
    ///
    /// # Errors
    /// That there is one already, which it goes on answering.
    pub fn answers(&mut self, other: Other) -> Result<(), Fault> {
        if self.answers.is_some() {
            return Err(Fault::Protocol("a service answers one client here".into()));
        }
        self.answers = Some(other);
        Ok(())
    }

    /// Deals with an event: answers a message and posts its receive again; whether it was a message.
    ///
    /// # Errors
    /// What the event says that failed, or what the device answered.
    pub fn took(&mut self, event: Event) -> Result<bool, Fault> {
        match event {
            Event::Received(message) => {
                let token = message.token;
                self.repost(message)?;
                if let Some(other) = &self.answers {
                    self.endpoint.post(other.send_inline(b"yes"), token)?;
                }
                Ok(true)
            }
            Event::Sent(_) => Ok(false),
            Event::Failed { failure, .. } => Err(failure.into()),
            event => Err(Fault::Protocol(format!("an event that nothing here asks for: {event:?}"))),
        }
    }

    /// Posts the receive of a message again.
    ///
    /// # Errors
    /// What the device answered.
    pub fn repost(&mut self, mut message: Received) -> Result<(), Fault> {
        let receive = message.buffers.take_slice().ok_or(Fault::Protocol("a message nowhere".into()))?;
        Ok(self.endpoint.post_recv(receive, message.token)?)
    }
}
