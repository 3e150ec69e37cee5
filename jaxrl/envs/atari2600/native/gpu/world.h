// What the kernels of a GPU (kernels.cu) and the program that launches them (../ffi_gpu.cc) share: the
// data of a game that all its environments read, and the places of what they write.
#pragma once

#include "env/snapshot.h"

namespace jaxrl {

constexpr i32 kLanes = 32;  // of a warp
constexpr u32 kAllLanes = 0xFFFFFFFF;

// A cartridge, its rules and its starts; one for each device, never written by a kernel. Behind it lie the
// observations of its starts.
struct World {
  Cartridge cartridge;
  Rules rules;
  u32 game;  // number of its rules
  i32 height, width, down, across;  // of an observation; see Averager
  u8 halves;
  Taps rows[kSeenLines], columns[kScreenWidth];
  Start starts[kStarts];
};

// A frame that is seen, as what the TIA was before it and what the program wrote to it.
constexpr u32 kPictureWrites = 2048;  // a game that writes more in a frame is played by `jaxrl_again`
struct Picture {
  Tia tia;
  i32 clock;       // to which the beam runs
  u32 count;       // of writes
  u8 lost_color;  // see Beam
  LoggedWrite writes[kPictureWrites];
};

// How the observation of a row comes about.
enum class Seen : u8 {
  kBefore,  // as it was: the game was over before one of the row's last two frames
  kStart,   // the start of a game
  kOne,     // the first picture
  kTwo,     // both
  kAgain,   // the row has to be played whole, by `jaxrl_again`
};

// What the steps of one environment leave for the drawing.
struct Sight {
  Picture pictures[2];
  Seen seen;
  u8 start;  // number of the start that is seen
};

// Where one thread plays rows whole.
struct Slot {
  Machine machine;
  Screens screens;
  u8 gray[2][kSeenLines * kScreenWidth];
  LoggedWrite writes[kLogCapacity + 8];
};
constexpr u32 kMostSlots = 128;

// The arrays of a launch. E is the number of environments.
struct Launch {
  const World* world;
  const i32* actions;  // [E]
  Snapshot* games;     // [E]
  u8* frames;          // [E, height, width]
  float *reward, *score;                             // [E]
  u8 *terminated, *truncated, *game_over, *reset;    // [E]
  Sight* sights;       // [E]
  Slot* slots;         // [num_slots]
  u32* again;          // [1 + E]: number of rows to play whole, and whose; 0 when the first kernel starts
  u32 count, games_per_warp, num_slots;
};

// The kernels and the host's program are made by different compilers, which must lay this out alike. Both
// are compared here, by sizes and by where members begin; change these with the structs.
#if JAXRL_HOST
#define JAXRL_BEGINS(type, member, at) static_assert(offsetof(type, member) == (at))
#else
#define JAXRL_BEGINS(type, member, at) static_assert(__INTADDR__(&((type*)nullptr)->member) == (at))
#endif
static_assert(sizeof(World) == 1975936 && sizeof(Snapshot) == 1488 && sizeof(Sight) == 16632 &&
              sizeof(Slot) == 232512 && sizeof(Launch) == 120);
static_assert(sizeof(Environment) % 8 == 0 && alignof(Snapshot) == 8);
JAXRL_BEGINS(World, rules, 18536);
JAXRL_BEGINS(World, game, 18572);
JAXRL_BEGINS(World, halves, 18592);
JAXRL_BEGINS(World, rows, 18596);
JAXRL_BEGINS(World, columns, 34556);
JAXRL_BEGINS(World, starts, 46720);
JAXRL_BEGINS(Cartridge, data, 16448);
JAXRL_BEGINS(Cartridge, mapper, 18496);
JAXRL_BEGINS(Cartridge, digest, 18512);
JAXRL_BEGINS(Cartridge, setup, 18520);
JAXRL_BEGINS(Cartridge, needed, 18532);
JAXRL_BEGINS(Rules, actions, 17);
JAXRL_BEGINS(Rules, frame_skip, 35);
JAXRL_BEGINS(Start, screens, 512);
JAXRL_BEGINS(Screens, held, 80000);
JAXRL_BEGINS(Screens, newest, 120008);
JAXRL_BEGINS(Snapshot, env, 24);
JAXRL_BEGINS(Snapshot, turn, 496);
JAXRL_BEGINS(Snapshot, row, 1464);
JAXRL_BEGINS(Snapshot, rules, 1480);
JAXRL_BEGINS(Environment, random, 456);
JAXRL_BEGINS(Environment, held, 471);
JAXRL_BEGINS(Turn, actions, 472);
JAXRL_BEGINS(Turn, rows, 488);
JAXRL_BEGINS(Turn, whole, 489);
JAXRL_BEGINS(Turn, last, 496);
JAXRL_BEGINS(Game, progress, 440);
JAXRL_BEGINS(Console, tia, 144);
JAXRL_BEGINS(Console, cpu, 248);
JAXRL_BEGINS(Console, cartridge, 264);
JAXRL_BEGINS(Console, cycle, 400);
JAXRL_BEGINS(Console, bus, 436);
JAXRL_BEGINS(Console, needed, 438);
JAXRL_BEGINS(Row, reset, 11);
JAXRL_BEGINS(Picture, clock, 104);
JAXRL_BEGINS(Picture, writes, 116);
JAXRL_BEGINS(Sight, seen, 16624);
JAXRL_BEGINS(Sight, start, 16625);
JAXRL_BEGINS(Slot, screens, 384);
JAXRL_BEGINS(Slot, gray, 120448);
JAXRL_BEGINS(Slot, writes, 187648);
JAXRL_BEGINS(Launch, reward, 32);
JAXRL_BEGINS(Launch, sights, 80);
JAXRL_BEGINS(Launch, again, 96);
JAXRL_BEGINS(Launch, count, 104);
JAXRL_BEGINS(Launch, num_slots, 112);
#undef JAXRL_BEGINS

}  // namespace jaxrl
