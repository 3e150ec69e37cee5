// What the kernels of a GPU (kernels.cu) and the program that launches them (../ffi_gpu.cc) share:
// the data of a game that all its environments read, and the places of what they write.
#pragma once

#include "env/snapshot.h"

namespace jaxrl {

constexpr i32 kLanes = 32;  // of a warp
constexpr u32 kAllLanes = 0xFFFFFFFF;

// A cartridge, its rules and its starts; one for each device, never written by a kernel. Behind it
// lie the observations of its starts.
struct World {
  Cartridge cartridge;
  Rules rules;
  u32 game;                         // number of its rules
  i32 height, width, down, across;  // of an observation; see Averager
  u8 halves;
  Taps rows[kSeenLines], columns[kScreenWidth];
  Start starts[kStarts];
};

// A frame that is seen, as what the TIA was before it and what the program wrote to it.
constexpr u32 kPictureWrites =
    2048;  // a game that writes more in a frame is played by `jaxrl_again`
struct Picture {
  Tia tia;
  i32 clock;      // to which the beam runs
  u32 count;      // of writes
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
  const i32* actions;                              // [E]
  Snapshot* games;                                 // [E]
  u8* frames;                                      // [E, height, width]
  float *reward, *score;                           // [E]
  u8 *terminated, *truncated, *game_over, *reset;  // [E]
  Sight* sights;                                   // [E]
  Slot* slots;                                     // [num_slots]
  u32* again;  // [1 + E]: number of rows to play whole, and whose; 0 when the first kernel starts
  u32 count, games_per_warp, num_slots;
};

}  // namespace jaxrl
