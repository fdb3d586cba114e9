//! GPU to GPU: a kernel's bytes are sent from one's memory to another's, by an EFA, in the order that the types demand.
//!
//! On a GPU and an EFA where both are there. Where one is missing, both are stand-ins, `tests/fakecuda` and
//! `tests/softefa`, if they lie beside this program, and it says so: an EFA of software reaches no GPU's memory, and an
//! EFA none of a driver without a GPU. Build them by `cargo build --release -p fakecuda -p softefa`.

use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use efa_core::connect::introduce;
use efa_core::memory::RemoteRead;
use efa_core::qp::{Depth, Endpoint, Srd, ops};
use efa_core::work::Event;
use efa_core::{Context, Token};
use efa_cuda::{Allocation, Driver, Loopback, Scope, Stream, allocator_settings};
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
    let (driver, device) = match (Driver::load(), efa_os::devices()) {
        (Ok(driver), Ok(mut devices)) => (driver, devices.swap_remove(0)),
        (gpu, efa) => return stand_ins(gpu.err().map(|why| why.to_string()), efa.err().map(|why| why.to_string())),
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
    // What the consuming GPU sees by: its own order of writes, a flush by the host, or a read by the EFA.
    let ordered = to.writes_ordered(Scope::Owner)?;
    let mut loopback = None;
    if ordered.is_none() && !to.flushes_from_host()? {
        let source = driver.expose(&pd, Allocation::new(&consuming, 64)?, ctx.require::<RemoteRead>()?)?;
        loopback = Some(Loopback::new(&ctx, &pd, source).map_err(|refused| refused.error())?);
    }
    let by = if ordered.is_some() {
        "its own order"
    } else if loopback.is_some() {
        "reads by the EFA"
    } else {
        "flushes"
    };
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
        let visible = match (ordered, &mut loopback) {
            (Some(proof), _) => arrived.elide(proof)?,
            (None, Some(loopback)) => loopback.flush(arrived, Duration::from_secs(10))?,
            (None, None) => target_region.within(|current| arrived.flush(current, Scope::Owner))??,
        };
        let mut seen = vec![0; LEN];
        target_region.within(|current| visible.copy_to_host(current, &mut seen))??;
        if let Some(at) = seen.iter().position(|byte| *byte != round) {
            return Err(format!("round {round}: byte {at} is {}", seen[at]).into());
        }
        target = visible.into_outbound();
    }
    println!(
        "100 messages of {LEN} bytes from GPU {} to GPU {}, seen by {by}, every byte verified: {:?}",
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

/// This program again, with stand-ins for GPU and EFA; returns only with why that cannot be.
fn stand_ins(no_gpu: Option<String>, no_efa: Option<String>) -> Result<(), Box<dyn Error>> {
    const AGAIN: &str = "EFA_EXAMPLES_STAND_INS";
    let is = |what: &str, missing: &Option<String>| match missing {
        Some(why) => format!("no {what}: {why}"),
        None => format!("{what}: there is one, which is not used without the other"),
    };
    let program = std::env::current_exe()?;
    let [gpu, efa] = ["libfakecuda.so", "libsoftefa.so"].map(|library| program.with_file_name(library));
    let (no_gpu, no_efa) = (is("GPU", &no_gpu), is("EFA", &no_efa));
    if std::env::var_os(AGAIN).is_some() || !gpu.exists() || !efa.exists() {
        let build = "`cargo build --release -p fakecuda -p softefa` builds what stands in";
        return Err(
            format!("{no_gpu}; {no_efa}; no stand-ins at {} and {}: {build}", gpu.display(), efa.display()).into()
        );
    }
    println!("{no_gpu}\n{no_efa}\nboth are stand-ins: {} and {}", gpu.display(), efa.display());
    let mut again = Command::new(program);
    Err(again.env(AGAIN, "").env("EFA_CUDA_LIBCUDA", gpu).env("LD_PRELOAD", efa).exec().into())
}
