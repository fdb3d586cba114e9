//! A fork while software devices are open: alone in this process, since a child has one thread.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use efa_core::connect::{connect, introduce};
use efa_core::qp::{Depth, Srd};
use efa_core::soft::Profile;
use efa_core::work::Event;
use efa_core::{Context, Token};
use efa_os::soft::{Channel, Options};

/// Whether there is something to read now.
fn is_readable(channel: &Channel) -> bool {
    let mut file = libc::pollfd { fd: channel.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one struct of ours, of an open file.
    unsafe { libc::poll(&mut file, 1, 0) == 1 }
}

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_forked_child_takes_no_frame_of_its_parents_keeps_no_address_and_harms_no_file() {
    let fabric = format!("fork-{}", std::process::id());
    let open = || Context::open(Options::new(Profile::RDMA).fabric(&fabric).open().unwrap().swap_remove(0));
    let [mut a, mut b] = connect([open(), open()], Depth::new(8, 8)).unwrap();
    let gid = a.ctx.gid();
    // An event that nobody took, of which the channel's file tells.
    let channel = a.ctx.provider().channel().unwrap();
    let srd = a.ctx.require::<Srd>().unwrap();
    let mut sleeper = a.pd.on_channel(&channel).endpoint(srd, Depth::new(8, 8)).unwrap();
    let mut sender = a.pd.endpoint(srd, Depth::new(8, 8)).unwrap();
    let (to_sleeper, _to_sender) = introduce(&sender, &sleeper).unwrap();
    sleeper.post_recv(a.pd.register(vec![0; 64]).unwrap().1, Token(3)).unwrap();
    assert!(sleeper.arm().unwrap().is_none());
    sender.post(to_sleeper.send_inline(b"hello"), Token(4)).unwrap();
    while sender.poll().is_none() {}
    assert!(is_readable(&channel));
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    // A process that has as many files as it may.
    let few = libc::rlimit { rlim_cur: 128, rlim_max: 128 };
    // SAFETY: a struct of ours.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &few) }, 0);
    let full: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(full.len() < 128);

    // SAFETY: this process has one thread beside the harness's, which waits.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // The copy of the devices is dead, and may be polled and dropped: what is a file's number is still one.
        for _ in 0..1000 {
            a.endpoint.poll();
            b.endpoint.poll();
        }
        channel.take();
        let is_dead = !is_readable(&channel);
        drop((sleeper, sender, channel, a, b));
        drop(ours);
        assert!(is_dead);
        theirs.write_all(b"polled").unwrap();
        // Until the parent has gone on without it.
        let _ = theirs.read(&mut [0]);
        // SAFETY: ends this copy, without what the harness would do at its end.
        unsafe { libc::_exit(0) };
    }
    drop((theirs, full));
    ours.read_exact(&mut [0; 6]).unwrap();
    assert!(is_readable(&channel), "the child has taken what its parent waits for");
    assert_eq!(channel.take(), 1);
    drop((sleeper, sender, channel));

    let begun = Instant::now();
    b.endpoint.post_recv(b.pd.register(vec![0; 64]).unwrap().1, Token(1)).unwrap();
    a.endpoint.post(a.peer.send_inline(b"hello"), Token(2)).unwrap();
    let (mut sent, mut received) = (false, false);
    while !(sent && received) {
        match a.endpoint.poll().or_else(|| b.endpoint.poll()) {
            Some(Event::Sent(_)) => sent = true,
            Some(Event::Received(_)) => received = true,
            Some(event) => panic!("{event:?}"),
            None => assert!(begun.elapsed() < LIMIT, "nothing came"),
        }
    }
    // The child lives, and the address is free as soon as its owner has dropped it.
    drop((a, b));
    Options::new(Profile::RDMA).fabric(&fabric).gid(gid).open().unwrap();
    drop(ours);
    let mut status = 0;
    // SAFETY: this process's child, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
