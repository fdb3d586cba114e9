//! Where the device has its bits, in numbers: what is made of the constants is wrong wherever they are.

use efa_core::entry::{completion_flags, control1, control2, control3, descriptor_flags};

#[test]
fn the_bits_of_entries_are_where_the_device_has_them() {
    let sends = [control1::OP_SEND, control1::OP_RDMA_READ, control1::OP_RDMA_WRITE, control1::OP_MASK];
    assert_eq!(sends, [0, 1, 2, 0x0F]);
    let first = [control1::HAS_IMM, control1::INLINE, control1::META_EXTENSION, control1::META_DESC];
    assert_eq!(first, [0x10, 0x20, 0x40, 0x80]);
    let second = [control2::PHASE, control2::FIRST, control2::LAST, control2::COMP_REQ, control2::FIXED];
    assert_eq!(second, [0x01, 0x04, 0x08, 0x10, 0x1C]);
    assert_eq!(control3::HINT_BURST, 0x01);
    let descriptor = [descriptor_flags::LKEY, descriptor_flags::FIRST, descriptor_flags::LAST];
    assert_eq!(descriptor, [0x00FF_FFFF, 0x4000_0000, 0x8000_0000]);
    let queue = [completion_flags::QUEUE_MASK, completion_flags::QUEUE_SEND, completion_flags::QUEUE_RECV];
    assert_eq!(queue, [0x06, 0x02, 0x04]);
    let completion = [completion_flags::PHASE, completion_flags::HAS_IMM, completion_flags::UNSOLICITED];
    assert_eq!(completion, [0x01, 0x08, 0x80]);
    assert_eq!((completion_flags::OP_MASK, completion_flags::OP_SHIFT), (0x70, 4));
}
