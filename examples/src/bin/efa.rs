//! The EFAs of a host, what is wrong with them, and what they count: `efa devices`, `efa doctor`, `efa stat`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, CommandFactory, Parser, Subcommand};
use efa_examples::device::Kind;
use efa_examples::exchange::{Listener, Tcp};
use efa_examples::fault::Fault;
use efa_examples::host::counters::{self, Sample};
use efa_examples::host::doctor::{self, Report, Severity, Style};
use efa_examples::host::meet::{self, Met};
use efa_examples::host::{Ask, Host, devices, live, probe, prometheus, redact};
use efa_examples::programs::say;

/// The EFAs of this host: what they are, what is wrong, what they count.
///
/// Exit status: 0 fine; 1 problems were found; 2 the command line is wrong; 3 it could not do what it was asked.
#[derive(Parser, Debug)]
#[command(name = "efa", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Devices(Devices),
    Doctor(Doctor),
    Stat(Stat),
    /// Print a script that completes this command's arguments in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, in roff.
    Man,
}

/// List the EFAs: where they are, what they can do, which is near which GPU, and what drives them.
#[derive(Args, Debug)]
struct Devices {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Open software devices of this process too, and list them.
    #[arg(long)]
    soft: bool,
    /// Print numbers in the place of addresses and names.
    #[arg(long)]
    redact: bool,
}

/// Find out why EFA does not work here, or not well: each finding with what was expected and what to do.
///
/// Nothing is changed and nothing is sent, but to the instance's own metadata service, unless --probe or --with says
/// so.
///
/// Exit status: 0 no problem, maybe warnings and notes; 1 problems; 3 the other host was not reached, or a file was
/// not read.
#[derive(Args, Debug)]
struct Doctor {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print what is fine, and what does not arise, too.
    #[arg(long, short)]
    verbose: bool,
    /// Try it too: open each EFA, register memory, of GPUs too, and send to itself.
    #[arg(long)]
    probe: bool,
    /// Compare with another host, on which `efa doctor --listen` runs, and ping each other.
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "listen")]
    with: Option<String>,
    /// Wait for another host's `--with`, at ADDRESS:PORT; port 0 is any that is free.
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "0.0.0.0")]
    listen: Option<String>,
    /// Which devices ping each other; EFAs, unless EFA_OS_DEVICES is soft.
    #[arg(long, value_name = "KIND")]
    device: Option<Kind>,
    /// Seconds that two hosts wait for each other.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Rules of security groups to check: a file with what `aws ec2 describe-security-group-rules` printed.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Say what a check looks at, and what follows; without an ID, list all.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    explain: Option<String>,
    /// Print numbers in the place of addresses, identifiers and this host's name: for an issue.
    #[arg(long)]
    redact: bool,
}

/// Show what the devices count: rates, and what a rise means.
///
/// Counters outlive programs, and reboots: only differences mean something.
#[derive(Args, Debug)]
struct Stat {
    /// End after one interval; the exit status is 1 if a problem rose in it.
    #[arg(long)]
    once: bool,
    /// Seconds between two readings.
    #[arg(long, default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Print each counter, with its value, its rate and what it counts.
    #[arg(long)]
    all: bool,
    /// Print the values now, as Prometheus' text.
    #[arg(long, conflicts_with_all = ["once", "json"])]
    prometheus: bool,
    /// Print one interval as JSON.
    #[arg(long)]
    json: bool,
    /// Software devices instead: two of this process, with traffic between them.
    #[arg(long)]
    soft: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        // The driver keeps what it read for 10 ms.
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.01 to 86400".to_owned()),
    }
}

/// How a command ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Fine,
    Problems,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(End::Fine) => ExitCode::SUCCESS,
        Ok(End::Problems) => ExitCode::from(1),
        // Whoever read it has enough.
        Err(Fault::Print(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::from(3)
        }
    }
}

fn run(command: Command) -> Result<End, Fault> {
    match command {
        Command::Devices(arguments) => list(&arguments),
        Command::Doctor(arguments) => match &arguments.explain {
            Some(id) => explain(id, arguments.json),
            None => examine(&arguments),
        },
        Command::Stat(arguments) => stat(&arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "efa", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Command::Man => man().map_err(Fault::Print),
    }
}

/// The page of the command, and after it those of its commands.
fn man() -> io::Result<End> {
    let mut page = Vec::new();
    let mut command = Arguments::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        clap_mangen::Man::new(inner.clone()).render(&mut page)?;
    }
    io::stdout().write_all(&page)?;
    Ok(End::Fine)
}

fn print(text: &str) -> Result<End, Fault> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Fault::Print)?;
    Ok(End::Fine)
}

fn json(value: &impl serde::Serialize) -> Result<String, Fault> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Fault::Print(error.into()))?;
    Ok(text + "\n")
}

fn shown(text: String, host: &Host, redacted: bool) -> String {
    if redacted { redact(&text, &host.view.machine.name) } else { text }
}

fn list(arguments: &Devices) -> Result<End, Fault> {
    let host = Host::live(Ask::Everybody);
    let mut found = devices::devices(&host);
    if arguments.soft || std::env::var_os("EFA_OS_DEVICES").is_some_and(|kind| kind == "soft") {
        found.software = devices::software()?;
    }
    let text = if arguments.json { json(&found)? } else { found.text() };
    print(&shown(text, &host, arguments.redact))
}

fn explain(id: &str, as_json: bool) -> Result<End, Fault> {
    let Some(explained) = doctor::explained(id) else {
        return Err(Fault::Protocol(format!("no check is called {id}: `efa doctor --explain` lists all")));
    };
    print(&if as_json { json(&explained)? } else { doctor::explained_text(&explained) })
}

fn examine(arguments: &Doctor) -> Result<End, Fault> {
    let mut view = live(Ask::Everybody);
    if let Some(file) = &arguments.rules {
        let text = fs::read_to_string(file).map_err(Fault::Read)?;
        view.rules = Some(serde_json::from_str(&text).map_err(|error| Fault::Read(error.into()))?);
    }
    let host = Host::of(view);
    let mut report = doctor::examine(&host);
    if arguments.probe {
        report.outcomes.extend(probe::host());
    }
    let met = other_side(arguments, &report)?;
    let style = Style {
        colour: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        verbose: arguments.verbose,
    };
    let text = match (&met, arguments.json) {
        (None, true) => json(&report)?,
        (Some(met), true) => json(&BTreeMap::from([("ours", serde_value(&report)?), ("met", serde_value(met)?)]))?,
        (None, false) => report.text(style),
        (Some(met), false) => format!("{}\n{}", report.text(style), met.text(style)),
    };
    print(&shown(text, &host, arguments.redact))?;
    let worst = report.worst().max(met.as_ref().and_then(Met::worst));
    Ok(if worst == Some(Severity::Problem) { End::Problems } else { End::Fine })
}

fn serde_value(value: &impl serde::Serialize) -> Result<serde_json::Value, Fault> {
    serde_json::to_value(value).map_err(|error| Fault::Print(error.into()))
}

fn other_side(arguments: &Doctor, report: &Report) -> Result<Option<Met>, Fault> {
    let timeout = Duration::from_secs(arguments.timeout);
    let (mut channel, leads) = match (&arguments.with, &arguments.listen) {
        (Some(address), _) => (Tcp::connect(&meet::with_port(address), timeout)?, true),
        (_, Some(address)) => {
            let listener = Listener::bind(&meet::with_port(address))?;
            // Not to where the report goes.
            eprintln!("listening at {}", listener.address());
            (listener.accept(timeout)?, false)
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(meet::meet(report, &mut channel, leads, arguments.device)?))
}

fn stat(arguments: &Stat) -> Result<End, Fault> {
    let soft = arguments.soft.then(counters::Traffic::start).transpose()?;
    let view = live(Ask::Files);
    let read = || soft.as_ref().map_or_else(|| counters::read(&view), counters::Traffic::read);
    if arguments.prometheus {
        return print(&prometheus::text(&read()));
    }
    let mut before = read();
    if before.is_empty() && !arguments.json {
        say(format_args!("no EFA here: `efa doctor` says what is missing"))?;
        return Ok(End::Fine);
    }
    let terminal = io::stdout().is_terminal();
    loop {
        let begun = Instant::now();
        thread::sleep(Duration::from_secs_f64(arguments.interval));
        let (after, time) = (read(), begun.elapsed());
        if arguments.json {
            return print(&json(&Interval::of(&before, &after, time))?);
        }
        if terminal && !arguments.once {
            // From the top of an empty screen.
            print("\x1b[H\x1b[2J")?;
        }
        print(&counters::summary(&before, &after, time))?;
        if arguments.all {
            print(&counters::all(&before, &after, time))?;
        }
        if arguments.once {
            let rose = counters::judge(&before, &after).iter().any(|one| one.severity == Severity::Problem);
            return Ok(if rose { End::Problems } else { End::Fine });
        }
        before = after;
    }
}

/// An interval as JSON.
#[derive(serde::Serialize)]
struct Interval<'s> {
    seconds: f64,
    before: &'s Sample,
    after: &'s Sample,
    judged: Vec<counters::Judgement>,
}

impl<'s> Interval<'s> {
    fn of(before: &'s Sample, after: &'s Sample, time: Duration) -> Self {
        Self { seconds: time.as_secs_f64(), before, after, judged: counters::judge(before, after) }
    }
}
