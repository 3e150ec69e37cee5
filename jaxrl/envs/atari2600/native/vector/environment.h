// A game as ale-py's vector environment shows it: a step is some frames of one action, a row its
// reward, its ends and a stack of observations. The conventions are ALE's, row for row and draw for
// draw:
//
// - every reset starts a new game, presses FIRE where the game has it, and plays frames without
//   input;
// - a step ends with the frame that ends the episode, and that frame is not seen: in its place
//   stands what the row before has left, and under `maxpool` the frame before, if that is the
//   last but one;
// - no-ops and sticky actions are drawn from two generators of the same seed.
//
// What a row has drawn is not kept. The rows that an observation still needs are played again from
// the game before them: after an end, and where a frame was cut short.
#pragma once

#include "env/environment.h"
#include "vector/observation.h"
#include "vector/start_counter.h"

namespace jaxrl {

struct VectorRules {
  i32 frame_skip, noop_max;
  i32 max_frames;  // time limit of an episode
  i32 stack, height, width;
  i32 mode = Variant::kFirst;
  u32 difficulty = 0;
  float repeat_probability;  // of sticky actions, in each frame
  u8 maxpool, color, fire_reset, episodic_life, life_loss_info, reward_clip, same_step, fast_resets;
  u8 shows_ram;  // an observation is RAM, not the screen
  u8 num_actions;
  u8 actions[kActions];
};

// Bytes of a frame of an observation.
inline size_t frame_size(const VectorRules& rules) {
  if (rules.shows_ram) return sizeof Riot::ram;
  return (size_t)rules.height * (size_t)rules.width * (rules.color ? 3 : 1);
}

// What the player does in a frame: an action, and the share of its way that it turns a paddle.
struct Input {
  i32 action;
  float strength;
};
constexpr Input kNoInput{kNoop, 1}, kPressFire{kFire, 1};

// A row as it was played. Its frames have the input `first`, from `changes_at` on `then`.
struct Played {
  Game before;
  Input first, then;
  i32 changes_at, frames;
  i32 start;  // that a reset has copied, or kExactStart
  u32 is_reset;
};
constexpr i32 kExactStart = -1;

// One environment; plain data.
struct VectorGame {
  Game game;
  Input held;        // of the last frame, which a sticky action repeats
  i32 frames;        // of the episode, without those of its reset
  u32 frame_number;  // since power-on, with those of resets
  u32 episode_frame_number;
  u32 rows;      // since power-on
  u32 oldest;    // frame of the stack
  i16 lives;     // after the newest row
  u8 life_lost;  // in the newest row
  u8 over;       // the newest row ended the episode
  Twister noop_draws, sticky_draws;
};

// A row besides its observation.
struct VectorRow {
  i32 reward, lives, frame_number, episode_frame_number;
  u8 terminated, truncated;
};

// The newest rows of an environment, a ring of `kept` of them, a power of two.
struct History {
  Played* rows;
  u32 kept;
  Played& back(const VectorGame& env, u32 count) const {
    return rows[(env.rows - 1 - count) & (kept - 1)];
  }
};

// Returns the rows to keep: the newest, the one before, and before both as many frames as the game
// may cut short in a row.
constexpr u32 rows_to_keep(i32 frame_skip, i32 cut_short) {
  u32 kept = 2;
  while ((i32)(kept - 2) * frame_skip < cut_short) kept *= 2;
  return kept;
}

// What a thread needs to step environments of one cartridge.
struct VectorStepper {
  Player player;
  Screens& screens;
  Viewer viewer;
  const VectorRules& rules;
  const std::vector<Start>& starts;  // of which games begin as copies if resets are fast
  StartCount copied_count;           // of each of them
  bool holds = false;  // the last frame of a row went on, and the screens hold what was seen of it

  Screens* screens_if(bool draws) const { return draws && !rules.shows_ram ? &screens : nullptr; }

  // What the last frame but one of a full row has shown.
  const u8* before_last() const { return holds ? screens.held : screens.before_last(); }
};

// Whether a full step looks at its last two frames. A step of one frame looks at no other.
inline bool sees_two(const VectorRules& rules) { return rules.maxpool && rules.frame_skip > 1; }

// --- frames --------------------------------------------------------------------------------------

// ALE turns a paddle by a share of its way:
// what `set_controls` turns too far is turned back before.
inline void turn_back(Console& console, const Input& input) {
  const i32 rest = kTurn - (i32)(kTurn * std::fabs((double)input.strength));
  if (kPressed[input.action] & kToRight) console.paddle[0] += rest;
  if (kPressed[input.action] & kToLeft) console.paddle[0] -= rest;
}

inline i32 play_input(VectorStepper& stepper, Game& game, const Input& input, bool draws) {
  if (game.progress.over) return 0;
  if (stepper.player.cartridge.setup.paddles) turn_back(game.console, input);
  stepper.player.screens = stepper.screens_if(draws);
  return act(stepper.player, game, (u8)input.action);
}

// Plays the last frame of a full step; one that goes on is drawn over what has been seen of it.
inline i32 play_last_input(VectorStepper& stepper, Game& game, const Input& input, bool draws) {
  Screens& screens = stepper.screens;
  stepper.holds = stepper.screens_if(draws) && game.console.goes_on;
  if (stepper.holds) memcpy(screens.held, screens.last(), sizeof screens.held);
  return play_input(stepper, game, input, draws);
}

inline StartCount start_game(VectorStepper& stepper, Game& game, i32 start, bool draws) {
  if (start == kExactStart) {
    stepper.player.screens = stepper.screens_if(draws);
    return StartCounter::reset(stepper.player, game);
  }
  const Start& copied = stepper.starts[(size_t)start];
  game = copied.game;
  if (stepper.screens_if(draws)) copy_screens(stepper.screens, copied.screens);
  return stepper.copied_count;
}

// Whether the frame of a reset may be followed by another start: not that of FIRE.
inline bool may_restart(const VectorRules& rules, i32 frame) {
  return frame > 0 || !rules.fire_reset;
}

// Plays a row again.
inline void replay(VectorStepper& stepper, const Played& played, bool draws_all) {
  const VectorRules& rules = stepper.rules;
  Game game = played.before;
  if (played.is_reset) start_game(stepper, game, played.start, draws_all || played.frames == 0);
  for (i32 frame = 0; frame < played.frames; frame++) {
    const Input& input = frame < played.changes_at ? played.first : played.then;
    if (played.is_reset) {
      play_input(stepper, game, input, draws_all || frame == played.frames - 1);
      if (game.progress.over && may_restart(rules, frame))
        start_game(stepper, game, kExactStart, true);
    } else if (frame == rules.frame_skip - 1) {
      play_last_input(stepper, game, input, true);
    } else {
      play_input(stepper, game, input, draws_all || frame >= rules.frame_skip - 2);
    }
  }
}

// Plays the newest rows again, from `back` rows before the newest one,
// and returns what is seen of it.
inline Seen paint(VectorStepper& stepper, const VectorGame& env, const History& history, u32 back,
                  bool draws_all) {
  const Played& newest = history.back(env, 0);
  Screens& screens = stepper.screens;
  const bool two = sees_two(stepper.rules);
  Seen seen;
  for (u32 row = back + 1; row-- > 0;) {
    if (row == 0 && env.over) {
      // The frame of the end is not seen.
      const bool both = two && !history.back(env, 1).is_reset;
      const u8* left[2] = {screens.last(), stepper.before_last()};
      for (int one = 0; one < (both ? 2 : 1); one++) {
        memcpy(stepper.viewer.pictures.left[one], left[one], sizeof screens.pixels[0]);
        seen.add(stepper.viewer.pictures.left[one]);
      }
    }
    replay(stepper, history.back(env, row), draws_all);
  }
  const bool full = newest.frames == stepper.rules.frame_skip;
  if (!env.over) seen.add(screens.last());
  if (two && full && !newest.is_reset) seen.add(stepper.before_last());
  return seen;
}

// Returns what is seen of the newest row, which the frames on the screens may not show.
inline Seen repaint(VectorStepper& stepper, const VectorGame& env, const History& history) {
  Player& player = stepper.player;
  if (!player.cut_short || env.over) {
    player.cut_short = false;
    const Seen seen = paint(stepper, env, history, 1, false);
    if (!player.cut_short) return seen;
  }
  // The lower lines of a frame that was cut short are those of an earlier one: draw every frame.
  memset(stepper.screens.pixels, 0, sizeof stepper.screens.pixels);
  const u32 known = env.rows < history.kept ? env.rows : history.kept;
  return paint(stepper, env, history, known - 1, true);
}

// Puts the observation of the newest row on top of the stack.
inline void push_observation(VectorStepper& stepper, VectorGame& env, const History& history,
                             u8* stack, size_t frame_size) {
  u8* const newest = stack + env.oldest * frame_size;
  env.oldest = (env.oldest + 1) % (u32)stepper.rules.stack;
  if (stepper.rules.shows_ram) return (void)memcpy(newest, env.game.console.riot.ram, frame_size);
  Seen seen;
  if (JAXRL_UNLIKELY(env.over || stepper.player.cut_short)) {
    seen = repaint(stepper, env, history);
  } else {
    seen.add(stepper.screens.last());
    if (sees_two(stepper.rules) && !history.back(env, 0).is_reset) seen.add(stepper.before_last());
  }
  observe(stepper.viewer, seen, newest);
}

// --- rows ----------------------------------------------------------------------------------------

// ALE draws for both players; the second one's draw counts for nothing.
inline bool repeats(const VectorRules& rules, VectorGame& env) {
  if (rules.repeat_probability == 0) return false;
  const u32 draw = next_random(env.sticky_draws);
  next_random(env.sticky_draws);
  return draw * 0x1p-32 < (double)rules.repeat_probability;
}

inline void count_frame(VectorGame& env) {
  env.frame_number += !env.game.progress.over;
  env.episode_frame_number += !env.game.progress.over;
}

inline void count_start(VectorGame& env, const VectorRules& rules, const StartCount& count) {
  for (u32 act = 0; act < count.acts; act++) repeats(rules, env);
  env.held = kNoInput;
  env.frame_number += count.frames;
  env.episode_frame_number = count.frames;
}

// Returns the newest row.
inline VectorRow row_of(const VectorRules& rules, const VectorGame& env, i32 reward) {
  const bool lost_life = (rules.life_loss_info || rules.episodic_life) && env.life_lost;
  const bool terminated = (env.frames > 0 && env.game.progress.over) || lost_life;
  const bool truncated = env.frames >= rules.max_frames && !terminated;
  return {reward,         env.lives,    (i32)env.frame_number, (i32)env.episode_frame_number,
          (u8)terminated, (u8)truncated};
}

// Plays a reset.
inline VectorRow play_reset(VectorStepper& stepper, VectorGame& env, const History& history) {
  const VectorRules& rules = stepper.rules;
  const i32 fires = rules.fire_reset;
  env.rows++;
  Played& played = history.back(env, 0);
  played = {env.game, kPressFire, kNoInput, 0, 0, kExactStart, 1};
  if (rules.fast_resets)
    played.start = (i32)random_below(env.noop_draws, (u32)stepper.starts.size());
  const u32 most = rules.noop_max > 0 ? (u32)rules.noop_max : 1;
  const i32 noops = (i32)random_below(env.noop_draws, most) - fires;
  played.frames = fires + (noops > 0 ? noops : 0);
  stepper.player.cut_short = false;
  count_start(env, rules, start_game(stepper, env.game, played.start, played.frames == 0));
  for (i32 frame = 0; frame < played.frames; frame++) {
    if (!repeats(rules, env)) env.held = frame < fires ? kPressFire : kNoInput;
    played.changes_at += env.held.action == kFire;
    count_frame(env);
    play_input(stepper, env.game, env.held, frame == played.frames - 1);
    if (env.game.progress.over && may_restart(rules, frame)) {
      count_start(env, rules, start_game(stepper, env.game, kExactStart, true));
    }
  }
  env.lives = env.game.progress.lives;
  env.frames = 0;
  env.over = env.life_lost = 0;
  return row_of(rules, env, 0);
}

// Plays the frames of an action.
inline VectorRow play_step(VectorStepper& stepper, VectorGame& env, const History& history,
                           const Input& input) {
  const VectorRules& rules = stepper.rules;
  const Progress& progress = env.game.progress;
  env.rows++;
  Played& played = history.back(env, 0);
  played = {env.game, env.held, input, 0, 0, kExactStart, 0};
  stepper.player.cut_short = false;
  i32 score = 0;
  for (i32 frame = 0; frame < rules.frame_skip && !env.over; frame++) {
    if (!repeats(rules, env))
      env.held = input;
    else if (played.changes_at == frame)
      played.changes_at++;
    count_frame(env);
    score += frame == rules.frame_skip - 1
                 ? play_last_input(stepper, env.game, env.held, true)
                 : play_input(stepper, env.game, env.held,
                              rules.maxpool && frame == rules.frame_skip - 2);
    played.frames++;
    env.frames++;
    env.life_lost = 0 < progress.lives && progress.lives < env.lives;
    env.over =
        progress.over || env.frames >= rules.max_frames || (rules.episodic_life && env.life_lost);
  }
  env.lives = progress.lives;
  if (rules.reward_clip) score = (score > 0) - (score < 0);
  return row_of(rules, env, score);
}

}  // namespace jaxrl
