// A game as a reinforcement learner sees it: a step is four frames of one action, and a row its reward,
// its ends and an observation. The conventions are EnvPool's, row for row:
//
// - an observation is the maximum of the last two of the four frames; a game that ends within the step
//   shows the frame of its end, or, where that is not one of the last two, what was seen before;
// - the row after an end is the reset, which ignores its action: a new game after the end of one or at
//   the time limit, else, after a lost life, the same game; then 1 to `noop_max` frames without input,
//   of which FIRE takes the last place in games that have it.
#pragma once

#include "game.h"
#include "observation.h"

namespace jaxrl {

constexpr int kFrameSkip = 4;

struct Rules {
  i32 max_steps = 27000;         // time limit of a game
  i32 noop_max = 30;
  float repeat_probability = 0;  // of sticky actions, in each frame
  u8 fire_reset = 1;
  u8 episodic_life = 1;
  u8 reward_clip = 1;
  u8 exact_resets = 0;           // start games as ALE does, not from the cache
  u8 num_actions = 0;
  u8 actions[kActions] = {};
};

// One environment; plain data.
struct Environment {
  Game game;
  u64 random;   // state of its generator
  i32 steps;    // of the game
  i16 lives;    // after the newest row
  u8 done;      // the newest row ended an episode
  u8 held;      // action of the last frame, which a sticky one repeats
};

// A row besides its observation.
struct Row {
  float reward;   // clipped where the rules say so
  float score;    // what the game gave
  i32 lives;
  u8 terminated, truncated, game_over, reset;
};

// splitmix64 (Steele 2014).
inline u64 next_random(u64& state) {
  u64 z = (state += 0x9E3779B97F4A7C15ull);
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

inline u32 random_below(u64& state, u32 end) {
  return (u32)((next_random(state) >> 32) * end >> 32);
}

inline bool random_chance(u64& state, float probability) {
  return (double)(next_random(state) >> 11) * 0x1p-53 < probability;
}

// What a thread needs to step environments of one cartridge.
struct Stepper {
  Player player;
  Screens& screens;
  const Rules& rules;
  const Averager& averager;
};

inline i32 act_stickily(Stepper& stepper, Environment& env, u8 action, bool draws) {
  const float probability = stepper.rules.repeat_probability;
  if (probability == 0 || !random_chance(env.random, probability)) env.held = action;
  stepper.player.screens = draws ? &stepper.screens : nullptr;
  return act(stepper.player, env.game, env.held);
}

// The start of a game, and the screens that it leaves behind.
struct Start {
  Game game;
  Screens screens;
};

inline void start_game(Stepper& stepper, Environment& env, const Start* start) {
  if (start) {
    env.game = start->game;
    stepper.screens = start->screens;
  } else {
    stepper.player.screens = &stepper.screens;
    reset_game(stepper.player, env.game);
  }
  env.held = kNoop;
}

// Plays the frames between the start of an episode and its first row. Returns whether the game ended
// within them, which starts another.
inline bool play_noops(Stepper& stepper, Environment& env, const Start* start, bool draws_all) {
  const bool fires = stepper.rules.fire_reset;
  const u32 frames = 1 + random_below(env.random, (u32)stepper.rules.noop_max);
  bool ended = false;
  for (u32 frame = 1; frame <= frames; frame++) {
    const bool last = frame == frames;
    const u8 action = last && fires ? kFire : kNoop;
    act_stickily(stepper, env, action, last || draws_all);
    if (env.game.progress.over && action == kNoop) {
      start_game(stepper, env, start);
      ended = true;
    }
  }
  return ended;
}

// Plays the reset: starts a game where one is over, and plays frames without input. Games start from
// `start`, or as ALE starts them where it is null.
inline Row reset(Stepper& stepper, Environment& env, const Start* start, u8* out) {
  const Rules& rules = stepper.rules;
  const bool new_game =
      !rules.episodic_life || env.game.progress.over || env.steps >= rules.max_steps;
  if (new_game) {
    start_game(stepper, env, start);
    env.steps = 0;
  }
  const Environment before = env;
  stepper.player.cut_short = false;
  bool ended = play_noops(stepper, env, start, false);
  if (stepper.player.cut_short) {
    // Its lower lines are those of a frame that was not drawn: play again, drawing all.
    env = before;
    ended = play_noops(stepper, env, start, true);
  }
  env.lives = env.game.progress.lives;
  env.done = 0;
  Row row{};
  row.reset = 1;
  row.game_over = ended && !new_game;
  row.lives = env.lives;
  const Screens& screens = stepper.screens;
  if (out) observe(stepper.averager, screens.last(), screens.last(), out);
  return row;
}

// Plays four frames of an action. Draws the last two of them, or all; returns how many of the last
// two were played, and adds the rewards to `score`.
inline int play_four(Stepper& stepper, Environment& env, u8 action, bool draws, bool draws_all,
                     i32& score) {
  int seen = 0;
  for (int frame = 0; frame < kFrameSkip && !env.game.progress.over; frame++) {
    const bool last_two = frame >= kFrameSkip - 2;
    Screens& screens = stepper.screens;
    // A frame that goes on is drawn over what has been seen of it.
    if (draws && frame == kFrameSkip - 1 && env.game.console.goes_on)
      memcpy(screens.pixels[1 - screens.newest], screens.last(), sizeof screens.pixels[0]);
    score += act_stickily(stepper, env, action, draws && (last_two || draws_all));
    seen += last_two;
  }
  return seen;
}

// Plays one row. The observation is written to `out`, if that is not null; where the game has ended
// before its last two frames, `out` keeps what it holds.
inline Row step(Stepper& stepper, Environment& env, u8 action, const Start* start, u8* out) {
  if (env.done) return reset(stepper, env, start, out);
  const Rules& rules = stepper.rules;
  const Screens& screens = stepper.screens;
  const Environment before = env;
  i32 score = 0;
  stepper.player.cut_short = false;
  int seen = play_four(stepper, env, rules.actions[action], out, false, score);
  if (stepper.player.cut_short) {
    env = before;
    score = 0;
    seen = play_four(stepper, env, rules.actions[action], out, true, score);
  }
  if (out && seen > 0)
    observe(stepper.averager, screens.last(), seen == 2 ? screens.before_last() : screens.last(),
            out);
  env.steps++;
  const Progress& progress = env.game.progress;
  const bool late = env.steps >= rules.max_steps;
  const bool lost_life = rules.episodic_life && 0 < progress.lives && progress.lives < env.lives;
  env.done = progress.over || late || lost_life;
  env.lives = progress.lives;
  Row row{};
  row.score = (float)score;
  row.reward = rules.reward_clip ? (float)((score > 0) - (score < 0)) : (float)score;
  row.lives = env.lives;
  row.truncated = late;
  row.terminated = env.done && !late;
  row.game_over = progress.over || late;
  return row;
}

}  // namespace jaxrl
