//! What a forked child does, done without a fork: alone in this process, since the table of sockets is all carriers'.

use std::os::fd::AsRawFd;

use efa_core::Gid;
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_os::carrier::{Carrier, Fabric, files};

#[test]
fn a_child_closes_each_socket_of_its_parent_once_and_none_that_was_closed() {
    let fabric = Fabric::new("forked", std::process::id()).unwrap();
    let claims: Vec<_> = (1..4).map(|n| fabric.claim(Gid::from_parts(0xFE80 << 48, n)).unwrap()).collect();
    drop(fabric.claim(Gid::from_parts(0xFE80 << 48, 4)).unwrap());
    let device = SoftDevice::new(Config::new(Profile::RDMA).gid(claims[0].gid()).linked(1));
    let carrier = Carrier::new(&device, claims);
    let mut open: Vec<_> = carrier.sockets().map(|(socket, _)| socket.as_raw_fd()).collect();
    open.sort();
    assert!(open.iter().all(|fd| files::is_open(*fd)) && !files::is_open(0) && !files::is_open(-1));
    let closed = std::cell::RefCell::new(Vec::new());
    files::before_fork();
    files::in_child(|fd| closed.borrow_mut().push(fd));
    assert_eq!(closed.take(), open);
    files::before_fork();
    files::in_child(|fd| closed.borrow_mut().push(fd));
    assert_eq!(closed.take(), []);
    // The gate is open again.
    fabric.claim(Gid::from_parts(0xFE80 << 48, 5)).unwrap();
}
