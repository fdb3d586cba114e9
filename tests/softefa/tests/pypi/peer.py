"""One side of `os/tests/interop.rs`, on the PyPI package: connects to PORT, and does what it is told, line by line.

    peer.py PORT

It says first whether its library has RDMA write: `w`, or else `r`.
"""

import socket
import struct
import sys
import time

import efa
import numpy as np

SIZE = 1 << 16
RECEIVE = 8192
QKEY = 0x1BADCAFE & 0x7FFFFFFF


def pattern(seed, length):
    return ((np.arange(length, dtype=np.uint32) * 7 + seed) & 0xFF).astype(np.uint8)


class Peer:
    def __init__(self, port):
        self.ctx = efa.get_efa_device_list()[0].open()
        self.pd = self.ctx.alloc_pd()
        self.cq = self.ctx.create_cq(256)
        ops = efa.QPExSendOpsFlags
        reads = ops.SEND | ops.SEND_WITH_IMM | ops.RDMA_READ
        access = efa.AccessFlags.LOCAL_WRITE | efa.AccessFlags.REMOTE_READ
        try:
            qp = self.make_qp(reads | ops.RDMA_WRITE | ops.RDMA_WRITE_WITH_IMM)
            access |= efa.AccessFlags.REMOTE_WRITE
        except OSError as error:
            print("no RDMA write:", error)
            qp = self.make_qp(reads)
        self.qp = qp.prepare(qkey=QKEY)
        writes = bool(access & efa.AccessFlags.REMOTE_WRITE)
        self.local, self.shared, self.inbox = (np.zeros(size, dtype=np.uint8) for size in (SIZE, SIZE, RECEIVE))
        self.local_mr, self.inbox_mr = (
            efa.reg_tensor(self.pd, array, efa.AccessFlags.LOCAL_WRITE) for array in (self.local, self.inbox)
        )
        self.shared_mr = efa.reg_tensor(self.pd, self.shared, access)
        self.post_recv()

        self.stream = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.lines = self.stream.makefile("rb")
        self.stream.sendall(b"w" if writes else b"r")
        self.stream.sendall(efa.local_endpoint_info(self.qp, qkey=QKEY).to_bytes())
        self.stream.sendall(struct.pack("!QI", self.shared.ctypes.data, self.shared_mr.rkey))
        self.peer = efa.EndpointInfo.from_bytes(self.lines.read(24)).peer(self.pd)
        self.remote = struct.unpack("!QI", self.lines.read(12))

    def make_qp(self, operations):
        return self.pd.create_qp(
            efa.QPInitAttr(send_cq=self.cq, recv_cq=self.cq, max_send_wr=32, max_recv_wr=32, send_ops_flags=operations)
        )

    def post_recv(self):
        self.qp.post_recv(efa.RecvWR(wr_id=99, sg_list=[self.inbox_mr.sge()]))

    def completion(self, wr_id):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            for wc in self.cq.poll(1):
                wc.raise_for_status()
                assert wc.wr_id == wr_id, (wc.wr_id, wr_id)
                return wc
        raise TimeoutError(f"no completion of {wr_id}")

    def post(self, opcode, length, imm=None, remote=False):
        wr = dict(wr_id=1, sg_list=[self.local_mr.sge(length=length)], opcode=opcode)
        wr.update(send_flags=efa.SendFlags.SIGNALED, dest=self.peer)
        if imm is not None:
            wr["imm_data"] = imm
        if remote:
            wr.update(remote_addr=self.remote[0], rkey=self.remote[1])
        self.qp.post_send(efa.SendWR(**wr))
        self.completion(1)

    def do(self, what, *numbers):
        op = efa.WROpcode
        if what == "send":
            seed, length = numbers
            self.local[:length] = pattern(seed, length)
            self.post(op.SEND, length)
        elif what == "send_imm":
            seed, length, imm = numbers
            self.local[:length] = pattern(seed, length)
            self.post(op.SEND_WITH_IMM, length, imm)
        elif what == "write":
            seed, length = numbers
            self.local[:length] = pattern(seed, length)
            self.post(op.RDMA_WRITE, length, remote=True)
        elif what == "write_imm":
            seed, length, imm = numbers
            self.local[:length] = pattern(seed, length)
            self.post(op.RDMA_WRITE_WITH_IMM, length, imm, remote=True)
        elif what == "read":
            seed, length = numbers
            self.local[:] = 0
            self.post(op.RDMA_READ, length, remote=True)
            assert (self.local[:length] == pattern(seed, length)).all()
        elif what == "fill":
            seed, length = numbers
            self.shared[:length] = pattern(seed, length)
        elif what == "verify":
            seed, length = numbers
            assert (self.shared[:length] == pattern(seed, length)).all()
        elif what == "received":
            seed, length, *imm = numbers
            wc = self.completion(99)
            assert wc.byte_len == length, (wc.byte_len, length)
            assert (self.inbox[:length] == pattern(seed, length)).all()
            assert [wc.imm_data] == imm or not imm, (wc.imm_data, imm)
            self.post_recv()
        elif what == "arrived":
            length, imm = numbers
            wc = self.completion(99)
            assert (wc.byte_len, wc.imm_data) == (length, imm), (wc.byte_len, wc.imm_data, length, imm)
            self.post_recv()
        else:
            raise ValueError(what)

    def run(self):
        for line in self.lines:
            what, *numbers = line.decode().split()
            if what == "end":
                return
            self.do(what, *map(int, numbers))
            self.stream.sendall(b"+")


Peer(int(sys.argv[1])).run()
