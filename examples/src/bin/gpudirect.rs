//! GPU to GPU: a kernel's bytes are sent from one's memory to another's, by an EFA, in the order that the types demand.
//!
//! On a GPU and an EFA where there are some; else on `tests/fakecuda` and `tests/softefa`, if they lie beside this program, which
//! it says. Build them by `cargo build --release -p fakecuda -p softefa`.

use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use efa_core::connect::introduce;
use efa_core::qp::{Depth, Endpoint, Srd, ops};
use efa_core::work::Event;
use efa_core::{Context, Token};
use efa_cuda::{Allocation, Driver, Scope, Stream, allocator_settings};
use efa_os::Device;

type Messages = Srd<{ ops::SEND }>;

const LEN: usize = 1 << 13;

fn main() -> ExitCode {
    match transfer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpudirect: {error}");
            ExitCode::FAILURE
        }
    }
}

fn transfer() -> Result<(), Box<dyn Error>> {
    let driver = Driver::load().or_else(|error| stand_in("EFA_CUDA_LIBCUDA", "libfakecuda.so", error))?;
    let device = match efa_os::devices() {
        Ok(mut devices) => devices.swap_remove(0),
        Err(error) => stand_in("LD_PRELOAD", "libsoftefa.so", error)?,
    };
    let gpus = driver.devices()?;
    let (from, to) = (*gpus.first().ok_or("no GPU")?, *gpus.last().ok_or("no GPU")?);
    for gpu in [from, to] {
        println!("{}", gpu.report()?);
    }
    for setting in allocator_settings() {
        println!("{setting}");
    }
    let ctx = Context::open(device);
    println!("EFA: {}", ctx.name());
    let pd = ctx.alloc_pd()?;
    let end = || pd.endpoint(ctx.require::<Messages>()?, Depth::new(8, 8));
    let (mut a, mut b) = (end()?, end()?);
    let (to_b, _to_a) = introduce(&a, &b)?;

    // Where a framework has none, contexts and memory of one's own.
    let (producing, consuming) = (from.primary()?, to.primary()?);
    let (mut kernels, mut consumers) = (Stream::new(&producing)?, Stream::new(&consuming)?);
    let (source_region, mut source) = driver.register(&pd, Allocation::new(&producing, LEN)?)?;
    let (target_region, mut target) = driver.register(&pd, Allocation::new(&consuming, LEN)?)?;
    let start = Instant::now();
    for round in 1..=100u8 {
        source_region.fill(&mut kernels, &mut source, round)?;
        let into = target.synchronize(&mut consumers)?;
        b.post_recv(into.into_slice(), Token(1))?;
        let ready = source.synchronize(&mut kernels)?;
        a.post(to_b.send(ready.into_slice()), Token(2))?;
        let Event::Sent(mut done) = wait(&mut a)? else { return Err("not sent".into()) };
        let Event::Received(mut message) = wait(&mut b)? else { return Err("not received".into()) };
        source = source_region.outbound(done.buffers.take_opaque().ok_or("no buffer")?)?;
        let arrived = target_region.completed(message.buffers.take_opaque().ok_or("no buffer")?)?;
        let visible = match to.writes_ordered(Scope::Owner)? {
            Some(proof) => arrived.elide(proof)?,
            None => target_region.within(|current| arrived.flush(current, Scope::Owner))??,
        };
        let mut seen = vec![0; LEN];
        target_region.within(|current| visible.copy_to_host(current, &mut seen))??;
        if let Some(at) = seen.iter().position(|byte| *byte != round) {
            return Err(format!("round {round}: byte {at} is {}", seen[at]).into());
        }
        target = visible.into_outbound();
    }
    println!(
        "100 messages of {LEN} bytes from GPU {} to GPU {}, every byte verified: {:?}",
        from.ordinal(),
        to.ordinal(),
        start.elapsed()
    );
    source_region.close(source)?;
    target_region.close(target)?;
    Ok(())
}

fn wait(endpoint: &mut Endpoint<Device, Messages>) -> Result<Event, Box<dyn Error>> {
    let start = Instant::now();
    loop {
        match endpoint.poll() {
            Some(Event::Failed { failure, .. }) => return Err(failure.to_string().into()),
            Some(event) => return Ok(event),
            None if start.elapsed() > Duration::from_secs(10) => return Err("nothing came in ten seconds".into()),
            None => std::thread::yield_now(),
        }
    }
}

/// This program again, with a library in the place of what is not here; returns only with why that cannot be.
fn stand_in<T>(variable: &str, library: &str, why: impl Error) -> Result<T, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let path = program.with_file_name(library);
    if std::env::var_os(variable).is_some() || !path.exists() {
        let build = "`cargo build --release -p fakecuda -p softefa` builds what stands in";
        return Err(format!("{why}; {variable} is set already, or there is no {}: {build}", path.display()).into());
    }
    println!("{why}: on {} instead", path.display());
    Err(Command::new(program).env(variable, path).exec().into())
}
