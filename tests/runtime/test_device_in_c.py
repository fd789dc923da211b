"""A device written in C, from outside of the runtime: registered, opened, used by a program, closed."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from weft.runtime import Executable, devices, nd
from weft.runtime.artifact import Artifact, CodeObject, Variant
from weft.runtime.encode import encode
from weft.runtime.program import (
    BufferSpec,
    CallKernel,
    Copy,
    DeviceSpec,
    ExecutableProgram,
    KernelRef,
    Launch,
    TensorSpec,
)
from weft.support.errors import UserError

COUNT = 8
NBYTES = (4 * COUNT,)
PROGRAM = ExecutableProgram(
    symbols=(),
    inputs=(TensorSpec("x", "float32", ((COUNT,),)),),
    outputs=(TensorSpec("y", "float32", ((COUNT,),)),),
    buffers=(
        BufferSpec("input", 0),
        BufferSpec("arena", nbytes=NBYTES, space=1),
        BufferSpec("arena", nbytes=NBYTES, offset=(64,), space=1),
        BufferSpec("output", 0),
    ),
    kernels=(KernelRef("triple", 0, 1),),
    instructions=(Copy(0, 1, NBYTES), CallKernel(0, (1, 2), launch=Launch()), Copy(2, 3, NBYTES)),
    devices=(DeviceSpec("abacus", 0, (128,)),),
)
"""``y = 3 x`` on the device."""

DEVICE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "weft_device.h"

/* Added to each address: reading or writing there would end the process. */
#define BEYOND ((uintptr_t)1 << 52)
int open_devices, allocations, kernels, launches, context;

static char *real(const void *address) { return (char *)((uintptr_t)address - BEYOND); }
static int32_t open_device(void *given, int32_t index, void **device, weft_error *error) {
    (void)error;
    if (given != &context || index != 0) return WEFT_ERROR_DEVICE;
    open_devices++;
    *device = &open_devices;
    return WEFT_OK;
}
static int32_t info(void *device, weft_device_info *told, weft_error *error) {
    (void)device, (void)error;
    *told = (weft_device_info){.name = "an abacus", .formats = "names"};
    return WEFT_OK;
}
static int32_t allocate(void *device, int64_t nbytes, void **address, weft_error *error) {
    (void)device, (void)error;
    char *made = aligned_alloc(64, ((size_t)nbytes + 63) / 64 * 64);
    if (!made) return WEFT_ERROR_MEMORY;
    allocations++;
    *address = (void *)((uintptr_t)made + BEYOND);
    return WEFT_OK;
}
static void release(void *device, void *address) { (void)device, allocations--, free(real(address)); }
static int32_t copy_in(void *device, void *to, const void *from, int64_t nbytes, weft_error *error) {
    (void)device, (void)error;
    memcpy(real(to), from, (size_t)nbytes);
    return WEFT_OK;
}
static int32_t copy_out(void *device, void *to, const void *from, int64_t nbytes, weft_error *error) {
    (void)device, (void)error;
    memcpy(to, real(from), (size_t)nbytes);
    return WEFT_OK;
}
static int32_t copy_across(void *device, void *to, const void *from, int64_t nbytes, weft_error *error) {
    (void)device, (void)error;
    memmove(real(to), real(from), (size_t)nbytes);
    return WEFT_OK;
}
static int32_t load(void *device, const char *format, const void *code, size_t nbytes, const char *entry, void **kernel,
                    weft_error *error) {
    (void)device, (void)error;
    if (strcmp(format, "names") || nbytes != 6 || memcmp(code, "triple", 6) || strcmp(entry, "triple"))
        return WEFT_ERROR_DEVICE;
    kernels++;
    *kernel = &kernels;
    return WEFT_OK;
}
static void unload(void *device, void *kernel) { (void)device, (void)kernel, kernels--; }
static int32_t launch(void *device, void *kernel, void *const *buffers, int32_t buffer_count, const int64_t *sizes,
                      int32_t size_count, const weft_launch *how, weft_error *error) {
    (void)device, (void)kernel, (void)sizes, (void)size_count, (void)error;
    if (buffer_count != 2 || how->grid[0] != 1) return WEFT_ERROR_DEVICE;
    for (int i = 0; i < 8; i++) ((float *)(void *)real(buffers[1]))[i] = 3 * ((float *)(void *)real(buffers[0]))[i];
    launches++;
    return WEFT_OK;
}
static int32_t synchronize(void *device, weft_error *error) { return (void)device, (void)error, WEFT_OK; }
static void close_device(void *device) { (void)device, open_devices--; }

const weft_device_table table = {WEFT_DEVICE_VERSION, open_device, info, allocate, release, copy_in, copy_out,
    copy_across, load, unload, launch, synchronize, close_device};
"""
MAIN = r"""
#include <stdio.h>

#define EXPECT(condition) if (!(condition)) return printf("line %d: %s\n", __LINE__, error.message), 1

int main(void) {
    static const int64_t words[] = {WORDS};
    weft_error error = {.message = ""};
    weft_device_table other = table;
    EXPECT(weft_device_register("abacus", &table, &context, &error) == WEFT_OK);
    EXPECT(weft_device_register("abacus", &table, &context, &error) == WEFT_OK);
    EXPECT(weft_device_register("abacus", &other, &context, &error) == WEFT_ERROR_DEVICE);
    other.version++;
    EXPECT(weft_device_register("newer", &other, &context, &error) == WEFT_ERROR_DEVICE);
    weft_device *device;
    EXPECT(weft_device_open("abacus", 1, &device, &error) == WEFT_ERROR_DEVICE && !device);
    EXPECT(weft_device_open("abacus", 0, &device, &error) == WEFT_OK);
    const weft_kernel_code code[] = {{NULL, "triple", "names", "triple", 6}};
    const weft_parts parts = {.kernels = code, .kernel_count = 1, .devices = &device, .device_count = 1};
    weft_executable *executable;
    EXPECT(weft_executable_create(words, sizeof words / 8, &parts, 1, &executable, &error) == WEFT_OK);
    weft_device_release(device); /* the executable keeps a reference */
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {0};
    int64_t shape[1] = {8}, out_shape[1];
    weft_tensor input = {.data = x, .shape = shape, .nbytes = sizeof x, .ndim = 1};
    weft_tensor output = {.data = y, .shape = out_shape, .nbytes = sizeof y, .ndim = 1};
    for (int run = 1; run <= 3; run++) {
        EXPECT(weft_run(executable, &input, &output, NULL, &error) == WEFT_OK);
        for (int i = 0; i < 8; i++) EXPECT(y[i] == 3 * x[i]);
        EXPECT(launches == run && open_devices == 1 && kernels == 1);
    }
    weft_executable_free(executable);
    EXPECT(open_devices == 0 && kernels == 0 && allocations == 0);
    return 0;
}
"""


FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O1")


def compiler() -> str:
    found = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if found is None:
        pytest.skip("no C compiler")
    return found


def test_a_device_for_c(csrc: Path, tmp_path: Path) -> None:
    words = ",".join(f"{w}LL" for w in encode(PROGRAM).tolist())
    (tmp_path / "main.c").write_text(DEVICE + MAIN.replace("WORDS", words))
    sources = sorted(str(p) for p in (csrc / "src").glob("*.c"))
    command = [compiler(), *FLAGS, "-pthread", f"-I{csrc / 'include'}", "main.c", *sources, "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def library(csrc: Path, tmp_path: Path) -> Iterator[ctypes.CDLL]:
    """The device as a shared library, registered under the kind of the program."""
    (tmp_path / "device.c").write_text(DEVICE)
    command = [compiler(), *FLAGS, "-shared", "-fPIC", f"-I{csrc / 'include'}", "device.c", "-o", "device.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    loaded = ctypes.CDLL(str(tmp_path / "device.so"))
    table, context = (ctypes.addressof(ctypes.c_char.in_dll(loaded, name)) for name in ("table", "context"))
    devices.register("abacus", devices.DeviceTable(table, context))
    try:
        yield loaded
    finally:
        devices.unregister("abacus")


def count(library: ctypes.CDLL, name: str) -> int:
    return ctypes.c_int.in_dll(library, name).value


def test_a_device_for_python(library: ctypes.CDLL) -> None:
    codes = (CodeObject((Variant(frozenset(), b"triple", "names"),)),)
    exe = Executable(Artifact(PROGRAM, codes, ()), 1)
    x = np.arange(COUNT, dtype=np.float32)
    for run in (1, 2):
        np.testing.assert_array_equal(exe(x), 3 * x)
        assert count(library, "launches") == run
    there = nd.array(x, devices.device("abacus"))
    np.testing.assert_array_equal(there.numpy(), x)
    assert (count(library, "open_devices"), count(library, "kernels")) == (1, 1)
    del exe, there
    gc.collect()
    assert [count(library, name) for name in ("open_devices", "kernels", "allocations")] == [0, 0, 0]


def test_wrong_devices_are_refused(library: ctypes.CDLL) -> None:
    with pytest.raises(UserError) as known:
        devices.register("abacus", devices.DeviceTable(1))
    with pytest.raises(UserError) as absent:
        devices.device("abacus", 1)
    assert (known.value.code, absent.value.code) == ("G012", "G010")
