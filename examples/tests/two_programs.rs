//! The example programs, as two that are introduced over TCP: on software devices, or on what `EFA_EXAMPLES_DEVICES`
//! names, each started by the words of `EFA_EXAMPLES_RUNNER` if there are some.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PINGPONG: &str = env!("CARGO_BIN_EXE_pingpong");
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

fn program(path: &str, arguments: &[&str]) -> Command {
    let runner = std::env::var("EFA_EXAMPLES_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace().map(OsString::from).chain([path.into()]);
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).args(arguments);
    command.env("EFA_OS_DEVICES", std::env::var_os("EFA_EXAMPLES_DEVICES").unwrap_or("soft".into()));
    command.env("EFA_OS_FABRIC", format!("two-programs-{}", std::process::id()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A program that listens: it ends with the test.
struct Listening {
    child: Child,
    address: String,
    lines: BufReader<std::process::ChildStdout>,
    said: String,
}

impl Listening {
    fn start(path: &str, arguments: &[&str]) -> Self {
        let mut child = program(path, arguments).args(["--listen", "127.0.0.1:0"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap() == 0 {
                let mut errors = String::new();
                child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
                panic!("it ended before it listened: {said}{errors}");
            }
            said += &line;
            if let Some(address) = line.trim().strip_prefix("listening at ") {
                break address.to_owned();
            }
        };
        Self { child, address, lines, said }
    }

    /// Whether it succeeded, and what it said.
    fn end(mut self) -> (bool, String) {
        self.lines.read_to_string(&mut self.said).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut self.said).unwrap();
        (self.child.wait().unwrap().success(), std::mem::take(&mut self.said))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(path: &str, to: &Listening, arguments: &[&str]) -> (bool, String) {
    ended(program(path, arguments).args(["--connect", &to.address]).output().unwrap())
}

fn ended(output: Output) -> (bool, String) {
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), said.concat())
}

const QUICK: [&str; 4] = ["--iterations", "50", "--max-size", "20000"];

#[test]
fn every_operation_that_both_have_goes_from_one_program_to_the_other_and_back() {
    let listening = Listening::start(PINGPONG, &[]);
    let (succeeded, said) = connect(PINGPONG, &listening, &QUICK);
    assert!(succeeded && said.contains("every byte verified") && said.contains("RDMA read"), "{said}");
    let (succeeded, answered) = listening.end();
    assert!(succeeded && answered.contains("cases, every byte verified"), "{answered}");
    // Which device it was is said.
    assert!(said.contains("device ") && answered.contains("device "), "{said}{answered}");
    println!(
        "\nfigure: pingpong between two programs: {}",
        said.lines().find(|line| line.starts_with("SEND  ")).unwrap_or("")
    );
}

#[test]
fn a_byte_that_either_program_changes_fails_both_and_both_say_why() {
    for [connecting, listening] in [[&["--corrupt"][..], &[]], [&[], &["--corrupt"]]] {
        let listening = Listening::start(PINGPONG, listening);
        let (succeeded, said) = connect(PINGPONG, &listening, &[&QUICK[..], connecting].concat());
        let (answered_well, answered) = listening.end();
        assert!(!succeeded && !answered_well, "{said}{answered}");
        assert!(said.contains("expected 0x") && answered.contains("expected 0x"), "{said}{answered}");
    }
}

#[test]
fn a_program_whose_other_side_is_killed_ends_with_an_error() {
    let mut listening = Listening::start(PINGPONG, &[]);
    let connected = program(PINGPONG, &["--iterations", "1000000", "--connect", &listening.address]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let begun = Instant::now();
    listening.child.kill().unwrap();
    let (succeeded, said) = ended(connected.wait_with_output().unwrap());
    assert!(!succeeded && said.contains("error: "), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn a_program_that_nobody_answers_says_where_it_tried() {
    let arguments = ["--timeout", "1", "--connect", "127.0.0.1:9"];
    let (succeeded, said) = ended(program(PINGPONG, &arguments).output().unwrap());
    assert!(!succeeded && said.contains("127.0.0.1:9") && said.contains("listening"), "{said}");
    let arguments = ["--timeout", "1", "--listen", "127.0.0.1:0"];
    let (succeeded, said) = ended(program(PINGPONG, &arguments).output().unwrap());
    assert!(!succeeded && said.contains("nobody connected"), "{said}");
}

#[test]
fn an_efa_that_is_insisted_on_runs_or_is_an_error_in_one_program_too() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (path, arguments) in [(PINGPONG, &QUICK[..]), (TRANSFER, &[file])] {
        let arguments = [arguments, &["--device", "efa"]].concat();
        let (succeeded, said) = ended(program(path, &arguments).output().unwrap());
        assert!(succeeded || said.contains("error: "), "{said}");
        assert!(!said.contains("device software"), "{said}");
    }
}

#[test]
fn a_program_of_another_kind_is_told_apart() {
    let listening = Listening::start(TRANSFER, &["--timeout", "2"]);
    let (succeeded, said) = connect(PINGPONG, &listening, &[&QUICK[..], &["--timeout", "2"]].concat());
    assert!(!succeeded, "{said}");
    let (succeeded, answered) = listening.end();
    assert!(!succeeded && answered.contains("it is no transfer"), "{answered}");
}

#[test]
fn a_file_goes_from_one_program_to_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    let mut bytes = vec![0; 3_000_001];
    efa_examples::pattern::Pattern::new(5, 6).fill(&mut bytes);
    std::fs::write(&from, &bytes).unwrap();
    let [from_name, to_name] = [&from, &to].map(|path| path.to_str().unwrap());

    let listening = Listening::start(TRANSFER, &["--output", to_name]);
    let (succeeded, said) = connect(TRANSFER, &listening, &[from_name, "--chunk", "10000"]);
    let (received_well, received) = listening.end();
    if !said.lines().any(|line| line.contains("capabilities") && line.contains("RDMA_WRITE")) {
        assert!(!succeeded && said.contains("RDMA_WRITE"), "{said}");
        println!("\nskipped: no RDMA write of this device by this libefa: no file is sent");
        return;
    }
    assert!(succeeded && received_well, "{said}{received}");
    assert!(said.contains("hashes equal") && received.contains("301 chunks"), "{said}{received}");
    assert!(std::fs::read(&to).unwrap() == bytes);

    let listening = Listening::start(TRANSFER, &[]);
    let (succeeded, said) = connect(TRANSFER, &listening, &[from_name, "--corrupt"]);
    let (received_well, received) = listening.end();
    assert!(!succeeded && !received_well, "{said}{received}");
    assert!(said.contains("hashes differ") && received.contains("hashes differ"), "{said}{received}");
}
