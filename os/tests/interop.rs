//! A process on the PyPI package `efa` and this one: the 24-byte form each way, and every operation each way.
//!
//! `EFA_PYPI` has the words that start the package's interpreter; without it the test is skipped, and counted.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use efa_core::flags::Access;
use efa_core::memory::{Exposed, PageSize, Pages, RemoteAccess, RemoteRead, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::{Depth, Endpoint, HasRead, HasSend, HasSendImm, QpKind, Solicited, Srd, ops};
use efa_core::wire::{EndpointBytes, Grant};
use efa_core::work::Event;
use efa_core::{Caps, Context, Incarnation, ProtectionDomain, RKey, Token};
use efa_os::Device;

const LIMIT: Duration = Duration::from_secs(120);
const SIZE: usize = 1 << 16;
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/softefa/tests/pypi/peer.py");

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8).collect()
}

/// The other process, which ends with this.
struct Python {
    child: Child,
    stream: TcpStream,
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Python {
    fn start(command: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let mut words = command.split_whitespace();
        let mut child = Command::new(words.next().unwrap()).args(words).args([SCRIPT, &port]).spawn().unwrap();
        let begun = Instant::now();
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) => assert!(begun.elapsed() < LIMIT && child.try_wait().unwrap().is_none(), "it did not connect"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self { child, stream }
    }

    fn read<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).expect("the other process says why it ended");
        bytes
    }

    /// It does so; with [`Python::done`] it has.
    fn tell(&mut self, what: &str, numbers: &[usize]) {
        let numbers: String = numbers.iter().map(|number| format!(" {number}")).collect();
        writeln!(self.stream, "{what}{numbers}").unwrap();
    }

    fn done(&mut self) {
        assert_eq!(self.read(), *b"+");
    }

    fn does(&mut self, what: &str, numbers: &[usize]) {
        self.tell(what, numbers);
        self.done();
    }

    fn end(mut self) {
        self.tell("end", &[]);
        assert!(self.child.wait().unwrap().success());
    }
}

/// This side.
struct Ours<K: QpKind<Features = Solicited>, A> {
    endpoint: Endpoint<Device, K>,
    pd: ProtectionDomain<Device>,
    peer: Peer<Mutual, Solicited>,
    window: RemoteWindow<A>,
    shared: Exposed<Pages, A>,
}

impl<K: QpKind<Features = Solicited>, A: RemoteAccess> Ours<K, A> {
    fn new(ctx: &Context<Device>, python: &mut Python, access: Access) -> Self {
        let pd = ctx.alloc_pd().unwrap();
        let mut endpoint = pd.endpoint(ctx.require::<K>().unwrap(), Depth::new(8, 8)).unwrap();
        endpoint.post_recv(pd.register(vec![0; 8192]).unwrap().1, Token(9)).unwrap();
        let shared = pd.expose(Pages::new(SIZE, PageSize::Base).unwrap(), ctx.require::<A>().unwrap()).unwrap();

        let theirs = EndpointBytes::parse(&python.read::<24>()).unwrap().resolve().unwrap();
        // The package has no exchange: that it resolves us is seen by its first answer.
        let peer = endpoint.resolve_address(theirs).unwrap().assert_mutual();
        let (address, rkey) = (u64::from_be_bytes(python.read()), u32::from_be_bytes(python.read()));
        let grant = Grant { address, length: SIZE as u64, rkey: RKey(rkey), access, incarnation: Incarnation(1) };
        let window = peer.window(grant.to_frame().as_bytes()).unwrap();

        let ours = Grant::parse(shared.grant(&endpoint).unwrap().as_bytes()).unwrap();
        python.stream.write_all(endpoint.address().to_bytes().as_bytes()).unwrap();
        python.stream.write_all(&ours.address.to_be_bytes()).unwrap();
        python.stream.write_all(&ours.rkey.0.to_be_bytes()).unwrap();
        Self { endpoint, pd, peer, window, shared }
    }

    fn event(&mut self) -> Event {
        let begun = Instant::now();
        loop {
            match self.endpoint.poll() {
                Some(event) => return event,
                None => assert!(begun.elapsed() < LIMIT, "no completion"),
            }
        }
    }

    fn slice(&self, seed: usize, len: usize) -> Slice {
        self.pd.register(pattern(seed, len)).unwrap().1
    }

    fn fill(&self, seed: usize, len: usize) {
        self.shared.copy_in(0, &pattern(seed, len)).unwrap();
    }

    fn verify(&self, seed: usize, len: usize) {
        let mut bytes = vec![0; len];
        self.shared.copy_out(0, &mut bytes).unwrap();
        assert!(bytes == pattern(seed, len));
    }

    fn repost(&mut self) {
        self.endpoint.post_recv(self.pd.register(vec![0; 8192]).unwrap().1, Token(9)).unwrap();
    }

    /// Both SENDs and the read, each way.
    fn sends_and_reads(&mut self, python: &mut Python)
    where
        K: HasSend + HasSendImm + HasRead,
        A: efa_core::memory::AllowsRead,
    {
        for (seed, len) in [(1, 1), (2, 100), (3, 8192)] {
            let send = self.peer.send(self.slice(seed, len));
            self.endpoint.post(send, Token(1)).unwrap();
            python.does("received", &[seed, len]);
            assert!(matches!(self.event(), Event::Sent(_)));
            let imm = 0x8765_4300 + seed as u32;
            let send = self.peer.send(self.slice(seed + 10, len)).imm(imm);
            self.endpoint.post(send, Token(1)).unwrap();
            python.does("received", &[seed + 10, len, imm as usize]);
            assert!(matches!(self.event(), Event::Sent(_)));

            for (what, imm) in [("send", None), ("send_imm", Some(imm))] {
                let numbers = [seed + 20, len].into_iter().chain(imm.map(|imm| imm as usize));
                python.tell(what, &numbers.collect::<Vec<_>>());
                let Event::Received(message) = self.event() else { panic!() };
                assert_eq!((message.len, message.imm), (len, imm));
                assert!(message.buffers.into_slice().unwrap()[..len] == pattern(seed + 20, len));
                python.done();
                self.repost();
            }
        }
        for (seed, len) in [(4, 8), (5, SIZE)] {
            python.does("fill", &[seed, len]);
            let read = self.peer.read(self.slice(0, len), self.window.range(0..len as u64).unwrap());
            self.endpoint.post(read, Token(2)).unwrap();
            let Event::Read(read) = self.event() else { panic!() };
            assert!(read.buffers.into_slice().unwrap()[..] == pattern(seed, len));
            self.fill(seed + 30, len);
            python.does("read", &[seed + 30, len]);
        }
    }
}

impl Ours<Srd, RemoteReadWrite> {
    /// Both writes, each way.
    fn writes(&mut self, python: &mut Python) {
        for (seed, len) in [(6, 8), (7, SIZE)] {
            let window = self.window.range(0..len as u64).unwrap();
            let write = self.peer.write(self.slice(seed, len), window);
            self.endpoint.post(write, Token(3)).unwrap();
            assert!(matches!(self.event(), Event::Written(_)));
            python.does("verify", &[seed, len]);
            let imm = 0xFEDC_BA00 + seed as u32;
            let write = self.peer.write(self.slice(seed + 40, len), window).imm(imm);
            self.endpoint.post(write, Token(3)).unwrap();
            python.does("arrived", &[len, imm as usize]);
            python.does("verify", &[seed + 40, len]);
            assert!(matches!(self.event(), Event::Written(_)));

            python.does("write", &[seed + 50, len]);
            self.verify(seed + 50, len);
            python.tell("write_imm", &[seed + 60, len, imm as usize]);
            let Event::WriteArrived(write) = self.event() else { panic!() };
            assert_eq!(write.imm, imm);
            self.verify(seed + 60, len);
            python.done();
            self.repost();
        }
    }
}

#[test]
fn the_pypi_package_and_this_crate_reach_each_other_by_every_operation() {
    const TEST: &str = "the_pypi_package_and_this_crate_reach_each_other_by_every_operation";
    let Ok(command) = std::env::var("EFA_PYPI") else {
        return common::skipped(TEST, "the PyPI package is tried by the step softefa-pypi");
    };
    common::on_each_path(TEST, |[ctx, _]| {
        let mut python = Python::start(&command);
        let theirs = python.read() == *b"w";
        let writes = theirs && ctx.caps().contains(Caps::RDMA_WRITE);
        if writes {
            let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
            let mut ours = Ours::<Srd, RemoteReadWrite>::new(&ctx, &mut python, access);
            ours.sends_and_reads(&mut python);
            ours.writes(&mut python);
        } else {
            type SendRead = Srd<{ ops::SEND | ops::SEND_WITH_IMM | ops::RDMA_READ }>;
            let mut ours = Ours::<SendRead, RemoteRead>::new(&ctx, &mut python, Access::REMOTE_READ);
            ours.sends_and_reads(&mut python);
        }
        python.end();
        let which = if writes { "SEND, read and write" } else { "SEND and read, one side having no RDMA write" };
        println!("figure: with the PyPI package over the {} path, each way: {which}", ctx.data_path());
    });
}
