// A game as a reinforcement learner sees it: a step is some frames of one action, and a row its
// reward, its ends and an observation. The conventions are EnvPool's, row for row:
//
// - an observation is the maximum of a step's last two frames; a game that ends within the step
//   shows the frame of its end, or, where that is not one of the last two, what was seen before;
// - the row after an end is the reset, which ignores its action: a new game after the end of one
//   or at the time limit, else, after a lost life, the same game; then 1 to `noop_max` frames
//   without input, of which FIRE takes the last place in games that have it.
#pragma once

#include "base/random.h"
#include "console/game.h"
#include "env/observation.h"

namespace jaxrl {

constexpr u8 kFrameSkip = 4;

struct Rules {
  i32 max_steps = 27000;  // time limit of a game
  i32 noop_max = 30;
  float repeat_probability = 0;  // of sticky actions, in each frame
  u8 fire_reset = 1;
  u8 episodic_life = 1;
  u8 reward_clip = 1;
  u8 exact_resets = 0;  // start games as ALE does, not from the cache
  u8 num_actions = 0;
  u8 actions[kActions] = {};
  u8 frame_skip = kFrameSkip;  // frames of a step
  i32 mode = Variant::kFirst;
  u32 difficulty = 0;

  Variant variant() const { return {mode, difficulty}; }
};

// One environment; plain data.
struct Environment {
  Game game;
  u64 random;  // state of its generator
  i32 steps;   // of the game
  i16 lives;   // after the newest row
  u8 done;     // the newest row ended an episode
  u8 held;     // action of the last frame, which a sticky one repeats
};

// A row besides its observation.
struct Row {
  float reward;  // clipped where the rules say so
  float score;   // what the game gave
  u8 terminated, truncated, game_over, reset;
};

// The start of a game, and the screens that it leaves behind, in colors.
struct Start {
  Game game;
  Screens screens;
};

// Starts follow played games, as ALE's do: RAM keeps what a game leaves, and timers are drawn anew.
constexpr u32 kStarts = 16;

#if JAXRL_HOST
inline std::vector<Start> make_starts(Player player) {
  constexpr int kFramesBetween = 300;
  auto screens = std::make_unique<Screens>();
  screens->colors = kIdentity.of;
  std::vector<Start> starts(kStarts);
  Game game;
  player.screens = screens.get();
  load_game(player, game);
  u64 random = 0;
  for (Start& start : starts) {
    player.screens = screens.get();
    reset_game(player, game);
    start.game = game;
    start.screens = *screens;
    player.screens = nullptr;
    for (int frame = 0; frame < kFramesBetween; frame++)
      act(player, game, (u8)random_below(random, kActions));
  }
  return starts;
}
#endif

// What a thread needs to step environments of one cartridge.
struct Stepper {
  Player player;
  Screens& screens;
  const Rules& rules;
  const Averager& averager;
  const u8* grays;      // of its television's colors
  const Start* starts;  // of which games begin as copies, or null: they begin as ALE lets them
  u32 num_starts;
#if JAXRL_GPU
  u8 (*gray)[kSeenLines * kScreenWidth];  // scratch for two screens: a lane's own memory is small
#endif
};

// Which frames of a row are drawn.
enum class Draws : u8 { kNone, kSeen, kAll };

// What it takes to play an environment's newest row again: the last rows with two frames that were
// drawn whole, one or, of one frame each, two, from what the environment was before them; and those
// after them.
struct Turn {
  static constexpr u32 kMostRows = 16;
  Environment before;
  u8 actions[kMostRows];
  u8 rows;
  u8 whole;          // the newest row's frames were drawn whole
  Environment last;  // before the newest row, where a row is one frame

  // Adds a row whose frames were drawn whole. Then `before` is to be what was before the row if it
  // is the only one, and `last` if there are two.
  void add_whole(u8 action, bool of_one_frame) {
    const u32 earlier = !of_one_frame || rows == 0 ? 0 : whole || rows == kMostRows ? 1 : rows;
    const u8 newest = rows ? actions[rows - 1] : 0;
    if (earlier == 1) actions[0] = newest;
    for (u32 at = earlier; at < kMostRows; at++) actions[at] = 0;
    actions[earlier] = action;
    rows = (u8)(earlier + 1);
    whole = 1;
  }
};

inline i32 act_stickily(Stepper& stepper, Environment& env, u8 action, bool draws) {
  const float probability = stepper.rules.repeat_probability;
  if (probability == 0 || !random_chance(env.random, probability)) env.held = action;
  stepper.player.screens = draws ? &stepper.screens : nullptr;
  return act(stepper.player, env.game, env.held);
}

// Copies colors into screens that may show grays.
inline void copy_screens(Screens& to, const Screens& from) {
  const u8* source = from.pixels[0];
  u8* pixels = to.pixels[0];
  for (size_t at = 0; at < sizeof from.pixels; at++) pixels[at] = to.colors[source[at]];
  to.newest = from.newest;
}

inline void start_game(Stepper& stepper, Environment& env, Draws draws) {
  if (stepper.starts) {
    const Start& start = stepper.starts[random_below(env.random, stepper.num_starts)];
    env.game = start.game;
    if (draws != Draws::kNone) copy_screens(stepper.screens, start.screens);
  } else {
#if JAXRL_HOST
    stepper.player.screens = draws == Draws::kNone ? nullptr : &stepper.screens;
    reset_game(stepper.player, env.game);
#endif
  }
  env.held = kNoop;
}

// Writes the observation of the maximum of two frames.
JAXRL_SHARED_CODE inline void see(const Stepper& stepper, const u8* a, const u8* b, u8* out) {
  const u8* grays = stepper.grays;
  if (stepper.screens.colors == grays) return observe(stepper.averager, a, b, out);
#if JAXRL_GPU
  u8 (*gray)[kSeenLines * kScreenWidth] = stepper.gray;
#else
  u8 gray[2][kSeenLines * kScreenWidth];
#endif
  for (i32 at = 0; at < kSeenLines * kScreenWidth; at++) {
    gray[0][at] = grays[a[at]];
    gray[1][at] = grays[b[at]];
  }
  observe(stepper.averager, gray[0], gray[1], out);
}

// Plays the reset: starts a game where one is over, and plays frames without input.
inline Row play_reset(Stepper& stepper, Environment& env, Draws draws, u8* out) {
  const Rules& rules = stepper.rules;
  const bool new_game =
      !rules.episodic_life || env.game.progress.over || env.steps >= rules.max_steps;
  if (new_game) {
    start_game(stepper, env, draws);
    env.steps = 0;
  }
  Row row{};
  row.reset = 1;
  const u32 frames = 1 + random_below(env.random, (u32)rules.noop_max);
  for (u32 frame = 1; frame <= frames; frame++) {
    const bool last = frame == frames;
    const u8 action = last && rules.fire_reset ? kFire : kNoop;
    act_stickily(stepper, env, action, draws == Draws::kAll || (draws == Draws::kSeen && last));
    if (env.game.progress.over && action == kNoop) {
      start_game(stepper, env, draws);
      row.game_over = !new_game;
    }
  }
  env.lives = env.game.progress.lives;
  env.done = 0;
  const Screens& screens = stepper.screens;
  if (out) see(stepper, screens.last(), screens.last(), out);
  return row;
}

// Plays the frames of an action, of which the last two are seen.
inline Row play_frames(Stepper& stepper, Environment& env, u8 action, Draws draws, u8* out) {
  const Rules& rules = stepper.rules;
  Screens& screens = stepper.screens;
  const Progress& progress = env.game.progress;
  i32 score = 0;
  int seen = 0;
  bool goes_on = false;
  const int frames = rules.frame_skip;
  for (int frame = 0; frame < frames && !progress.over; frame++) {
    const bool last_two = frame >= frames - 2;
    // A frame that goes on is drawn over what has been seen of it.
    goes_on = draws != Draws::kNone && 0 < frame && frame == frames - 1 && env.game.console.goes_on;
    if (goes_on) memcpy(screens.held, screens.last(), sizeof screens.held);
    const bool drawn = draws == Draws::kAll || (draws == Draws::kSeen && last_two);
    score += act_stickily(stepper, env, rules.actions[action], drawn);
    seen += last_two;
  }
  const u8* other = goes_on ? screens.held : seen == 2 ? screens.before_last() : screens.last();
  if (out && seen > 0) see(stepper, screens.last(), other, out);
  env.steps++;
  const bool late = env.steps >= rules.max_steps;
  const bool lost_life = rules.episodic_life && 0 < progress.lives && progress.lives < env.lives;
  env.done = progress.over || late || lost_life;
  env.lives = progress.lives;
  Row row{};
  row.score = (float)score;
  row.reward = rules.reward_clip ? (float)((score > 0) - (score < 0)) : (float)score;
  row.truncated = late;
  row.terminated = env.done && !late;
  row.game_over = progress.over || late;
  return row;
}

JAXRL_SHARED_CODE inline Row play_row(Stepper& stepper, Environment& env, u8 action, Draws draws,
                                      u8* out) {
  stepper.player.cut_short = false;
  if (env.done) return play_reset(stepper, env, draws, out);
  return play_frames(stepper, env, action, draws, out);
}

// Plays a turn's rows again, with every frame drawn, from what the environment was before them; the
// last one writes its observation.
inline Row replay(Stepper& stepper, const Turn& turn, Environment& env, u8* out) {
  env = turn.before;
  memset(stepper.screens.pixels, 0, sizeof stepper.screens.pixels);
  Row row{};
  for (u32 at = 0; at < turn.rows; at++)
    row = play_row(stepper, env, turn.actions[at], Draws::kAll, at + 1 < turn.rows ? nullptr : out);
  return row;
}

// Plays one row and writes its observation to `out`; where the game has ended before its last two
// frames, `out` keeps what it holds. `turn` is the environment's, and receives this row.
inline Row step(Stepper& stepper, Environment& env, Turn& turn, u8 action, u8* out) {
  const Environment before = env;
  const Row row = play_row(stepper, env, action, Draws::kSeen, out);
  const bool of_one_frame = stepper.rules.frame_skip == 1;
  if (JAXRL_LIKELY(!stepper.player.cut_short)) {
    turn.add_whole(action, of_one_frame);
    if (turn.rows <= 2) turn.before = turn.rows == 1 ? before : turn.last;
    if (of_one_frame) turn.last = before;
    return row;
  }
  // The lower lines of a frame that was cut short are those of the frame before the last, which was
  // not drawn, or is of an earlier row.
  if (turn.rows == 0) turn.before = before;
  if (turn.rows == Turn::kMostRows) {
    play_row(stepper, turn.before, turn.actions[0], Draws::kNone, nullptr);
    turn.rows--;
    for (u32 at = 0; at < turn.rows; at++) turn.actions[at] = turn.actions[at + 1];
  }
  turn.actions[turn.rows++] = action;
  turn.whole = 0;
  if (of_one_frame) turn.last = before;
  // What is left of a frame that goes on depends on its colors, not on their grays.
  stepper.screens.colors = kIdentity.of;
  const Row again = replay(stepper, turn, env, out);
  stepper.screens.colors = stepper.grays;
  return again;
}

}  // namespace jaxrl
