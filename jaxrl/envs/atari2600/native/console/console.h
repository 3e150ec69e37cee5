// The console: power, reset, the player's controls, and one frame at a time.
//
// A frame ends where ALE ends it: when VSYNC is cleared at least a line after it was set, or at the
// first write to the TIA after line 290, of PAL 342. The place within the line carries over to the
// next frame. A frame without an end within 25,000 instructions goes on in the next call.
#pragma once

#include "base/types.h"
#if JAXRL_HOST
#include <random>
#endif

#include "bus/machine.h"
#include "cpu/named_collisions.h"
#include "cpu/one_by_one.h"
#if !JAXRL_GPU
#include "cpu/threaded.h"
#endif

namespace jaxrl {

constexpr u32 kMostInstructions = 25000;
constexpr u32 kMostOutside = 1000;  // until the time is looked at: some 60 lines

// The numbers of the generator with which ALE fills the RAM at power-on and, at each reset, draws
// the timer; its seed is fixed, so that every game begins alike.
constexpr u32 kConsoleSeed = 4753849;
constexpr u32 kFirstDraws = 129;  // RAM, and a timer that is drawn again before it runs

#if JAXRL_HOST
inline std::mt19937 console_draws(u32 first) {
  std::mt19937 generator(kConsoleSeed);
  generator.discard(first);
  return generator;
}
#endif

// The least resistance of ALE's paddles, in ohms, and how far an action turns them in a frame.
constexpr i32 kLeastResistance = 27450, kTurn = 23000;

// A capacitor of 0.01 uF charges to the threshold in 1.6 RC, at 1.19 million cycles a second.
inline i32 charging_cycles(i32 resistance) {
  const double seconds = 1.6 * resistance * 0.01E-6;
  return (i32)(seconds * 1.19E6);
}

// clang-format off: it would take a line for each action
// The player's action, as the field numbers them.
enum Action : u8 {
  kNoop, kFire, kUp, kRight, kLeft, kDown, kUpRight, kUpLeft, kDownRight, kDownLeft, kUpFire,
  kRightFire, kLeftFire, kDownFire, kUpRightFire, kUpLeftFire, kDownRightFire, kDownLeftFire,
  kActions,
};
enum Direction : u8 { kToUp = 1, kToDown = 2, kToLeft = 4, kToRight = 8, kButton = 16 };
constexpr u8 kPressed[kActions] = {
    0, kButton, kToUp, kToRight, kToLeft, kToDown, kToUp | kToRight, kToUp | kToLeft,
    kToDown | kToRight, kToDown | kToLeft, kToUp | kButton, kToRight | kButton, kToLeft | kButton,
    kToDown | kButton, kToUp | kToRight | kButton, kToUp | kToLeft | kButton,
    kToDown | kToRight | kButton, kToDown | kToLeft | kButton};
// clang-format on

constexpr u8 kResetSwitch = 1, kSelectSwitch = 2;

constexpr u8 kSwitchesUp = 0x3F;  // color television, difficulty B

// Sets the controls to an action; a paddle turns each time. `held` are switches that are held down.
JAXRL_SHARED_CODE inline void set_controls(Console& console, const Setup& setup, u8 action,
                                           u8 held = 0) {
  const u8 pressed = kPressed[action];
  console.port_b = kSwitchesUp & (u8)~held;
  console.port_a = 0xFF;
  console.fire[0] = console.fire[1] = 0x80;
  if (setup.paddles) {
    i32& paddle = console.paddle[0];
    if (pressed & kToRight) paddle -= kTurn;
    if (pressed & kToLeft) paddle += kTurn;
    if (paddle < kLeastResistance) paddle = kLeastResistance;
    if (paddle > setup.most_resistance) paddle = setup.most_resistance;
    console.charging[0] = charging_cycles(paddle);
    // The button of a paddle is a direction of its joystick.
    if (pressed & kButton) console.port_a &= (u8)~(setup.paddles == 2 ? 0x40 : 0x80);
    return;
  }
  const int port = setup.swapped_ports;
  console.port_a = (u8)~((pressed & 0xF) << (port ? 0 : 4));
  console.fire[port] = pressed & kButton ? 0 : 0x80;
}

#if JAXRL_HOST

// Reads an image for all interpreters; returns false for a size that no game has.
inline bool insert(Cartridge& cartridge, const u8* bytes, u64 size, const Setup& setup) {
  if (!load_image(cartridge, bytes, size, setup)) return false;
  keep_named_collisions(cartridge);
#if !JAXRL_GPU
  decode(cartridge);
#endif
  return true;
}

// Returns the address at which the program begins.
inline u16 first_address(const CartridgeState& state, const Cartridge& cartridge) {
  return (u16)(byte_at(cartridge, state, 0xFFFC) | byte_at(cartridge, state, 0xFFFD) << 8);
}

// Resets the chips and the processor; RAM keeps its contents.
inline void reset_system(Console& console, const Cartridge& cartridge) {
  Riot& riot = console.riot;
  const Mapper& mapper = mapper_of(cartridge);
  std::mt19937 draws = console_draws(kFirstDraws + (1 + mapper.ram) * console.resets);
  console.resets++;
  riot.timer = (u8)(25 + draws() % 75);
  riot.interval_shift = 6;
  riot.set_at = riot.first_late_read = 0;
  riot.read_late = riot.direction_a = riot.direction_b = 0;
  console.tia = Tia{};
  console.cpu = Cpu{};
  console.cpu.sp = 0xFF;
  console.cpu.nz = 1;
  mapper.reset(console.cartridge);
  for (u32 byte = 0; byte < mapper.ram; byte++) console.cartridge.ram[byte] = (u8)draws();
  console.cpu.pc = first_address(console.cartridge, cartridge);
  console.cycle = 0;
  console.vsync_end = kNever;
  console.grounded = 0;
  console.grounded_until = 0;
  console.goes_on = 0;
  console.bus = 0;
  console.read_last = 1;
}

inline void center_paddles(Console& console, const Setup& setup) {
  console.paddle[0] = console.paddle[1] = (kLeastResistance + setup.most_resistance) / 2;
  console.charging[0] = console.charging[1] = charging_cycles(console.paddle[0]);
}

#endif

// Forgets cycles that have passed: moves the moment from which cycles are counted.
inline void forget_cycles(Console& console, i32 passed) {
  const auto back = [](i32& stamp, i32 by) { stamp = (i32)((u32)stamp - (u32)by); };
  console.cycle -= passed;
  back(console.riot.set_at, passed);
  back(console.riot.first_late_read, passed);
  back(console.grounded_until, passed);
  back(console.tia.hmove_clock, 3 * passed);
  back(console.cartridge.music_cycle, passed);
  if (console.vsync_end == kNever) return;
  console.vsync_end -= 3 * passed;
  if (console.vsync_end < 0) console.vsync_end = 0;  // long ago
}

// Counts cycles from the first line of a new frame, or, in one that goes on and on, from so far
// back that its last line has passed.
inline void start_frame(Console& console) {
  constexpr i32 kBeyond = 4 * kLastPalLines * kCyclesPerLine, kTwoLines = 2 * kCyclesPerLine;
  if (!console.goes_on)
    forget_cycles(console, console.cycle - console.cycle % kCyclesPerLine);
  else if (console.cycle > kBeyond)
    forget_cycles(console, (console.cycle - kBeyond) / kTwoLines * kTwoLines);
}

JAXRL_SHARED_CODE inline void attach(Machine& machine, Console& console, Cartridge& cartridge,
                                     Canvas canvas) {
  machine.console = &console;
  machine.cartridge = &cartridge;
  machine.log = machine.beam.played = machine.writes;
  machine.frame_over = machine.switched = false;
  select_bank(machine);
  machine.unforeseen = 0;
  machine.last_update = 0;
  memcpy(machine.shadow, console.tia.registers, sizeof machine.shadow);
  memcpy(machine.shadow_player, console.tia.old_player, sizeof machine.shadow_player);
  machine.shadow_ball = console.tia.old_ball;
  Beam& beam = machine.beam;
  const Setup& setup = cartridge.setup;
  const bool pal = setup.pal && !machine.finds_standard;
  const i32 height = setup.pal && !pal ? 210 : setup.height;
  machine.last_cycle = (pal ? kLastPalLines : kLastLines) * kCyclesPerLine;
  start_beam(beam, console.tia, setup.first_line, height, console.goes_on);
  beam.lost_color = pal && console.tia.odd_lines;
  beam.canvas = canvas;
  beam.blanks_hmove = setup.blanks_hmove;
  beam.needed = machine.keeps_all ? kAllPairs : (u16)(cartridge.needed | console.needed);
  beam.needed_objects = 0;
  for (int pair = 0; pair < kPairs; pair++)
    if (beam.needed >> pair & 1)
      beam.needed_objects |= (u8)(1 << kPairObjects[pair][0] | 1 << kPairObjects[pair][1]);
  find_open_pairs(console.tia, beam);
  machine.logged = kLogged.of[canvas.pixels != nullptr][beam.needed_objects];
}

// Brings the TIA to the end of the frame.
JAXRL_SHARED_CODE inline void finish_frame(Machine& machine, i32 clock) {
  Tia& tia = machine.console->tia;
  play_log(tia, machine.beam, machine.log, clock);
  // What was not logged.
  memcpy(tia.registers, machine.shadow, sizeof tia.registers);
  memcpy(tia.old_player, machine.shadow_player, sizeof tia.old_player);
  tia.old_ball = machine.shadow_ball;
  tia.unknown |= (u16)(kAllPairs & ~machine.beam.needed);
}

#if !JAXRL_GPU
// Plays the frame that is attached with both interpreters;
// returns false if it runs far beyond its last line.
inline bool play_fast(Machine& machine) {
  Console& console = *machine.console;
  while (!machine.frame_over) {
    if (console.cycle >= kFarBeyond) return false;
    if (!(console.cpu.pc & 0x1000)) {
      play_plainly<true>(machine, kMostOutside);
      continue;
    }
    select_bank(machine);
    machine.switched = false;
    const Leaving leaving = play_threaded(&machine, nullptr);
    if (leaving == Leaving::kRunsOn) return false;
    if (leaving == Leaving::kPlain && (console.cpu.pc & 0x1000)) play_plainly(machine, 1);
  }
  return true;
}
#endif

// Returns the clock up to which the TIA is brought at the end of a frame.
inline i32 end_of_picture(const Machine& machine) {
  return machine.frame_over ? 3 * machine.console->cycle : machine.last_update;
}

// What is left of the picture of a frame that goes on: its lines below the beam show no color.
inline void gray_out(const Machine& machine) {
  const Canvas& canvas = machine.beam.canvas;
  if (!canvas.pixels) return;
  i32 row = machine.console->cycle / kCyclesPerLine - machine.cartridge->setup.first_line;
  for (row = row < 0 ? 0 : row; row < machine.cartridge->setup.height; row++)
    for (int x = 0; x < kScreenWidth; x++) {
      u8& pixel = canvas.pixels[row * kScreenWidth + x];
      pixel = canvas.colors[(pixel & 0x0F) >> 1];
    }
}

enum class Interpreter : u8 { kThreaded, kPlain };
constexpr Interpreter kFastest = JAXRL_GPU ? Interpreter::kPlain : Interpreter::kThreaded;

// Plays one frame.
JAXRL_SHARED_CODE inline void run_frame(Machine& machine, Console& console, Cartridge& cartridge,
                                        Canvas canvas, Interpreter interpreter = kFastest) {
  start_frame(console);
  Console before = console;
  for (;;) {
    attach(machine, console, cartridge, canvas);
    bool counts = interpreter == Interpreter::kPlain || console.goes_on;
#if !JAXRL_GPU
    if (!counts && !play_fast(machine)) {
      console = before;
      attach(machine, console, cartridge, canvas);
      counts = true;
    }
#endif
    if (counts) play_plainly(machine, kMostInstructions);
    if (!machine.unforeseen) break;
    // Latches that nobody was known to read were not kept: play the frame with them.
    before.needed |= machine.unforeseen;
    console = before;
  }
  finish_frame(machine, end_of_picture(machine));
  const bool went_on = console.goes_on;
  console.goes_on = !machine.frame_over;
  if (machine.frame_over) console.tia.odd_lines = console.cycle / kCyclesPerLine & 1;
  console.tia.drawn_until = machine.beam.clock;
  if (console.goes_on && !went_on) gray_out(machine);
}

#if JAXRL_HOST
// Puts a new console under power, as ALE does: it plays 60 frames, to find out the television's
// standard, with nothing plugged in, and resets.
inline void power_on(Machine& machine, Console& console, Cartridge& cartridge) {
  console = Console{};
  std::mt19937 generator(kConsoleSeed);
  for (u8& byte : console.riot.ram) byte = (u8)generator();
  mapper_of(cartridge).power_on(console.cartridge);
  set_controls(console, cartridge.setup, kNoop);
  reset_system(console, cartridge);
  console.paddle[0] = console.paddle[1] = 0;
  machine.keeps_all = true;
  // Only now are the difficulty switches as the cartridge's maker meant them; ALE sets them to B.
  console.port_b |= (u8)(cartridge.setup.difficulty << 6);
  machine.finds_standard = true;
  for (int frame = 0; frame < 60; frame++)
    run_frame(machine, console, cartridge, {nullptr, nullptr});
  machine.keeps_all = machine.finds_standard = false;
  reset_system(console, cartridge);
}
#endif

}  // namespace jaxrl
