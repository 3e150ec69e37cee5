"""Compiles the emulator's kernels (native/gpu_engine.cu) for the GPU that is here, once, by NVRTC.

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

from jaxrl.envs.atari2600 import build
from jaxrl.errors import UserError

SOURCE = build.NATIVE / "gpu_engine.cu"
# Functions are those of the device; averages are added as OpenCV does.
OPTIONS = ("-std=c++17", "-default-device", "--device-int128", "-fmad=false")
NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


def driver_name() -> str:
    """Returns the name of the CUDA driver; $JAXRL_LIBCUDA is one that tests make."""
    return os.environ.get("JAXRL_LIBCUDA") or "libcuda.so.1"


@functools.cache
def compute_capability() -> int:
    """Returns ten times the compute capability of the first GPU, such as 90.

    Raises `UserError` if there is no driver or no GPU.
    """
    try:
        driver = ctypes.CDLL(driver_name())
    except OSError as error:
        raise UserError(f"env.interface = 'xla': there is no CUDA driver: {error}") from None
    device, values = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0)
    for value, attribute in zip(values, (MAJOR, MINOR), strict=True):
        failed = failed or driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    if failed:
        raise UserError(f"env.interface = 'xla': the CUDA driver finds no GPU (error {failed})")
    return 10 * values[0].value + values[1].value


@functools.cache
def kernels() -> bytes:
    """Returns the image of the kernels for the GPU of this machine, which is compiled on first use.

    Raises `UserError` if there is no GPU or no NVRTC, or if it fails.
    """
    nvrtc = Nvrtc()
    target = nvrtc.target(compute_capability())
    parts = (target, nvrtc.version(), *OPTIONS)
    key = build.digest_of(parts, build.files_in(build.NATIVE))
    try:
        out = build.cache_dir() / f"atari2600-{target}-{key}.cubin"
        with build.alone_without(out) as is_missing:
            if is_missing:
                print("compiling the emulator for this GPU, once", file=sys.stderr)
                _write(out, nvrtc.compiled(target).image)
        return out.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot keep the emulator's kernels: {error}; XDG_CACHE_HOME names another place"
        ) from None


def _write(out: Path, image: bytes) -> None:
    """Writes a file that is there whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=out.parent, delete=False) as file:
        file.write(image)
    os.replace(file.name, out)


class Compiled:
    """An image of kernels, and what the compiler said: of each function its registers and stack."""

    def __init__(self, image: bytes, log: str) -> None:
        self.image, self.log = image, log


class Nvrtc:
    """NVIDIA's compiler at run time.

    Raises `UserError` if it is not installed.
    """

    def __init__(self) -> None:
        for name in [*_installed(), *NAMES]:
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
        """Returns the target for a compute capability: its own, or code that a driver finishes."""
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

        Raises `UserError` with the compiler's words if it fails.
        """
        options = [*OPTIONS, f"--gpu-architecture={target}", "--ptxas-options=-v"]
        options.append(f"--include-path={build.NATIVE}")
        program = ctypes.c_void_p()
        source = SOURCE.read_bytes()
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), source, SOURCE.name.encode(), 0, None, None
        )
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        failed = self._library.nvrtcCompileProgram(program, len(options), words)
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


def _installed() -> list[str]:
    """Returns the files of NVRTC in NVIDIA's wheels, the newest first."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    found = [str(file) for folder in folders for file in folder.glob("*/lib/libnvrtc.so.*")]
    return sorted(found, key=lambda file: file.rpartition(".")[2], reverse=True)
