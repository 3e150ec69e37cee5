"""`jaxrl games`."""

from dataclasses import dataclass

from jaxrl.cli.parsing import Listing


@dataclass(frozen=True)
class Games(Listing):
    """List every game, with its number of actions and the scores of random and human play.

    Example: jaxrl games
    """


def games(arguments: Games) -> int:
    """Prints the games that can be trained on."""
    from jaxrl.atari.games import CATCH_GAMES, atari_games, known_games, minimal_actions
    from jaxrl.atari.scores import reference_scores
    from jaxrl.config import extensions

    if arguments.names:
        print("\n".join((*known_games(), *extensions.all_games())))
        return 0
    references = reference_scores()
    print(f"{'game':<20} {'actions':>7} {'random':>10} {'human':>10}")
    for game in atari_games():
        scores = references.get(game)
        columns = f"{scores.random:>10} {scores.human:>10}" if scores else f"{'-':>10} {'-':>10}"
        print(f"{game:<20} {len(minimal_actions(game)):>7} {columns}")
    for game in CATCH_GAMES:
        print(f"{game:<20} {3:>7} {'-':>10} {'-':>10}   (needs no emulator)")
    for engine, known in extensions.games_by_engine().items():
        for game in known:
            print(f"{game:<20} {'-':>7} {'-':>10} {'-':>10}   (by the engine {engine})")
    return 0
