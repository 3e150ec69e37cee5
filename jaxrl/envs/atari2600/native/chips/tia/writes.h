// The TIA's log: what each write of the program changes, and when.
#pragma once

#include "base/types.h"
#include "chips/tia/beam.h"
#include "chips/tia/masks.h"
#include "chips/tia/tables.h"

namespace jaxrl {

// Returns how a player's reset at a pixel falls:
// -1 just before a copy of it, 1 in a copy, 0 neither.
inline int reset_within(const Tia& tia, int player, i32 pixel) {
  constexpr u8 kSpaced[8] = {0b0001, 0b0011, 0b0101, 0b0111, 0b10001, 0b0001, 0b10101, 0b0001};
  const u32 copies = tia.registers[NUSIZ0 + player] & 7;
  const i32 width = copies == 5 ? 16 : copies == 7 ? 32 : 8;
  for (u32 spaced = kSpaced[copies]; spaced; spaced &= spaced - 1) {
    const i32 behind = (pixel - tia.position[player] - 16 * lowest_bit(spaced) + 320) % 160;
    if (behind < 4) return -1;
    if (behind < 4 + width) return 1;
  }
  return 0;
}

template <Drawing kDraw>
inline void reset_player(Tia& tia, Beam& beam, int player, i32 clock) {
  const i32 place = clock % kClocksPerLine;
  const i32 pixel = place < kHorizontalBlank ? 3 : (place - kHorizontalBlank + 5) % kScreenWidth;
  const int within = reset_within(tia, player, pixel);
  const u8 suppressed = within >= 0;
  if (tia.position[player] == pixel && tia.suppressed[player] == suppressed) return;
  // A copy that has begun is shown to its end, more or less.
  run_beam<kDraw>(tia, beam, within > 0 ? clock + 11 : clock);
  tia.position[player] = (u8)pixel;
  tia.suppressed[player] = suppressed;
  beam.stale |= (u8)(1 << player);
  beam.repeats = 0;
}

// Missiles and the ball that are reset shortly after HMOVE land where the chip, still counting,
// puts them: {cycles since HMOVE, place in the line, pixel}.
struct LateReset {
  i8 object;
  i32 cycles, place;
  u8 pixel;
};
constexpr LateReset kLateResets[] = {
    {kMissile0, 20, 69, 8}, {kMissile1, 3, 18, 3}, {kBall, 18, 60, 10}, {kBall, 18, 69, 10},
    {kBall, 3, 18, 3},      {kBall, 7, 30, 6},     {kBall, 6, 27, 5}};

template <Drawing kDraw>
inline void reset_missile_or_ball(Tia& tia, Beam& beam, int object, i32 clock) {
  const i32 place = clock % kClocksPerLine;
  u8 pixel = (u8)(place < kHorizontalBlank ? 2 : (place - kHorizontalBlank + 4) % kScreenWidth);
  const u32 since = (u32)clock - (u32)tia.hmove_clock;
  if (JAXRL_UNLIKELY(since <= 60))
    for (const LateReset& late : kLateResets)
      if (late.object == object && since == (u32)late.cycles * 3 && place == late.place)
        pixel = late.pixel;
  const bool star = object == kMissile0 && (tia.stars | tia.star_look);
  if (tia.position[object] == pixel && !star) return;
  if (kDraw != kUnseen || star || beam.needed_objects >> object & 1)
    run_beam<kDraw>(tia, beam, clock + (object == kBall ? 0 : 8));
  if (star) tia.star_look = kAsIs;
  tia.position[object] = pixel;
  beam.stale |= (u8)(1 << object);
  beam.repeats = 0;
}

// Moves each object as HMOVE at this cycle of a line does; returns those that have moved.
inline u32 move_each(Tia& tia, i32 column) {
  u32 moved = 0;
  for (int object = 0; object < kPlayfield; object++) {
    const u32 motion = tia.registers[HMP0 + object] >> 4;
    i32 pixel = tia.position[object] + tia_tables::kTables.motion[column][motion];
    if (pixel >= kScreenWidth) pixel -= kScreenWidth;
    if (pixel < 0) pixel += kScreenWidth;
    moved |= (u32)(pixel != tia.position[object]) << object;
    tia.position[object] = (u8)pixel;
  }
  return moved;
}

// The same for an HMOVE right after WSYNC, as the manual wants it: all objects at once.
inline u32 move_all(Tia& tia) {
#if JAXRL_GPU
  return move_each(tia, 0);
#else
  typedef u8 Bytes __attribute__((vector_size(8)));
  constexpr u64 kDigits = 0xF0F0F0F0F0;  // of five objects
  u64 digits;
  memcpy(&digits, tia.registers + HMP0, 8);
  digits &= kDigits;
  if (!digits) return 0;  // as in most lines of most games
  digits >>= 4;
  Bytes position, motion;
  memcpy(&position, tia.position, 8);
  memcpy(&motion, &digits, 8);
  // To the left by HMxx as a signed digit, in bytes that stay positive by 16 more.
  const Bytes shifted = position + 24 - (motion ^ 8);
  const Bytes entering = (Bytes)(shifted < 16) & kScreenWidth;
  const Bytes leaving = (Bytes)(shifted >= 16 + kScreenWidth) & kScreenWidth;
  const Bytes pixels = shifted - 16 + entering - leaving;
  constexpr Bytes kBits = {1, 2, 4, 8, 16, 0, 0, 0};
  const Bytes bits = (Bytes)(pixels != position) & kBits;
  memcpy(tia.position, &pixels, 8);
  u64 moved;
  memcpy(&moved, &bits, 8);
  return (u32)(moved * 0x0101010101010101ull >> 56);
#endif
}

template <Drawing kDraw>
inline void move_objects(Tia& tia, Beam& beam, i32 cycle) {
  const i32 clock = 3 * cycle, column = cycle % kCyclesPerLine;
  run_beam<kDraw>(tia, beam, clock);
  if (beam.blanks_hmove && (column <= 20 || column == 75)) {
    tia.hmove_blank = 1;
    beam.repeats = 0;
  }
  const u32 moved = column <= 3 ? move_all(tia) : move_each(tia, column);
  const u32 shown_again = tia.suppressed[0] << kPlayer0 | tia.suppressed[1] << kPlayer1;
  if (moved | shown_again) {
    beam.stale |= (u8)(moved | shown_again);
    beam.repeats = 0;
  }
  tia.suppressed[0] = tia.suppressed[1] = 0;
  tia.hmove_clock = clock;
  if (JAXRL_LIKELY(!(tia.stars | tia.star_look))) return;
  tia.stars = tia.star_look = 0;
  beam.stale |= 1 << kMissile0;
  beam.repeats = 0;
}

// Which objects and masks a register changes when its value does; `kLooks` only changes colors.
struct Effect {
  u8 objects;
  u8 stale;
};
constexpr u8 kNothing = 0, kLooks = 0x40;
constexpr Effect effect_of(u32 index) {
  constexpr u8 kAll = 0x3F;
  switch (index) {
    case VBLANK: return {kAll | kLooks, 0};
    case COLUP0:
    case COLUP1:
    case COLUPF:
    case COLUBK: return {kLooks, 0};
    case REFP0:
    case REFP1: {
      const u8 player = (u8)(1 << (kPlayer0 + index - REFP0));
      return {player, player};
    }
    case PF0:
    case PF1:
    case PF2: return {1 << kPlayfield, 1 << kPlayfield | kEnabledStale};
    case ENAM0:
    case ENAM1: return {(u8)(1 << (kMissile0 + index - ENAM0)), kEnabledStale};
    case ENABL:
    case VDELBL: return {1 << kBall, kEnabledStale};
    case VDELP0:
    case VDELP1: {
      const u8 player = (u8)(1 << (kPlayer0 + index - VDELP0));
      return {player, (u8)(player | kEnabledStale)};
    }
    default: return {kNothing, 0};
  }
}
struct Effects {
  Effect of[64];
  constexpr Effects() : of() {
    for (u32 index = 0; index < 64; index++) of[index] = effect_of(index);
  }
};
inline constexpr Effects kEffects{};

// Plays one write.
template <Drawing kDraw>
JAXRL_INLINE void play_write(Tia& tia, Beam& beam, u32 index, u8 value, i32 cycle) {
  u8* registers = tia.registers;
  const i32 clock = 3 * cycle;
  // Brings the beam up to a change of these objects. Where nothing is drawn it need not come if
  // none of them may collide with one that is shown: until one is, they have no history.
  const auto run_to = [&](i32 delay, u8 objects) {
    if (kDraw != kUnseen) {
      run_beam<kDraw>(tia, beam, clock + delay);
      beam.repeats = 0;
    } else if (beam.needed_objects & objects) {
      if (beam.stale & kEnabledStale) find_enabled(tia, beam);
      if (beam.partners & objects) run_beam<kDraw>(tia, beam, clock + delay);
    }
  };
  switch (index) {
    case GRP0:
    case GRP1: {
      // A write to one player's graphics shows the other's last ones, where those are delayed.
      const int player = (int)index - GRP0, other = 1 - player;
      const bool player_changes = !(registers[VDELP0 + player] & 1) && registers[index] != value;
      const bool other_changes =
          (registers[VDELP0 + other] & 1) && tia.old_player[other] != registers[GRP0 + other];
      const bool ball_changes =
          player == 1 && (registers[VDELBL] & 1) && tia.old_ball != registers[ENABL];
      if (player_changes || other_changes || ball_changes) {
        const u8 objects =
            (u8)(player_changes << player | other_changes << other | ball_changes << kBall);
        run_to(1, objects);
        const bool only_looks = !other_changes && !ball_changes && registers[index] && value;
        beam.stale |= (u8)(objects | (only_looks ? 0 : kEnabledStale));
      }
      registers[index] = value;
      tia.old_player[other] = registers[GRP0 + other];
      if (player == 1) tia.old_ball = registers[ENABL];
      return;
    }
    case NUSIZ0:
    case NUSIZ1: {
      const int player = (int)index - NUSIZ0;
      const bool star = !player && (tia.stars | tia.star_look);
      if (registers[index] == value && !tia.suppressed[player] && !star) return;
      const u8 objects = (u8)(1 << (kPlayer0 + player) | 1 << (kMissile0 + player));
      run_beam<kDraw>(tia, beam, clock + 8);
      beam.repeats = 0;
      registers[index] = value;
      tia.suppressed[player] = 0;
      if (!player) tia.star_look = kAsIs;
      beam.stale |= objects;
      return;
    }
    case HMM0: {
      const bool star = (u32)clock - (u32)tia.hmove_clock == kStarClocks &&
                        registers[HMM0] >> 4 == 7 && value >> 4 == 6;
      if (star) {
        run_beam<kDraw>(tia, beam, clock);
        tia.stars = 4;
      }
      registers[HMM0] = value;
      return;
    }
    case CTRLPF: {
      // The right half of the line being drawn keeps its reflection.
      const bool in_time = clock % kClocksPerLine < kHorizontalBlank + 79;
      const u8 mirrored = in_time ? value & 1 : tia.mirrored;
      if (registers[CTRLPF] == value && tia.mirrored == mirrored) return;
      run_beam<kDraw>(tia, beam, clock);
      beam.repeats = 0;
      registers[CTRLPF] = value;
      tia.mirrored = mirrored;
      beam.stale |= 1 << kPlayfield | 1 << kBall;
      return;
    }
    case RESP0:
    case RESP1: return reset_player<kDraw>(tia, beam, (int)index - RESP0, clock);
    case RESM0:
    case RESM1:
    case RESBL:
      return reset_missile_or_ball<kDraw>(tia, beam, (int)index - RESM0 + kMissile0, clock);
    case RESMP0:
    case RESMP1: {
      // The missile hides in its player and comes out in the player's middle.
      const int player = (int)index - RESMP0;
      if (!((registers[index] ^ value) & 2)) return;
      if (tia.stars) run_beam<kDraw>(tia, beam, clock);
      run_to(0, (u8)(1 << (kMissile0 + player)));
      if (!(value & 2)) {
        if (!player) tia.star_look = kAsIs;
        const u32 copies = registers[NUSIZ0 + player] & 7;
        const int middle = copies == 5 ? 8 : copies == 7 ? 16 : 4;
        tia.position[kMissile0 + player] = (u8)((tia.position[player] + middle) % kScreenWidth);
        beam.stale |= (u8)(1 << (kMissile0 + player));
      }
      registers[index] = value;
      beam.stale |= kEnabledStale;
      return;
    }
    case HMOVE: return move_objects<kDraw>(tia, beam, cycle);
    case HMCLR: memset(registers + HMP0, 0, 5); return;
    case CXCLR:
      run_beam<kDraw>(tia, beam, clock);
      beam.repeats = 0;
      tia.collisions = tia.unknown = 0;
      find_open_pairs(tia, beam);
      return;
    default: {
      if (registers[index] == value) return;
      const Effect& effect = kEffects.of[index];
      if (effect.objects) {
        const i32 delay = index >= PF0 && index <= PF2 ? tia_tables::kPlayfieldDelay[cycle % 76 & 3]
                                                       : tia_tables::kDelay[index];
        run_to(delay, effect.objects);
      }
      registers[index] = value;
      beam.stale |= effect.stale;
    }
  }
}

template <Drawing kDraw>
JAXRL_NOINLINE void play_log_until(Tia& tia, Beam& beam, const LoggedWrite* end, i32 clock) {
  LoggedWrite* write = beam.played;
  for (; write < end; write++)
    play_write<kDraw>(tia, beam, *write >> 8 & 63, (u8)*write, (i32)(*write >> 14));
  beam.played = write;
  run_beam<kDraw>(tia, beam, clock);
}

// Plays the log up to `end` and runs the beam to a clock.
inline void play_log(Tia& tia, Beam& beam, const LoggedWrite* end, i32 clock) {
  if (beam.canvas.pixels)
    play_log_until<kWhole>(tia, beam, end, clock);
  else
    play_log_until<kUnseen>(tia, beam, end, clock);
}

}  // namespace jaxrl
