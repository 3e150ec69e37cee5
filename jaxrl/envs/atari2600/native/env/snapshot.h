// An environment as bytes that last: in a checkpoint, in a file, on another machine.
//
// A snapshot is a header, the environment with its newest row, and that row's observation. Bytes
// from outside are checked before they are used: the version, the cartridge, a sum over all of
// them, and that no value is one which play could never have left, so that nothing is read or
// written outside its place.
//
// Raise `kSnapshotVersion` with every change of a struct that is in it or of what its values mean.
#pragma once

#include "env/environment.h"

namespace jaxrl {

constexpr u32 kSnapshotVersion = 2;

struct Snapshot {
  u32 version;
  u32 size;       // of the whole, with the observation
  u64 cartridge;  // digest of its image
  u64 sum;        // digest of what follows
  Environment env;
  Turn turn;
  Row row;
  u64 rules;  // digest of the rules that they were played by
};

#if JAXRL_HOST

enum class Refusal : u8 { kNone, kVersion, kCartridge, kDamaged };

inline bool is_flag(u32 value) { return value <= 1; }
inline bool is_below(i32 value, i32 most) { return -most < value && value < most; }

inline bool is_possible(const CartridgeState& state, const Cartridge& cartridge) {
  const u32 pieces = cartridge.num_banks * (kImage / cartridge.piece);
  return state.bank < pieces && mapper_of(cartridge).is_possible(state);
}

inline bool is_possible(const Tia& tia, const Setup& setup) {
  for (u32 object = 0; object < sizeof tia.position; object++)
    if (tia.position[object] >= (object <= kBall ? kScreenWidth : 1)) return false;
  const i32 stop = (setup.first_line + setup.height) * kClocksPerLine;
  return tia.drawn_until >= 0 && tia.drawn_until <= stop && tia.collisions <= kAllPairs &&
         tia.unknown <= kAllPairs && is_flag(tia.suppressed[0]) && is_flag(tia.suppressed[1]) &&
         is_flag(tia.mirrored) && is_flag(tia.hmove_blank) && is_flag(tia.odd_lines) &&
         (tia.stars == 0 || tia.stars / 4 == 1) && tia.star_look <= kHidden;
}

inline bool is_possible(const Riot& riot) {
  const u32 shift = riot.interval_shift;
  return (shift == 0 || shift == 3 || shift == 6 || shift == 10) && is_flag(riot.read_late);
}

inline bool is_possible(const Cpu& cpu) {
  return is_flag(cpu.carry) && is_flag(cpu.overflow) && is_flag(cpu.decimal) &&
         is_flag(cpu.no_interrupts);
}

// Whether a game could have come to this state, as far as memory and arithmetic depend on it.
inline bool is_possible(const Game& game, const Cartridge& cartridge) {
  const Console& console = game.console;
  // No frame lasts longer, and what is stamped with cycles may be
  // as long ago as the game has lasted.
  constexpr i32 kMostCycles = 1 << 22, kMostScore = 1 << 28;
  for (i32 paddle : console.paddle)
    if (paddle < 0 || paddle > cartridge.setup.most_resistance) return false;
  return is_possible(console.riot) && is_possible(console.tia, cartridge.setup) &&
         is_possible(console.cpu) && is_possible(console.cartridge, cartridge) &&
         console.cycle >= 0 && console.cycle < kMostCycles && console.vsync_end >= 0 &&
         is_flag(console.grounded) && is_flag(console.goes_on) && is_flag(console.read_last) &&
         console.needed <= kAllPairs && is_below(game.progress.score, kMostScore) &&
         is_below(game.progress.reward, kMostScore) && is_flag(game.progress.over);
}

inline bool is_possible(const Environment& env, const Cartridge& cartridge) {
  constexpr i32 kMostSteps = 1 << 30;  // the time limit may be another than it was
  return is_possible(env.game, cartridge) && env.steps >= 0 && env.steps < kMostSteps &&
         is_flag(env.done) && env.held < kActions;
}

inline bool is_possible(const Turn& turn, const Cartridge& cartridge, const Rules& rules) {
  if (turn.rows > Turn::kMostRows || !is_flag(turn.whole)) return false;
  for (u32 row = 0; row < turn.rows; row++)
    if (turn.actions[row] >= rules.num_actions) return false;
  if (turn.rows == 0) return true;
  return is_possible(turn.before, cartridge) &&
         (rules.frame_skip > 1 || is_possible(turn.last, cartridge));
}

// The sum over a snapshot and the observation behind it.
inline u64 sum_of(const u8* bytes, size_t size) {
  constexpr size_t kHeader = offsetof(Snapshot, env);
  return digest_of(bytes + kHeader, size - kHeader);
}

// Rules of four frames a step, and of no mode, have the sum of versions that knew no others.
inline u64 digest_of(const Rules& rules) {
  const u64 sum = digest_of((const u8*)&rules, offsetof(Rules, actions) + sizeof rules.actions);
  const u64 variant = (u64)(rules.mode - Variant::kFirst) << 16 | (u64)rules.difficulty << 8;
  return sum + rules.frame_skip - kFrameSkip + variant;
}

// Writes a snapshot of `sizeof(Snapshot) + pixels` bytes.
inline void save(const Environment& env, const Turn& turn, const Row& row, const u8* frame,
                 size_t pixels, const Cartridge& cartridge, const Rules& rules, u8* out) {
  Snapshot snapshot;
  memset((void*)&snapshot, 0, sizeof snapshot);  // what lies between the members too
  const size_t size = sizeof snapshot + pixels;
  snapshot.version = kSnapshotVersion;
  snapshot.size = (u32)size;
  snapshot.cartridge = cartridge.digest;
  snapshot.env = env;
  snapshot.turn = turn;
  snapshot.row = row;
  snapshot.rules = digest_of(rules);
  memcpy(out, &snapshot, sizeof snapshot);
  memcpy(out + sizeof snapshot, frame, pixels);
  const u64 sum = sum_of(out, size);
  memcpy(out + offsetof(Snapshot, sum), &sum, sizeof sum);
}

// Reads the header and what follows it; the observation lies behind. Rows that were played by other
// rules cannot be played again: they are forgotten.
inline Refusal load(const u8* bytes, size_t size, const Cartridge& cartridge, const Rules& rules,
                    Snapshot& snapshot) {
  memcpy((void*)&snapshot, bytes, sizeof snapshot);
  if (snapshot.version != kSnapshotVersion || snapshot.size != size) return Refusal::kVersion;
  if (snapshot.cartridge != cartridge.digest) return Refusal::kCartridge;
  if (snapshot.rules != digest_of(rules)) snapshot.turn = Turn{};
  const Row& row = snapshot.row;
  const bool sound = snapshot.sum == sum_of(bytes, size) && is_possible(snapshot.env, cartridge) &&
                     is_possible(snapshot.turn, cartridge, rules) && is_flag(row.terminated) &&
                     is_flag(row.truncated) && is_flag(row.game_over) && is_flag(row.reset);
  return sound ? Refusal::kNone : Refusal::kDamaged;
}

#endif

}  // namespace jaxrl
