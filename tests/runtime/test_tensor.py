"""Tensors: sharing memory through the buffer protocol and DLPack, in both directions."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys

import numpy as np
import pytest
from small_artifacts import artifact, vector_program

from weft.runtime import Tensor, device, from_dlpack, nd
from weft.runtime.executable import Executable
from weft.runtime.tensor import as_tensor
from weft.support.errors import InputError, UserError


class Producer:
    """An object that only speaks DLPack; ``versioned`` chooses the protocol."""

    def __init__(self, tensor: object, versioned: bool) -> None:
        self.tensor, self.versioned = tensor, versioned

    def __dlpack__(self, **options: object) -> object:
        if not self.versioned and options:
            raise TypeError("no options")
        return self.tensor.__dlpack__(**options)  # type: ignore[attr-defined]

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_new_tensors_are_aligned():
    for shape in ((), (3,), (2, 0, 4), (5, 7)):
        t = nd.empty(shape, "float64")
        assert t.address % 64 == 0 and t.shape == shape and t.dtype == "float64" and t.contiguous
        assert t.numpy().shape == shape and t.nbytes == t.numpy().nbytes and t.device == device("cpu", 0)


def test_array_copies_values():
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    t = nd.array(values)
    values[0, 0] = 99
    assert t.numpy().tolist() == [[0, 1, 2], [3, 4, 5]] and t.dtype == "int32"
    assert nd.array([1, 2], dtype="float16").numpy().dtype == np.float16
    assert np.asarray(t).sum() == 15 and np.array(t, dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_in_shares_memory(versioned):
    source = np.arange(12, dtype=np.float32).reshape(3, 4)
    t = from_dlpack(Producer(source, versioned))
    source[1, 2] = 50
    assert t.numpy()[1, 2] == 50 and t.shape == (3, 4)
    view = from_dlpack(source.T)
    assert view.shape == (4, 3) and not view.contiguous
    np.testing.assert_array_equal(view.numpy(), source.T)


def test_a_row_is_in_every_order():
    """With one dimension, or none, row-major and column-major order are the same."""
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes, get.restype = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int], ctypes.c_int
    release = ctypes.pythonapi.PyBuffer_Release
    release.argtypes, release.restype = [ctypes.c_void_p], None
    for shape in ((), (8,)):
        tensor = nd.empty(shape, "float32")
        for flags in REQUESTS.values():
            view = (ctypes.c_char * 256)()
            assert get(tensor, view, flags) == 0
            release(view)


REQUESTS = {
    "C": 0x20 | 0x18,
    "F": 0x40 | 0x18,
    "any": 0x80 | 0x18,
    "strides": 0x18,
    "shape": 0x08,
    "simple": 0,
}
"""Flags of the buffer protocol (PyBUF_…)."""


@pytest.mark.parametrize("request_", REQUESTS)
def test_buffers_are_as_they_are_asked_for(request_):
    """A consumer that asks for contiguous memory reads it as such: strided memory must be refused."""
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes, get.restype = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int], ctypes.c_int
    release = ctypes.pythonapi.PyBuffer_Release
    release.argtypes, release.restype = [ctypes.c_void_p], None
    base = np.arange(48, dtype=np.float32).reshape(6, 8)
    vectors = (base[0], base[:, 0], base[0, ::2], base[::6, 0], base[3:4, 3].reshape(()))
    arrays = (base, base.T, base[:, ::2], base[:, :1], *vectors)
    for array in arrays:
        t, view = from_dlpack(array), ctypes.create_string_buffer(256)
        c, f = array.flags.c_contiguous, array.flags.f_contiguous
        right = {"C": c, "F": f, "any": c or f, "strides": True, "shape": c, "simple": c}[request_]
        try:
            get(t, view, REQUESTS[request_])
        except BufferError:
            granted = False
        else:
            granted = True
            release(view)
        assert right or not granted, (request_, array.shape, array.strides)  # more may be refused
        assert granted or not (c and request_ != "F"), (request_, array.shape, array.strides)


def test_a_deleter_does_not_meet_the_exception_of_the_caller():
    """The memory of a tensor may be released by Python code, while an exception is on its way."""
    seen = []

    class Memory(np.ndarray):
        def __del__(self) -> None:
            seen.append(sum(range(10)))  # fails at once where an exception is set

    def fail() -> None:
        t = from_dlpack(Producer(np.zeros(4, np.float32).view(Memory), True))
        assert t.shape == (4,)
        raise KeyError("on its way")

    with pytest.raises(KeyError):
        fail()
    gc.collect()
    assert seen == [45]


class DLTensor(ctypes.Structure):
    """As DLPack defines it, up to what these tests change."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


def layout_of(capsule: object, versioned: bool) -> DLTensor:
    """The tensor inside a capsule, to be changed in place: NumPy itself never makes some of what is allowed."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    before = 32 if versioned else 0  # version, context, deleter and flags come first
    address = pointer(capsule, b"dltensor_versioned" if versioned else b"dltensor")
    return DLTensor.from_address(address + before)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(("first", "skipped", "compact"), [(0, 0, True), (3, 12, False), (3, 4, True)])
def test_dlpack_in_begins_behind_the_offset(versioned: bool, first: int, skipped: int, compact: bool) -> None:
    """``data`` may point to the allocation and ``byte_offset`` into it; missing strides mean compact rows."""
    source = np.arange(12, dtype=np.float32)
    part = source[first:].reshape(-1, 3)
    capsule = part.__dlpack__(**({"max_version": (1, 0)} if versioned else {}))
    layout = layout_of(capsule, versioned)
    layout.data -= skipped
    layout.byte_offset = skipped
    if compact:
        layout.strides = None
    t = from_dlpack(capsule)
    assert t.shape == part.shape and np.array_equal(np.asarray(t), part)
    source[first] = -1  # memory is shared
    assert np.asarray(t)[0, 0] == -1


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("kind", [3, 11])
def test_pinned_memory_is_main_memory(kind: int, versioned: bool) -> None:
    """Memory that CUDA (3) or ROCm (11) pinned is shared like any other, and released once."""
    source = np.arange(6, dtype=np.float32)
    capsule = source.__dlpack__(**({"max_version": (1, 0)} if versioned else {}))
    layout_of(capsule, versioned).device[0] = kind
    before = sys.getrefcount(source)
    t = from_dlpack(capsule)
    source[0] = 40
    assert np.asarray(t)[0] == 40 and str(t.device) == "cpu(0)"
    del t, capsule
    gc.collect()
    assert sys.getrefcount(source) == before - 1


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("kind", [2, 4, 10, 13, 99])
def test_memory_of_other_devices_is_refused_and_given_back(kind: int, versioned: bool) -> None:
    source = np.arange(6, dtype=np.float32)
    capsule = source.__dlpack__(**({"max_version": (1, 0)} if versioned else {}))
    layout = layout_of(capsule, versioned)
    layout.device[0] = kind
    before = sys.getrefcount(source)
    with pytest.raises(InputError, match=f"DLPack device {kind}"):
        from_dlpack(capsule)
    del capsule
    gc.collect()
    assert sys.getrefcount(source) == before - 1


_AT_THE_END = """
import atexit, sys, threading, time
import numpy as np, weft
from weft import nd
from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS
from weft.runtime.tensor import from_dlpack

exe = weft.compile(parse("def @main<n>(%x: f32[n, 4]) -> f32[n, 4] { %0 = softmax(%x, axis=1) return %0 }", OPERATORS))
x = np.ones((100000, 4), np.float32)
if KIND == "daemons":
    def forever():
        while True:
            exe(x)
    for _ in range(3):
        threading.Thread(target=forever, daemon=True).start()
    time.sleep(0.1)
elif KIND == "exports":
    sys.kept = [nd.empty((4,)).__dlpack__(), np.from_dlpack(nd.empty((9,))), from_dlpack(np.ones(10)), exe]
elif KIND == "finalizer":
    class Late:
        def __del__(self):
            try:
                exe(x[:3])
            except Exception:
                pass
    sys.kept = Late()
elif KIND == "atexit":
    atexit.register(lambda: exe(x[:3]))
else:
    threading.Thread(target=lambda: [exe(x) for _ in range(20)]).start()
print("end", flush=True)
"""


@pytest.mark.parametrize("kind", ["daemons", "exports", "finalizer", "atexit", "thread"])
def test_the_interpreter_ends_while_the_runtime_is_used(kind: str) -> None:
    """Runs of daemons, tensors that others hold, runs in finalizers: the process ends in order."""
    code = f"KIND = {kind!r}\n{_AT_THE_END}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_dlpack_out_shares_memory():
    t = nd.array(np.arange(6, dtype=np.int64).reshape(2, 3))
    array = np.from_dlpack(t)
    array[0, 1] = 40
    assert t.numpy()[0, 1] == 40
    address = t.address
    del t
    gc.collect()
    assert array.ctypes.data == address and array.sum() == 54


def test_dlpack_round_trip_keeps_the_owner_alive():
    array = np.from_dlpack(from_dlpack(from_dlpack(np.full(1000, 7.0))))
    gc.collect()
    assert (array == 7).all()


def test_a_capsule_is_used_once():
    capsule = nd.empty((2,)).__dlpack__()
    from_dlpack(capsule)
    with pytest.raises(InputError):
        from_dlpack(capsule)
    del capsule
    nd.empty((2,)).__dlpack__()  # an unused capsule gives its tensor back
    with pytest.raises(InputError):
        from_dlpack("text")


def test_read_only_arrays():
    source = np.arange(3.0)
    source.flags.writeable = False
    t = from_dlpack(source)
    assert t.readonly and not t.numpy().flags.writeable
    with pytest.raises(BufferError):
        t.__dlpack__()
    assert from_dlpack(t).readonly


def test_bfloat16():
    import ml_dtypes

    source = np.arange(5).astype(ml_dtypes.bfloat16)
    t = as_tensor(source)
    assert t.dtype == "bfloat16" and t.numpy().dtype == source.dtype
    shared = from_dlpack(Producer(t, True))
    assert shared.dtype == "bfloat16" and shared.address == t.address
    np.testing.assert_array_equal(shared.numpy().astype(float), np.arange(5))


def test_executables_take_dlpack(kernels):
    exe = Executable(artifact(vector_program("double_plus_one"), kernels))
    x = np.arange(8, dtype=np.float32)
    for value in (nd.array(x), Producer(x, True), Producer(x, False), from_dlpack(np.repeat(x, 2)[::2])):
        np.testing.assert_array_equal(exe(value), 2 * x + 1)
    out = nd.empty((8,))
    assert exe(nd.array(x), out=out) is out
    np.testing.assert_array_equal(out.numpy(), 2 * x + 1)
    with pytest.raises(InputError, match="float64"):
        exe(Producer(x.astype(np.float64), True))


def test_executables_take_torch(kernels):
    torch = pytest.importorskip("torch")
    exe = Executable(artifact(vector_program("double_plus_one"), kernels))
    x = torch.arange(8, dtype=torch.float32)
    np.testing.assert_array_equal(exe(x), 2 * x.numpy() + 1)
    assert torch.from_dlpack(nd.array(x.numpy())).tolist() == x.tolist()
    with pytest.raises(InputError, match="input 'x'"):
        exe(x.requires_grad_())


def test_errors():
    with pytest.raises(UserError):
        device("cuda", 0)
    with pytest.raises(UserError):
        nd.empty((1,), "complex64")
    with pytest.raises(ValueError):
        nd.empty((-1,))
    with pytest.raises(ValueError):
        nd.empty((2**40, 2**40))
    with pytest.raises(ValueError):
        Tensor.wrap(bytes(7), (2,), "float32")
