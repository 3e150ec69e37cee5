// A row of an environment, frame by frame, for the lanes of a warp,
// which play their frames together.
//
// The conventions are those of env/environment.h, which plays a row in one go and says what it
// means. What is rare is not here: a row with a frame that is cut short or goes on, that reads a
// collision for the first time, or that writes more than a picture holds, is given up (`again`),
// and played by env/environment.h.
#pragma once

#include "gpu/world.h"

namespace jaxrl {

struct RowPlay {
  const World& world;
  const GameRules& game_rules;
  Environment& env;
  Sight& sight;
  u8 action;  // of the policy
  Machine machine = {};
  bool resets = false;
  bool new_game = false;
  bool again = false;
  bool drawn = false;  // the frame that is being played
  bool went_on = false;
  u8 intended = kNoop;       // its action, which a sticky one may replace
  u8 start = 0;              // of the newest game that began
  bool starts_last = false;  // that game began after the last frame
  u32 frame = 0, frames = 0;
  u32 played = 0;  // instructions of the frame
  u32 pictures = 0;
  i32 score = 0;
  Row row = {};

  Progress& progress() { return env.game.progress; }
  Console& console() { return env.game.console; }
  const Rules& rules() const { return world.rules; }
  Cartridge& cartridge() const { return const_cast<Cartridge&>(world.cartridge); }
  Picture& picture() { return sight.pictures[pictures ? 1 : 0]; }

  void start_game() {
    start = (u8)random_below(env.random, kStarts);
    env.game = world.starts[start].game;
    env.held = kNoop;
  }

  void begin_row() {
    resets = env.done;
    frames = rules().frame_skip;
    if (!resets) return;
    row.reset = 1;
    new_game = !rules().episodic_life || progress().over || env.steps >= rules().max_steps;
    if (new_game) {
      start_game();
      env.steps = 0;
    }
    frames = 1 + random_below(env.random, (u32)rules().noop_max);
  }

  bool has_frame() { return !again && frame < frames && !progress().over; }

  void begin_frame() {
    const bool last = frame + 1 == frames;
    const u8 of_reset = last && rules().fire_reset ? kFire : kNoop;
    intended = resets ? of_reset : rules().actions[action];
    const float probability = rules().repeat_probability;
    if (probability == 0 || !random_chance(env.random, probability)) env.held = intended;
    const bool no_button = !game_rules.has_fire && (kPressed[env.held] & kButton);
    set_controls(console(), cartridge().setup, no_button ? (u8)kNoop : env.held);
    drawn = resets ? last : frame + 2 >= frames;
    went_on = console().goes_on;
    machine.writes = picture().writes;
    machine.capacity = kPictureWrites;
    start_frame(console());
    attach(machine, console(), cartridge(), {nullptr, nullptr});
    played = 0;
    if (!drawn) return;
    machine.logged = kLogged.of[1][machine.beam.needed_objects];
    picture().tia = console().tia;
    picture().lost_color = machine.beam.lost_color;
  }

  // Plays to the end of the scan line; returns whether the frame goes on.
  bool play_line() {
    Cpu& cpu = console().cpu;
    const i32 end = console().cycle - console().cycle % kCyclesPerLine + kCyclesPerLine;
    OneByOne processor{{machine, loaded(cpu), cpu.pc}};
    while (console().cycle < end && played < kMostInstructions && !machine.frame_over) {
      processor.play_one();
      played++;
    }
    store_registers(cpu, processor.r);
    cpu.pc = (u16)processor.pc;
    return played < kMostInstructions && !machine.frame_over;
  }

  void end_frame() {
    const i32 clock = end_of_picture(machine);
    again = machine.unforeseen || machine.log == machine.end_of_log();
    if (again) return;
    finish_frame(machine, clock);
    console().goes_on = !machine.frame_over;
    if (machine.frame_over) console().tia.odd_lines = console().cycle / kCyclesPerLine & 1;
    console().tia.drawn_until = machine.beam.clock;
    game_rules.step(ram_of(env.game), progress());
    if (!resets) score += progress().reward;
    if (drawn) keep_picture(clock);
    frame++;
    if (resets && progress().over && intended == kNoop) {
      start_game();
      row.game_over = !new_game;
      starts_last = frame == frames;
    }
  }

  void keep_picture(i32 clock) {
    const i32 end_of_seen = machine.beam.start + kSeenLines * kClocksPerLine;
    again = went_on || console().goes_on || machine.beam.clock < end_of_seen;
    picture().clock = clock;
    picture().count = (u32)(machine.log - machine.writes);
    pictures++;
  }

  void end_row() {
    env.done = 0;
    if (!resets) end_frames();
    env.lives = progress().lives;
    sight.start = start;
    sight.seen = again         ? Seen::kAgain
                 : starts_last ? Seen::kStart
                 : pictures    ? (pictures == 2 ? Seen::kTwo : Seen::kOne)
                               : Seen::kBefore;
  }

  void end_frames() {
    env.steps++;
    const i16 lives = progress().lives;
    const bool over = progress().over, late = env.steps >= rules().max_steps;
    const bool lost_life = rules().episodic_life && 0 < lives && lives < env.lives;
    env.done = over || late || lost_life;
    row.score = (float)score;
    row.reward = rules().reward_clip ? (float)((score > 0) - (score < 0)) : (float)score;
    row.truncated = late;
    row.terminated = env.done && !late;
    row.game_over = over || late;
  }
};

}  // namespace jaxrl
