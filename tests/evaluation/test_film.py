"""A film is whole, or it is not there and one line says why."""

import stat
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest

from jaxrl.errors import StorageError, UserError
from jaxrl.evaluation import film
from tests.runs.test_files import growing_to

PICTURES = np.random.default_rng(0).integers(0, 256, (30, 48, 64, 3), np.uint8)


@pytest.mark.filterwarnings("ignore:os.fork")  # reading the film back starts a decoder
@pytest.mark.parametrize("folder", ["x", "file:a b", "%d'[1]", "-o"])
def test_a_film_has_its_pictures_whatever_its_folder_is_called(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = Path(folder) / "x.mp4"
    target.parent.mkdir()
    film.write(target, PICTURES, 12)
    reader = imageio.get_reader(target.absolute())
    assert reader.get_meta_data()["fps"] == 12
    assert reader.count_frames() == len(PICTURES)
    assert [path.name for path in target.parent.iterdir()] == ["x.mp4"]


@pytest.mark.parametrize("name", ["x.mp4", "x.gif"])
def test_a_film_that_does_not_fit_leaves_the_old_one_alone(name, tmp_path):
    (tmp_path / name).write_text("old")
    with growing_to(20_000), pytest.raises(StorageError, match="File too large") as error:
        film.write(tmp_path / name, PICTURES, 12)
    assert str(error.value).startswith(f"cannot write '{tmp_path / name}': ")
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


@pytest.mark.parametrize("name", ["x.mp4", "x.gif"])
def test_a_film_in_place_of_a_folder_is_refused(name, tmp_path):
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        film.write(tmp_path / name, PICTURES, 12)
    with pytest.raises(UserError, match="No such file or directory"):
        film.write(tmp_path / "none" / name, PICTURES, 12)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "failed: its status is 3"),
        (
            "echo '[out#0/mp4 @ 0x5] no such codec' >&2; echo more >&2; exit 1",
            "failed: no such codec",
        ),
        ("exit 0", "failed: its status is 0"),  # without a picture
        ("cat >/dev/null", "failed: its status is 0"),  # without a film
    ],
)
def test_an_encoder_that_fails_leaves_no_film(script, reason, tmp_path, monkeypatch):
    encoder = tmp_path / "ffmpeg"
    encoder.write_text(f"#!/bin/sh\n{script}\n")
    encoder.chmod(encoder.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(encoder))
    with pytest.raises(StorageError) as error:
        film.write(tmp_path / "x.mp4", PICTURES, 12)
    assert str(error.value).endswith(reason)
    assert list(tmp_path.iterdir()) == [encoder]


def test_an_encoder_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"the encoder ffmpeg does not run .*IMAGEIO_FFMPEG_EXE"):
        film.write(tmp_path / "x.mp4", PICTURES, 12)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.mp4", "x.gif"])
def test_a_game_that_fails_leaves_no_film(name, tmp_path):
    def pictures():
        yield PICTURES[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        film.write(tmp_path / name, pictures(), 12)
    assert list(tmp_path.iterdir()) == []
