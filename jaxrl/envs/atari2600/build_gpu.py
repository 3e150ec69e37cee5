"""Compiles the emulator's kernels (native/gpu/kernels.cu) for the GPU that is here, once, by NVRTC.

NVRTC comes with JAX's CUDA wheels; no toolkit is needed. The kernels lie in the user's cache, as
the library of `build` does, under a name that holds everything they depend on.
"""

import ctypes
import functools
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl.envs.atari2600 import build
from jaxrl.errors import UserError
from jaxrl.runtime import native_library

SOURCE = build.NATIVE / "gpu" / "kernels.cu"
# Functions are those of the device; averages are added as OpenCV does.
OPTIONS = ("-std=c++20", "-default-device", "--device-int128", "-fmad=false")
NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
READABLE = 0o644  # the cache may be that of several users
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


def driver_name() -> str:
    """Returns the name of the CUDA driver; $JAXRL_LIBCUDA is one that tests make."""
    return os.environ.get("JAXRL_LIBCUDA") or "libcuda.so.1"


class Card(NamedTuple):
    """The GPUs that are here, which are alike."""

    capability: int  # ten times the compute capability, such as 90
    driver: int  # major version of CUDA that the driver knows, such as 12


class Kernels(NamedTuple):
    """An image of the kernels, and the file that keeps it."""

    image: bytes
    file: str


@functools.cache
def card() -> Card:
    """Returns what the GPUs of this machine are.

    Raises `UserError` if there is no driver or no GPU, or if they are of several kinds.
    """
    try:
        driver = ctypes.CDLL(driver_name())
    except OSError as error:
        raise UserError(f"env.interface = 'xla': there is no CUDA driver: {error}") from None
    if failed := driver.cuInit(0):
        raise UserError(f"env.interface = 'xla': the CUDA driver finds no GPU (error {failed})")
    count = _number(driver.cuDeviceGetCount)
    capabilities = sorted({_capability(driver, number) for number in range(count)})
    if not capabilities:
        raise UserError("env.interface = 'xla': the CUDA driver finds no GPU")
    if len(capabilities) > 1:
        several = " and ".join(str(capability / 10) for capability in capabilities)
        raise UserError(
            f"env.interface = 'xla': the GPUs have compute capability {several}, and the emulator "
            "needs one kind; let CUDA_VISIBLE_DEVICES name GPUs that are alike"
        )
    return Card(capabilities[0], _number(driver.cuDriverGetVersion) // 1000)


def _capability(driver: ctypes.CDLL, number: int) -> int:
    """Returns ten times the compute capability of a GPU."""
    device = _number(driver.cuDeviceGet, number)
    attribute = driver.cuDeviceGetAttribute
    major, minor = (_number(attribute, code, device) for code in (MAJOR, MINOR))
    return 10 * major + minor


def _number(function: Any, *arguments: int) -> int:
    """Returns the number that a function of the driver writes."""
    value = ctypes.c_int()
    if failed := function(ctypes.byref(value), *arguments):
        raise UserError(f"env.interface = 'xla': {function.__name__} failed with {failed}")
    return value.value


@functools.cache
def kernels() -> Kernels:
    """Returns the kernels for the GPUs of this machine, which are compiled on first use.

    Raises `UserError` if there is no GPU or no NVRTC, or if it fails.
    """
    gpu = card()
    nvrtc = Nvrtc(gpu.driver)
    target = nvrtc.target(gpu.capability)
    parts = (target, nvrtc.version(), *OPTIONS)
    key = native_library.digest_of(parts, native_library.files_in(build.NATIVE))
    try:
        out = native_library.cache_dir() / f"atari2600-{target}-{key}.cubin"
        with native_library.alone_without(out) as is_missing:
            if is_missing:
                print("compiling the emulator for this GPU, once", file=sys.stderr)
                _write(out, nvrtc.compiled(target).image)
        return Kernels(out.read_bytes(), str(out))
    except OSError as error:
        raise UserError(
            f"cannot keep the emulator's kernels: {error}; XDG_CACHE_HOME names another place"
        ) from None


def _write(out: Path, image: bytes) -> None:
    """Writes a file that is there whole or not at all, even if the machine stops."""
    with tempfile.NamedTemporaryFile(dir=out.parent, delete=False) as file:
        try:
            file.write(image)
            file.flush()
            os.fchmod(file.fileno(), READABLE)
            os.fsync(file.fileno())
            os.replace(file.name, out)
        except BaseException:
            os.unlink(file.name)
            raise


class Compiled:
    """An image of kernels, and the compiler's log: registers and stack of each function."""

    def __init__(self, image: bytes, log: str) -> None:
        self.image, self.log = image, log


class Nvrtc:
    """NVIDIA's compiler at run time: the newest that is no newer than the driver, if there is one.

    `driver` is the major version of CUDA that the driver knows; without it any will do. Raises
    `UserError` if it is not installed.
    """

    def __init__(self, driver: int | None = None) -> None:
        for name in preferred([*_installed(), *NAMES], driver):
            try:
                self._library = ctypes.CDLL(name)
                return
            except OSError:
                continue
        raise UserError(
            "env.interface = 'xla': the emulator's kernels are compiled by NVRTC, which is not "
            'installed (pip install "jax[cuda12]"); or take --env.interface callback'
        )

    def version(self) -> str:
        """Returns the version, such as 12.9."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def target(self, capability: int) -> str:
        """Returns the target for a compute capability: native, or code that a driver finishes."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", known)
        if capability in known:
            return f"sm_{capability}"
        older = [number for number in known if number < capability]
        if not older:
            raise UserError(
                f"env.interface = 'xla': NVRTC {self.version()} does not compile for GPUs of "
                f"compute capability {capability / 10}; take --env.interface callback"
            )
        return f"compute_{max(older)}"

    def compiled(self, target: str) -> Compiled:
        """Compiles the kernels for a target, such as sm_90.

        Raises `UserError` with the compiler's message if it fails.
        """
        options = [*OPTIONS, f"--gpu-architecture={target}", "--ptxas-options=-v"]
        options.append(f"--include-path={build.NATIVE}")
        program = ctypes.c_void_p()
        source = SOURCE.read_bytes()
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), source, SOURCE.name.encode(), 0, None, None
        )
        flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        failed = self._library.nvrtcCompileProgram(program, len(options), flags)
        log = self._text("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
        if failed:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))
            raise UserError(f"NVRTC cannot compile the emulator's kernels: {log[:2000]}")
        image = self._text("CUBIN" if target.startswith("sm_") else "PTX", program)
        self._call("nvrtcDestroyProgram", ctypes.byref(program))
        return Compiled(image, log)

    def _text(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, text)
        return text.raw

    def _call(self, name: str, *arguments: object) -> None:
        if failed := getattr(self._library, name)(*arguments):
            raise UserError(f"NVRTC: {name} failed with {failed}")


def preferred(names: list[str], driver: int | None) -> list[str]:
    """Returns files of NVRTC in the order to try them: a driver may not take what newer ones make.

    First those of versions that the driver knows, the newest first, then one that does not say
    which it is, then newer ones, the oldest first. Within a version the order is kept.
    """

    def place(name: str) -> tuple[int, int]:
        number = name.rpartition(".so")[2].strip(".").split(".")[0]
        if not number.isdigit():
            return 1, 0
        major = int(number)
        return (0, -major) if driver is None or major <= driver else (2, major)

    return sorted(names, key=place)


def _installed() -> list[str]:
    """Returns the files of NVRTC in NVIDIA's wheels."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    return [str(file) for folder in folders for file in folder.glob("*/lib/libnvrtc.so.*")]
