//! The first program: a service keeps its endpoint in a struct and runs in a thread; a client sends to it, and writes
//! into its memory. It runs on a software device; with hardware only the two contexts come from elsewhere.

use efa_core::connect::{Side, connect};
use efa_core::memory::{Exposed, PageSize, Pages, RemoteWrite};
use efa_core::soft::{Profile, SoftDevice};
use efa_core::{Context, Error, Token, flow::Arrivals, qp::Depth, work::Event};

/// No lifetimes: whoever has the struct has the endpoint, its peer and its memory.
struct Service {
    side: Side<SoftDevice>,
    memory: Exposed<Pages, RemoteWrite>,
}

impl Service {
    fn run(mut self) -> Result<(), Error> {
        let mut both = Arrivals::expect(2); // in either order: SRD keeps none
        while !both.all_here() {
            match self.side.endpoint.poll() {
                Some(Event::Received(message)) => {
                    let buffer = message.buffers.into_slice().expect("the receive's own buffer");
                    println!("service: message {:?}", String::from_utf8_lossy(&buffer[..message.len]));
                }
                Some(Event::WriteArrived(write)) => {
                    let mut bytes = [0; 12]; // a peer may write again at any time: copy, then look
                    self.memory.copy_out(0, &mut bytes)?;
                    println!("service: write {}, {:?}", write.imm, String::from_utf8_lossy(&bytes));
                }
                _ => continue,
            }
            both.arrived()?;
        }
        Ok(())
    }
}

fn run() -> Result<(), Error> {
    let device = SoftDevice::new(Profile::RDMA);
    let [mut client, mut side] = connect([device.neighbour()?, device].map(Context::open), Depth::new(8, 8))?;
    // The service posts receives and grants the client a part of its memory. Then it is off to its thread.
    for _ in 0..2 {
        side.endpoint.post_recv(side.pd.register(vec![0; 64])?.1, Token(0))?;
    }
    let memory = side.pd.expose(Pages::new(4096, PageSize::Base)?, side.ctx.require::<RemoteWrite>()?)?;
    let window = client.peer.window::<RemoteWrite>(memory.grant(&side.endpoint)?.as_bytes())?;
    let service = std::thread::spawn(|| Service { side, memory }.run());
    // What is posted is gone, until its completion gives it back.
    let (message, bytes) = client.pd.register(b"hello by SENDand by RDMA.".to_vec())?.1.split_at(13)?;
    client.endpoint.post(client.peer.send(message), Token(1))?;
    client.endpoint.post(client.peer.write(bytes, window).imm(7), Token(2))?;
    while client.endpoint.in_flight() > 0 {
        client.endpoint.poll().inspect(|event| println!("client: {event:?}"));
    }
    service.join().expect("it does not panic")
}

fn main() -> Result<(), String> {
    run().map_err(|error| error.to_string()) // the sentence: cause, values, remedy
}
