//! The part of sysfs that says which devices there are: real files, made when they are first looked for.

#![forbid(unsafe_code)]

use std::ffi::CStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use efa_core::Gid;
use efa_core::soft::{Counters, SoftDevice};

/// Character devices that every system has: a file of one stands for an open device, so that what the system says of
/// it, its kind and number, is what is said here. None of them can be mapped.
const NODES: [(&CStr, u32, u32); 4] =
    [(c"/dev/null", 1, 3), (c"/dev/full", 1, 7), (c"/dev/random", 1, 8), (c"/dev/urandom", 1, 9)];

/// The character device that stands for a device.
pub fn node(device: usize) -> Option<&'static CStr> {
    NODES.get(device).map(|(path, ..)| *path)
}

/// Its number.
pub fn number(device: usize) -> Option<(u32, u32)> {
    NODES.get(device).map(|(_, major, minor)| (*major, *minor))
}

/// Eight bytes that differ between devices: the lower half of their GIDs.
pub fn guid(gid: Gid) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = gid.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Four groups of four digits.
fn groups(value: u64) -> String {
    let digits = format!("{value:016x}");
    [&digits[..4], &digits[4..8], &digits[8..12], &digits[12..]].join(":")
}

fn gid_text(gid: Gid) -> String {
    let half = |at: usize| gid.0[at..at + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    format!("{}:{}", groups(half(0)), groups(half(8)))
}

/// What each file holds, by its path below the root; a link names its target instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// A file and its line.
    File(String, String),
    /// A symbolic link.
    Link(String, String),
}

/// All files of devices with these addresses.
pub fn tree(gids: &[Gid]) -> Vec<Node> {
    let mut all = vec![Node::File("class/infiniband_verbs/abi_version".into(), "6".into())];
    for (nth, gid) in gids.iter().enumerate() {
        let (major, minor) = number(nth).unwrap_or_default();
        // Where a PCI device is, and who drives it: some programs look there.
        let pci = format!("devices/pci0000:00/0000:00:{:02x}.0", 6 + nth);
        let mut put = |path: &str, line: String| all.push(Node::File(path.into(), line));
        put(&format!("{pci}/modalias"), "pci:v00001D0Fd0000EFA1sv00001D0Fsd0000EFA1bc02sc00i00".into());
        put(&format!("{pci}/vendor"), "0x1d0f".into());
        put(&format!("{pci}/device"), "0xefa1".into());
        put(&format!("{pci}/numa_node"), "-1".into());
        let verbs = format!("class/infiniband_verbs/uverbs{nth}");
        put(&format!("{verbs}/ibdev"), format!("efa_{nth}"));
        put(&format!("{verbs}/dev"), format!("{major}:{minor}"));
        put(&format!("{verbs}/abi_version"), "1".into());
        let ib = format!("class/infiniband/efa_{nth}");
        put(&format!("{ib}/node_type"), "7: unspecified".into());
        put(&format!("{ib}/node_guid"), groups(guid(*gid)));
        put(&format!("{ib}/sys_image_guid"), groups(guid(*gid)));
        put(&format!("{ib}/fw_ver"), "0.0.0.0".into());
        put(&format!("{ib}/ports/1/state"), "4: ACTIVE".into());
        put(&format!("{ib}/ports/1/link_layer"), "Unknown".into());
        put(&format!("{ib}/ports/1/pkeys/0"), "0xffff".into());
        put(&format!("{ib}/ports/1/gids/0"), gid_text(*gid));
        for (name, value) in Counters::default().of_the_driver() {
            put(&format!("{}/{name}", counters_of(nth)), value.to_string());
        }
        all.push(Node::Link(format!("{ib}/device"), format!("../../../{pci}")));
        all.push(Node::Link(format!("{verbs}/device"), format!("../../../{pci}")));
        all.push(Node::Link(format!("{pci}/driver"), "../../../bus/pci/drivers/efa".into()));
    }
    all.push(Node::File("bus/pci/drivers/efa/name".into(), "efa".into()));
    all
}

/// The folder of a device's counters.
fn counters_of(device: usize) -> String {
    format!("class/infiniband/efa_{device}/ports/1/hw_counters")
}

/// Writes what devices count into their files, which others may read meanwhile: as the driver has them, and no more often
/// than `every`. Ends with the tree.
pub fn publish_counters(root: &Path, devices: &[SoftDevice], every: Duration) {
    let mut last = vec![Counters::default(); devices.len()];
    while root.exists() {
        for ((nth, device), last) in devices.iter().enumerate().zip(&mut last) {
            let now = device.counters();
            for ((name, value), (_, before)) in now.of_the_driver().into_iter().zip(last.of_the_driver()) {
                if value != before {
                    write_counter(&root.join(counters_of(nth)).join(name), value);
                }
            }
            *last = now;
        }
        thread::sleep(every);
    }
}

/// In place, so that whoever reads finds a number: it never becomes shorter. A file that is gone is not made again.
fn write_counter(path: &Path, value: u64) {
    if let Ok(mut file) = fs::OpenOptions::new().write(true).open(path) {
        let _ = file.write_all(format!("{value}\n").as_bytes());
    }
}

/// The root of this process's tree. Its folder is what the environment said first: the tree stays where it is, and no
/// later call looks at the environment, which another thread may hold when this one forks.
pub fn root(process: i32) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(std::env::temp_dir).join(format!("{ROOT}{process}"))
}

const ROOT: &str = "softefa-sysfs-";

/// Makes the files, and removes those that processes left which were killed.
///
/// # Errors
/// What the system answered.
pub fn create(root: &Path, gids: &[Gid]) -> io::Result<()> {
    sweep_beside(root);
    let _ = fs::remove_dir_all(root);
    // Only if it is not there: in a folder of everybody's, one that is would be somebody else's, with links to files of
    // this user's.
    fs::DirBuilder::new().mode(0o755).create(root)?;
    for node in tree(gids) {
        let (Node::File(path, _) | Node::Link(path, _)) = &node;
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        match &node {
            Node::File(_, line) => fs::write(path, format!("{line}\n"))?,
            Node::Link(_, target) => std::os::unix::fs::symlink(target, path)?,
        }
    }
    Ok(())
}

/// Removes the trees of processes that are no more, which were killed.
pub fn sweep_beside(root: &Path) {
    sweep(root.parent().unwrap_or(root));
}

fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.strip_prefix(ROOT)) else { continue };
        if !process.is_empty()
            && process.bytes().all(|byte| byte.is_ascii_digit())
            && is_over(process)
            && Path::new("/proc/self").exists()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a process is no more, or waits for nothing but its parent to hear that.
fn is_over(process: &str) -> bool {
    let Ok(line) = fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
    let state = line.rsplit_once(") ").map_or("", |(_, rest)| rest);
    state.starts_with(['Z', 'X'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIDS: [Gid; 2] = [
        Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0x0E, 0xFA, 0, 0xFF, 0, 0, 0, 1]),
        Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0x0E, 0xFA, 0, 0xFF, 0, 0, 0, 2]),
    ];

    #[test]
    fn the_files_say_what_libibverbs_looks_for() {
        let root = std::env::temp_dir().join(format!("softefa-test-{}", std::process::id()));
        create(&root, &GIDS).unwrap();
        let line = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        assert_eq!(line("class/infiniband_verbs/abi_version"), "6\n");
        assert_eq!(line("class/infiniband_verbs/uverbs1/ibdev"), "efa_1\n");
        assert_eq!(line("class/infiniband_verbs/uverbs1/dev"), "1:7\n");
        assert_eq!(line("class/infiniband/efa_0/node_guid"), "0efa:00ff:0000:0001\n");
        assert_eq!(line("class/infiniband/efa_0/ports/1/gids/0"), "fe80:0000:0000:0000:0efa:00ff:0000:0001\n");
        assert!(line("class/infiniband/efa_0/device/modalias").starts_with("pci:v00001D0Fd0000EFA1sv"));
        let device = fs::canonicalize(root.join("class/infiniband/efa_1/device")).unwrap();
        assert_eq!(device.file_name().unwrap(), "0000:00:07.0");
        assert_eq!(line("class/infiniband/efa_1/ports/1/hw_counters/tx_bytes"), "0\n");
        assert_eq!(fs::canonicalize(device.join("driver")).unwrap().file_name().unwrap(), "efa");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn counters_are_in_their_files_as_the_device_counts_until_the_tree_is_gone() {
        let root = std::env::temp_dir().join(format!("softefa-counters-{}", std::process::id()));
        create(&root, &GIDS[..1]).unwrap();
        let mut pair = efa_core::soft::pair(efa_core::soft::Profile::RDMA).unwrap();
        let devices = [pair.0.ctx.provider().clone()];
        let (folder, sent) = (root.clone(), root.join("class/infiniband/efa_0/ports/1/hw_counters/send_wrs"));
        let publishing = thread::spawn(move || publish_counters(&folder, &devices, Duration::from_millis(1)));
        let (a, b) = (&mut pair.0, &mut pair.1);
        b.endpoint.post_recv(b.pd.register(vec![0; 64]).unwrap().1, efa_core::Token(1)).unwrap();
        a.endpoint.post(a.peer.send_inline(b"counted"), efa_core::Token(2)).unwrap();
        while a.endpoint.in_flight() + b.endpoint.in_flight() > 0 {
            let _ = a.endpoint.poll().or_else(|| b.endpoint.poll());
        }
        let begun = std::time::Instant::now();
        while fs::read_to_string(&sent).unwrap() != "1\n" {
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        fs::remove_dir_all(root).unwrap();
        publishing.join().unwrap();
    }

    #[test]
    fn a_tree_that_is_there_and_cannot_be_removed_is_nobodys_to_write_into() {
        let folder = std::env::temp_dir().join(format!("softefa-planted-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // What is there is no folder, so that it stays, whoever runs this.
        let (root, theirs) = (folder.join(format!("{ROOT}7")), folder.join("theirs"));
        fs::create_dir(&theirs).unwrap();
        std::os::unix::fs::symlink(&theirs, &root).unwrap();
        let made = create(&root, &GIDS);
        assert!(fs::read_dir(&theirs).unwrap().next().is_none(), "{made:?}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not() {
        let folder = std::env::temp_dir().join(format!("softefa-sweep-{}", std::process::id()));
        let living = folder.join(format!("{ROOT}{}", std::process::id()));
        let (dead, other) = (folder.join(format!("{ROOT}999999999")), folder.join(format!("{ROOT}x")));
        for path in [&living, &dead, &other] {
            fs::create_dir_all(path).unwrap();
        }
        sweep(&folder);
        assert_eq!([&living, &dead, &other].map(|path| path.exists()), [true, false, true]);
        fs::remove_dir_all(folder).unwrap();
    }
}
