//! How two programs that are introduced go on together, and end: what each says of its own failure.

use std::time::Instant;

use efa_core::Provider;

use super::{ExchangeError, Tcp, recv_text, send_text};
use crate::fault::Fault;

/// Waits for a text, and drives the device meanwhile: a software device does nothing else, not even what the other side
/// waits for before it says something.
///
/// # Errors
/// What the channel says.
pub fn hear(channel: &mut Tcp, device: &impl Provider) -> Result<String, ExchangeError> {
    let begun = Instant::now();
    while !channel.has_news() {
        if begun.elapsed() > channel.timeout() {
            return Err(ExchangeError::Silent { got: 0, wanted: 1, waited: channel.timeout() });
        }
        device.progress();
    }
    recv_text(channel)
}

/// Waits for this text.
///
/// # Errors
/// What the channel says; [`Fault::Told`] for any other text.
pub fn expect(channel: &mut Tcp, device: &impl Provider, expected: &str) -> Result<(), Fault> {
    let said = hear(channel, device)?;
    if said == expected { Ok(()) } else { Err(Fault::Told(said)) }
}

/// The end of a side: says how it went, and hears how the other one did, whose fault may be the cause.
///
/// # Errors
/// The outcome's own, or the other side's.
pub fn conclude<T>(channel: &mut Tcp, device: &impl Provider, outcome: Result<T, Fault>) -> Result<T, Fault> {
    // That the other side failed it knows itself.
    let ours = outcome.as_ref().err().filter(|fault| !matches!(fault, Fault::OtherSide | Fault::Told(_)));
    let said = send_text(channel, &ours.map(Fault::to_string).unwrap_or_default());
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
