import io

from rich.console import Console

from jaxrl.program.episode_statistics import EpisodeSummary
from jaxrl.training import display as display_module
from jaxrl.training.display import Display, TrainingStatus, status_line

GAMES = EpisodeSummary(250, -12.34, -21.0, 3.0, 900.0)


def test_the_line_has_steps_frames_rate_time_left_and_return():
    status = TrainingStatus(1_250_000, 5_000_000, 1000.0, GAMES)
    # 3,750,000 steps left at 1,000 a second are 3,750 seconds.
    assert status_line(status) == (
        " 25%  1.25M steps  5.00M frames  1,000 steps/s  1:02:30 left  return -12.3"
    )
    assert status_line(status._replace(note="so")).endswith("return -12.3  so")
    assert "  1.25M frames  " in status_line(status._replace(frame_skip=1))
    none = status._replace(games=EpisodeSummary(0, None, None, None, None))
    assert status_line(none).endswith("no game over yet")
    seeds = status._replace(members=4)
    assert status_line(seeds).endswith(
        "4 x 1,000 steps/s  1:02:30 left  return -12.3 (-21.0 to 3.0)"
    )
    last = none._replace(step=none.total_steps)
    assert status_line(last).endswith("no game ended in this run: train longer")


def test_off_a_terminal_only_intervals_are_printed(capsys):
    status = TrainingStatus(10, 100, 1.0, GAMES)
    with Display() as display:
        display.update(status, interval_ended=False)
        display.update(status, interval_ended=True)
    assert capsys.readouterr().err.count("\n") == 1


def test_on_a_terminal_the_line_is_live_and_results_go_to_standard_output(capsys):
    screen = io.StringIO()
    display = Display(Console(file=screen, force_terminal=True, width=120, highlight=False))
    with display:
        with display.busy("compiling"):
            pass
        display.update(TrainingStatus(10, 100, 1.0, GAMES), interval_ended=False)
        print("a result")
    assert capsys.readouterr().out == "a result\n"
    shown = screen.getvalue()
    assert "compiling ..." in shown
    assert "compiling: 0.0 s" in shown
    assert "10%" in shown
    assert "a result" not in shown


def test_off_a_terminal_a_long_activity_says_that_it_begins_and_how_far_it_is(capsys, monkeypatch):
    with Display() as display:
        with display.busy("compiling"):
            assert capsys.readouterr().err == ""
        assert capsys.readouterr().err == "compiling: 0.0 s\n"
        with display.busy("evaluating 30 games", announced=True) as activity:
            assert capsys.readouterr().err == "evaluating 30 games ...\n"
            activity.update("3 ended")  # too soon for another line
            assert capsys.readouterr().err == ""
            monkeypatch.setattr(display_module, "SECONDS_PER_LINE", 0.0)
            activity.update("7 ended")
            assert capsys.readouterr().err == "evaluating 30 games: 7 ended ...\n"


def test_on_a_terminal_it_is_in_the_live_line():
    screen = io.StringIO()
    display = Display(Console(file=screen, force_terminal=True, width=120, highlight=False))
    with display, display.busy("evaluating 30 games", announced=True) as activity:
        activity.update("7 ended")
    assert "evaluating 30 games: 7 ended ..." in screen.getvalue()
    assert screen.getvalue().count("evaluating 30 games: 0.0 s") == 1
