//! Why there is no device: which of the pieces that make one is missing (H22).

#![forbid(unsafe_code)]

use core::fmt;
use std::path::Path;

/// The first piece that is missing, from the hardware up.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// No EFA on the PCI bus.
    Hardware,
    /// An EFA on the bus, and no driver of the kernel's that shows it as an RDMA device.
    Driver,
    /// An RDMA device of the kernel's, and no file in `/dev/infiniband` to open it by.
    Node,
    /// All is there, and libibverbs does not list it: its provider for EFA is missing.
    Provider,
}

impl Absent {
    pub(crate) fn here() -> Self {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Self {
        let entries = |folder: &str| std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        let is = |device: &Path, file: &str, what: &str| {
            std::fs::read_to_string(device.join(file)).is_ok_and(|text| text.trim().starts_with(what))
        };
        let is_efa = |device: &Path| is(device, "vendor", "0x1d0f") && is(device, "device", "0xefa");
        let on_the_bus = entries("sys/bus/pci/devices").any(|entry| is_efa(&entry.path()));
        let rdma = entries("sys/class/infiniband").any(|entry| is_efa(&entry.path().join("device")));
        let node = entries("dev/infiniband").any(|entry| entry.file_name().to_string_lossy().starts_with("uverbs"));
        match (rdma, on_the_bus, node) {
            (true, _, true) => Self::Provider,
            (true, _, false) => Self::Node,
            (false, true, _) => Self::Driver,
            (false, false, _) => Self::Hardware,
        }
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hardware => {
                "none is on the PCI bus: take an instance type that has EFA, and enable it for the network interface"
            }
            Self::Driver => {
                "one is on the PCI bus, and the kernel does not drive it: load the module `efa`, which AWS's EFA installer brings"
            }
            Self::Node => {
                "the kernel has one, and /dev/infiniband has no file for it: in a container, pass it in with \
                 `--device /dev/infiniband`"
            }
            Self::Provider => {
                "the kernel has one, and libibverbs does not list it: install its provider, Debian's package ibverbs-providers"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h22_the_first_piece_that_is_missing_is_named() {
        let root = std::env::temp_dir().join(format!("efa-os-absent-{}", std::process::id()));
        let put = |file: &str, text: &str| {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let _ = std::fs::remove_dir_all(&root);
        assert_eq!(Absent::below(&root), Absent::Hardware);
        put("sys/bus/pci/devices/0000:00:05.0/vendor", "0x15b3\n");
        put("sys/bus/pci/devices/0000:00:05.0/device", "0x1017\n");
        assert_eq!(Absent::below(&root), Absent::Hardware);
        put("sys/bus/pci/devices/0000:00:06.0/vendor", "0x1d0f\n");
        put("sys/bus/pci/devices/0000:00:06.0/device", "0xefa2\n");
        assert_eq!(Absent::below(&root), Absent::Driver);
        put("sys/class/infiniband/rdmap0s6/device/vendor", "0x1d0f\n");
        put("sys/class/infiniband/rdmap0s6/device/device", "0xefa2\n");
        assert_eq!(Absent::below(&root), Absent::Node);
        put("dev/infiniband/rdma_cm", "");
        assert_eq!(Absent::below(&root), Absent::Node);
        put("dev/infiniband/uverbs0", "");
        assert_eq!(Absent::below(&root), Absent::Provider);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
