"""The end of training: every run is evaluated and drawn."""

from collections.abc import Sequence

import jax

from jaxrl.analysis import curves
from jaxrl.evaluation import evaluate
from jaxrl.formatting import games, shell_word
from jaxrl.runs import evaluation_record, layout
from jaxrl.runtime import processes
from jaxrl.training.display import Display
from jaxrl.training.session import TrainingSession
from jaxrl.types import ActorState, LoopState


def finish_runs(
    sessions: Sequence[TrainingSession], state: LoopState, step: int, numbers: Sequence[int]
) -> None:
    """Finishes the runs of these numbers, in process 0."""
    agents = sessions[0].agents(state)  # in all processes: arrays of several are read together
    if processes.index() > 0:
        return
    with Display() as display:
        for number in numbers:
            finish(sessions[number]._replace(display=display), agents[number].actor, step)


def finish(session: TrainingSession, actor: ActorState, step: int) -> None:
    """Evaluates and draws a run that has reached its end."""
    config, run_dir, display = session.config, session.run_dir, session.display
    if episodes := config.evaluation.episodes:
        # Games may be long: half an hour on the console each.
        with display.busy(
            f"{session.name}evaluating {games(episodes)}", announced=True
        ) as activity:
            actor = jax.device_put(jax.device_get(actor), jax.local_devices()[0])
            protocol = evaluation_record.protocol_of(config)
            result = evaluate.evaluate(
                config, actor, protocol, episodes, step=step,
                show=lambda ended: activity.update(f"{ended} ended"),
            )  # fmt: skip
        try:
            evaluation_record.write(run_dir, result)
        finally:  # the scores are shown if it fails
            display.say(session.name + evaluation_record.describe(result))
    # A picture without games shows the evaluation.
    curves.learning_curve([run_dir], run_dir / layout.LEARNING_CURVE)
    display.say(
        f"learning curve: {run_dir / layout.LEARNING_CURVE}; watch it play: "
        f"jaxrl play {shell_word(run_dir)}"
    )
