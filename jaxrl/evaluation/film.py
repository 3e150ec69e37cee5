"""Writes pictures as a film, an mp4 or a GIF, whole or not at all."""

import contextlib
import itertools
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import imageio.v2 as imageio
import imageio_ffmpeg
import numpy as np

from jaxrl.errors import StorageError, UserError
from jaxrl.runs.files import writing

# The encoder's options: from pictures on its standard input to an mp4 that every browser plays.
FROM_PICTURES = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-i", "-")
TO_MP4 = ("-vcodec", "libx264", "-pix_fmt", "yuv420p", "-crf", "25", "-f", "mp4")


def write(target: Path, pictures: Iterable[np.ndarray], speed: float) -> None:
    """Writes a GIF that repeats, or an mp4, by the suffix; each picture as soon as it is drawn.

    There is at least one picture u8[H, W, 3], all have the same even sides, and `speed` of them
    fill a second. Raises as `files.writing` does, and `StorageError` where the encoder fails.
    """
    with writing(target) as temporary:
        if target.suffix == ".gif":
            _write_gif(temporary, pictures, speed)
        else:
            _write_mp4(target, temporary, iter(pictures), speed)


def _write_gif(path: Path, pictures: Iterable[np.ndarray], speed: float) -> None:
    writer: Any
    with (
        path.open("wb") as file,
        imageio.get_writer(file, format="GIF-PIL", fps=speed, loop=0) as writer,
    ):
        for picture in pictures:
            writer.append_data(picture)


def _write_mp4(target: Path, path: Path, pictures: Iterator[np.ndarray], speed: float) -> None:
    path.open("wb").close()  # raises with the reason, which an encoder may not tell
    first = next(pictures)
    with tempfile.TemporaryFile() as errors:
        with _encoder(path, first.shape, speed, errors) as encoder:
            fed = _feed(encoder, itertools.chain([first], pictures))
        if encoder.returncode or not fed or not path.stat().st_size:
            errors.seek(0)
            line = errors.read().decode(errors="replace").split("\n")[0]
            message = line.rpartition("] ")[2]  # without the part of the encoder and its address
            reason = message or f"its status is {encoder.returncode}"
            raise StorageError(f"cannot write '{target}': the encoder ffmpeg failed: {reason}")


def _encoder(
    path: Path, shape: Sequence[int], speed: float, errors: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Starts the process that reads pictures and writes the mp4. Raises `UserError`."""
    height, width, _ = shape
    try:
        return subprocess.Popen(
            # "file:", because a name may look like an address or an option.
            [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error", "-s", f"{width}x{height}",
             "-r", str(speed), *FROM_PICTURES, *TO_MP4, f"file:{path}"],
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            process_group=0,  # Ctrl-C is for this process, which ends the encoder
            restore_signals=False,  # it names the reason where a file may not grow
        )  # fmt: skip
    except (RuntimeError, OSError) as error:
        raise UserError(f"the encoder ffmpeg does not run ({error}): reinstall imageio-ffmpeg, or "
                        "name another in IMAGEIO_FFMPEG_EXE") from None  # fmt: skip


def _feed(encoder: "subprocess.Popen[bytes]", pictures: Iterator[np.ndarray]) -> bool:
    """Sends the pictures to the encoder; returns whether it has read all."""
    assert encoder.stdin is not None
    try:
        for picture in pictures:
            encoder.stdin.write(np.ascontiguousarray(picture).data)
        encoder.stdin.close()
        return True
    except BrokenPipeError:  # it has ended: its status and its output tell why
        return False
    except BaseException:
        encoder.kill()
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            encoder.stdin.close()
