import json

from jaxrl.cli import main

SMALL = ["--num-envs", "4", "--num-devices", "1", "--seconds", "0.1", "--repeats", "1",
         "--network.torso", "nips"]  # fmt: skip


def test_bench_measures_every_load_on_atari(capsys):
    assert main(["bench", "--game", "pong", *SMALL, "--json"]) == 0
    rates = json.loads(capsys.readouterr().out)
    assert list(rates) == ["loop", "emulation", "inference", "training"]
    assert all(rate["steps_per_second"] > 0 for rate in rates.values())
    assert all(rates[load]["compile_seconds"] > 0 for load in list(rates)[1:])


def test_bench_prints_a_table_and_needs_no_emulator(capsys):
    assert main(["bench", "--game", "catch", *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["load", "emulation", "inference", "training"]
