//! A channel over TCP, of which each call ends in time, but for the system's look-up of a name.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::{Channel, ExchangeError};

/// How long it waits before it tries again.
const RETRY: Duration = Duration::from_millis(50);

/// A connection between two programs.
#[derive(Debug)]
pub struct Tcp {
    stream: TcpStream,
    timeout: Duration,
}

/// Where a program is waited for.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens at an address: a host and a port, or an address and a port, of which 0 is any that is free.
    ///
    /// # Errors
    /// That it is no address, or that it cannot be listened at.
    pub fn bind(address: &str) -> Result<Self, ExchangeError> {
        let addresses = resolve(address)?;
        let listen = |error| ExchangeError::Listen { address: address.to_owned(), error };
        let listener = TcpListener::bind(&addresses[..]).map_err(listen)?;
        // Waiting has an end.
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Self { listener, address })
    }

    /// Where it listens, with the port that was free.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a program that connects, for so long; each call on the connection takes no longer either.
    ///
    /// # Errors
    /// That nobody came.
    pub fn accept(&self, timeout: Duration) -> Result<Tcp, ExchangeError> {
        let begun = Instant::now();
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(ExchangeError::Io)?;
                    return Tcp::new(stream, timeout);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Who came and went before it was looked at is nobody.
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => return Err(ExchangeError::Listen { address: self.address.to_string(), error }),
            }
            if begun.elapsed() > timeout {
                return Err(ExchangeError::NobodyCame { address: self.address.to_string(), waited: timeout });
            }
            thread::sleep(RETRY.min(timeout));
        }
    }
}

impl Tcp {
    /// Connects, again and again for so long: whoever listens there may start later. Each call on the connection takes no
    /// longer either.
    ///
    /// # Errors
    /// That it is no address, or that nobody is there.
    pub fn connect(address: &str, timeout: Duration) -> Result<Self, ExchangeError> {
        let begun = Instant::now();
        let addresses = resolve(address)?;
        loop {
            let mut last = None;
            for one in &addresses {
                let left = timeout.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
                match TcpStream::connect_timeout(one, left) {
                    Ok(stream) => return Self::new(stream, timeout),
                    Err(error) => last = Some(error),
                }
            }
            if begun.elapsed() + RETRY > timeout {
                let error = last.unwrap_or_else(|| ErrorKind::NotFound.into());
                return Err(ExchangeError::NobodyThere { address: address.to_owned(), tried: timeout, error });
            }
            thread::sleep(RETRY);
        }
    }

    fn new(stream: TcpStream, timeout: Duration) -> Result<Self, ExchangeError> {
        // Small frames, each of which is waited for.
        stream.set_nodelay(true).map_err(ExchangeError::Io)?;
        Ok(Self { stream, timeout })
    }

    /// How long a call takes at most.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether the other side has said something, or has gone: does not wait.
    pub fn has_news(&self) -> bool {
        let peek = || {
            self.stream.set_nonblocking(true)?;
            let peeked = self.stream.peek(&mut [0]);
            self.stream.set_nonblocking(false)?;
            peeked
        };
        !matches!(peek(), Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
    }

    /// Until all of so many bytes have come or gone, by what does some of them.
    fn all(
        &mut self,
        wanted: usize,
        mut some: impl FnMut(&mut TcpStream, usize, Duration) -> io::Result<usize>,
    ) -> Result<(), ExchangeError> {
        let begun = Instant::now();
        let mut got = 0;
        while got < wanted {
            let silent = ExchangeError::Silent { got, wanted, waited: self.timeout };
            let left = self.timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(silent);
            }
            match some(&mut self.stream, got, left) {
                Ok(0) => return Err(ExchangeError::Closed { got, wanted }),
                Ok(more) => got += more,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(silent),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                        return Err(ExchangeError::Closed { got, wanted });
                    }
                    _ => return Err(ExchangeError::Io(error)),
                },
            }
        }
        Ok(())
    }
}

impl Channel for Tcp {
    fn send(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        self.all(bytes.len(), |stream, from, left| {
            stream.set_write_timeout(Some(left))?;
            stream.write(&bytes[from..])
        })
    }

    fn recv(&mut self, bytes: &mut [u8]) -> Result<(), ExchangeError> {
        self.all(bytes.len(), |stream, from, left| {
            stream.set_read_timeout(Some(left))?;
            stream.read(&mut bytes[from..])
        })
    }
}

fn resolve(address: &str) -> Result<Vec<SocketAddr>, ExchangeError> {
    let wrong = |error| ExchangeError::Address { address: address.to_owned(), error };
    let found: Vec<_> = address.to_socket_addrs().map_err(wrong)?.collect();
    if found.is_empty() { Err(wrong(ErrorKind::NotFound.into())) } else { Ok(found) }
}
