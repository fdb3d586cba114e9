"""As much of torch as the GPU tests of the PyPI package `efa` use, on the driver that EFA_CUDA_LIBCUDA names: so that they, and the
package's own calls of the driver, run as they are where there is no GPU.

What writes a GPU's tensor is queued on its stream, and done when somebody waits.
"""

import ctypes
import os

import numpy

# Opened by its path first: it has the driver's name from then on, for the package too.
_lib = ctypes.CDLL(os.environ["EFA_CUDA_LIBCUDA"])
uint8, int32, float32 = numpy.uint8, numpy.int32, numpy.float32


def _call(name, *arguments):
    code = getattr(_lib, name)(*arguments)
    if code != 0:
        raise RuntimeError(f"{name} answered {code}")


class _Cuda:
    """`torch.cuda`: a primary context for each GPU, and the legacy stream in it."""

    def __init__(self):
        _call("cuInit", 0)
        count = ctypes.c_int()
        _call("cuDeviceGetCount", ctypes.byref(count))
        self.contexts = []
        for ordinal in range(count.value):
            context = ctypes.c_void_p()
            _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
            self.contexts.append(context)
        _call("cuCtxSetCurrent", self.contexts[0])

    def is_available(self):
        return bool(self.contexts)

    def device_count(self):
        return len(self.contexts)

    def synchronize(self, device):
        with self.device(device):
            _call("cuStreamSynchronize", ctypes.c_void_p(0))

    def device(self, device):
        return _Within(self.contexts[int(device.split(":")[1])])


class _Within:
    def __init__(self, context):
        self.context = context

    def __enter__(self):
        _call("cuCtxPushCurrent_v2", self.context)

    def __exit__(self, *_exception):
        _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


cuda = _Cuda()


class Tensor:
    """Numbers, of the host's or in a GPU's memory."""

    def __init__(self, array, device=None):
        self.dtype, self.size, self.device = array.dtype, array.size, device
        self.host = None if device else array
        if device:
            self.address = ctypes.c_ulonglong()
            with cuda.device(device):
                _call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(array.nbytes))
                source = ctypes.c_void_p(array.ctypes.data)
                size = ctypes.c_size_t(array.nbytes)
                _call("cuMemcpyHtoDAsync_v2", self.address, source, size, ctypes.c_void_p(0))

    def __del__(self):
        if self.device:
            with cuda.device(self.device):
                _call("cuMemFree_v2", self.address)

    is_cuda = property(lambda self: self.device is not None)

    def is_contiguous(self):
        return True

    def data_ptr(self):
        return self.address.value if self.device else self.host.ctypes.data

    def numel(self):
        return self.size

    def element_size(self):
        return self.dtype.itemsize

    def cpu(self):
        if not self.device:
            return self
        cuda.synchronize(self.device)
        array = numpy.empty(self.size, self.dtype)
        with cuda.device(self.device):
            _call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), self.address, ctypes.c_size_t(array.nbytes))
        return Tensor(array)

    def __mul__(self, by):
        return Tensor((self.cpu().host * by).astype(self.dtype), self.device)

    def __iadd__(self, what):
        self.host += what
        return self


def zeros(size, dtype, device=None):
    made = Tensor(numpy.zeros(size, dtype), device)
    # What is received into is waited for here, since one of the tests waits for the source's GPU alone: on a GPU these zeros have
    # been written long before.
    if device:
        cuda.synchronize(device)
    return made


empty = zeros


def full(shape, value, dtype, device=None):
    return Tensor(numpy.full(shape, value, dtype), device)


def arange(size, dtype, device=None):
    return Tensor(numpy.arange(size, dtype=dtype), device)


def rand(size, dtype, device=None):
    return Tensor(numpy.random.default_rng(1).random(size, dtype), device)


def randint(low, high, shape, dtype, device=None):
    return Tensor(numpy.random.default_rng(2).integers(low, high, shape, dtype), device)


def equal(one, other):
    return numpy.array_equal(one.cpu().host, other.cpu().host)
