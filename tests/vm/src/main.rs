//! Serves the functions of a card, each on a socket to which one virtual machine's monitor connects.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use clap::Parser;
use efa_vm::card::Card;
use efa_vm::fault::Fault;
use efa_vm::function::Served;
use efa_vm::{pci, window};
use vfio_user::Server;

/// EFA devices for virtual machines, by vfio-user.
#[derive(Debug, Parser)]
struct Options {
    /// Where a monitor (QEMU's vfio-user-pci) connects: a function for each, all on one wire.
    #[arg(long = "socket", required = true, value_name = "PATH")]
    sockets: Vec<PathBuf>,
    /// What is wrong with the card, for tests of the driver.
    #[arg(long, value_enum)]
    fault: Option<Fault>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let card = Arc::new(Card::new(options.sockets.len(), options.fault)?);
    let serve = |(path, function): (&PathBuf, &Arc<_>)| -> Result<_, vfio_user::Error> {
        let function: &Arc<efa_vm::function::Function> = function;
        let server = Server::new(path, true, pci::interrupts(), function.regions())?;
        Ok((server, function.clone()))
    };
    let servers = options.sockets.iter().zip(&card.functions).map(serve).collect::<Result<Vec<_>, _>>()?;
    println!("listening");
    thread::scope(|scope| {
        let ticks = scope.spawn(|| card.run());
        let serving: Vec<_> = servers
            .iter()
            .map(|(server, function)| {
                let mut served = Served::new(function.clone(), card.clone());
                scope.spawn(move || {
                    let ended = server.run(&mut served);
                    function.end();
                    ended
                })
            })
            .collect();
        let mut failed = Ok(());
        for (nth, serving) in serving.into_iter().enumerate() {
            let ended = serving.join().map_err(|_| "a function's thread panicked".to_string());
            if let Err(error) = ended.and_then(|ended| ended.map_err(|error| error.to_string())) {
                failed = Err(format!("function {nth}: {error}"));
            }
        }
        card.end();
        let _ = ticks.join();
        for (nth, function) in card.functions.iter().enumerate() {
            println!("function {nth}: {}", function.summary());
        }
        println!("memory that was not there: {} times", window::faults());
        failed
    })?;
    Ok(())
}
