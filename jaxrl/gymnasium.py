"""The Atari games in Gymnasium's registry, as vector environments.

    import gymnasium
    import jaxrl.gymnasium

    gymnasium.register_envs(jaxrl.gymnasium)
    envs = gymnasium.make_vec("jaxrl/Pong-v5", num_envs=64)

Names and versions follow those of ale-py (ALE/Pong-v5); keywords are the options of
`jaxrl.envs.VectorEnv`. Importing this imports neither JAX nor the emulator.
"""

import gymnasium

from jaxrl.atari.games import atari_games

for _game in atari_games():
    gymnasium.register(
        f"jaxrl/{_game.title().replace('_', '')}-v5",
        vector_entry_point="jaxrl.envs:VectorEnv",
        kwargs={"game": _game},
    )
