// The kernels that play games on a GPU; compiled by NVRTC (build_gpu.py), and by tests for a CPU.
//
//   jaxrl_step   plays a row of each environment, a lane for each. The lanes of a warp play their
//                frames together, and wait for each other at the end of every scan line, where
//                programs of the same cartridge do the same things. States lie in shared memory
//                while they are played. A frame that will be seen is not drawn: what its program
//                wrote to the TIA is kept.
//   jaxrl_draw   draws the two frames that are seen, a warp for each environment: half of it plays
//                the writes of either frame, and each lane draws its share of every line. A line is
//                averaged at once, so that no screen is kept anywhere.
//   jaxrl_again  plays the few rows whole that the first kernel gave up and listed, a thread for
//                each.
//
// They are launched one after another on the same stream, for the same `Launch`,
// whose list is empty.
#include "gpu/average.h"
#include "gpu/layout.h"
#include "gpu/row.h"

namespace jaxrl {

// An odd number of words keeps the lanes' states in different banks of the shared memory.
constexpr u32 kEnvironmentWords = sizeof(Environment) / 8 | 1;

// Copies an environment by all lanes of a warp.
inline void copy_words(void* to, const void* from) {
  for (u32 at = threadIdx.x; at < sizeof(Environment) / 8; at += kLanes)
    ((u64*)to)[at] = ((const u64*)from)[at];
}

inline void put_row(const Launch& launch, u32 env, const Row& row) {
  launch.games[env].row = row;
  launch.reward[env] = row.reward;
  launch.score[env] = row.score;
  launch.terminated[env] = row.terminated;
  launch.truncated[env] = row.truncated;
  launch.game_over[env] = row.game_over;
  launch.reset[env] = row.reset;
}

inline u8 action_of(const Launch& launch, u32 env) {
  const i32 action = launch.actions[env], last = launch.world->rules.num_actions - 1;
  return (u8)(action < 0 ? 0 : action > last ? last : action);
}

// Plays a row of this lane's environment, if it has one, with the warp.
// Returns whether it is played.
inline bool play_together(const Launch& launch, bool has_env, Environment& env, u32 number) {
  const World& world = *launch.world;
  RowPlay play{world, *rules_of(world.game), env, launch.sights[has_env ? number : 0], 0};
  if (has_env) {
    play.action = action_of(launch, number);
    play.begin_row();
  }
  for (;;) {
    const bool plays = has_env && play.has_frame();
    if (!__any_sync(kAllLanes, plays)) break;
    bool runs = plays;
    if (plays) play.begin_frame();
    while (__any_sync(kAllLanes, runs))
      if (runs) runs = play.play_line();
    if (plays) play.end_frame();
  }
  if (!has_env) return false;
  play.end_row();
  if (!play.again) put_row(launch, number, play.row);
  return !play.again;
}

inline void draw_pictures(const Launch& launch, u32 env, bool two) {
  __shared__ u8 lines[2][kScreenWidth];
  const World& world = *launch.world;
  const i32 half = (i32)threadIdx.x / kSharers;
  const Picture& picture = launch.sights[env].pictures[two ? half : 0];
  const Setup& setup = world.cartridge.setup;
  Tia tia = picture.tia;
  Beam beam{};
  start_beam(beam, tia, setup.first_line, setup.height, false);
  beam.lost_color = picture.lost_color;
  beam.blanks_hmove = setup.blanks_hmove;
  beam.canvas = {lines[half], grays_of(setup.pal).of};
  RowAverager averager{world, launch.frames + (u64)env * (u32)(world.height * world.width)};
  u32 written = 0;
  for (i32 line = 0; line < kSeenLines; line++) {
    const i32 end = beam.start + (line + 1) * kClocksPerLine;
    for (; written < picture.count; written++) {
      const LoggedWrite write = picture.writes[written];
      const i32 cycle = (i32)(write >> 14);
      // What is written later shows in a later line.
      if (3 * cycle >= end) break;
      play_write<kShare>(tia, beam, write >> 8 & 63, (u8)write, cycle);
    }
    run_beam<kShare>(tia, beam, end);
    __syncwarp();
    averager.add(line, lines[0], lines[1]);
    __syncwarp();
  }
}

}  // namespace jaxrl

using namespace jaxrl;

// A warp in each block; `games_per_warp` of its lanes play. As many warps fit on a multiprocessor
// as its shared memory holds: a block takes 15,104 bytes and 1,024 for the system, of the 233,472
// of an H100 are 14.
extern "C" __global__ void __launch_bounds__(kLanes, 14) jaxrl_step(const Launch launch) {
  __shared__ u64 states[kLanes][kEnvironmentWords];
  const u32 first = blockIdx.x * launch.games_per_warp, lane = threadIdx.x;
  const u32 last = first + launch.games_per_warp, end = last < launch.count ? last : launch.count;
  for (u32 env = first; env < end; env++) copy_words(states[env - first], &launch.games[env].env);
  __syncwarp();
  const u32 own = first + lane;
  const bool has_env = own < end;
  Environment& env = *(Environment*)states[lane];
  const bool is_played = play_together(launch, has_env, env, own);
  const bool of_one_frame = launch.world->rules.frame_skip == 1;
  if (is_played) {
    launch.games[own].turn.add_whole(action_of(launch, own), of_one_frame);
  } else if (has_env) {
    launch.again[1 + atomicAdd(launch.again, 1u)] = own;
  }
  __syncwarp();
  for (u32 other = first; other < end; other++) {
    if (launch.sights[other].seen == Seen::kAgain) continue;
    Snapshot& game = launch.games[other];
    Turn& turn = game.turn;
    if (turn.rows <= 2) copy_words(&turn.before, turn.rows == 1 ? &game.env : &turn.last);
    if (of_one_frame) copy_words(&turn.last, &game.env);
    copy_words(&game.env, states[other - first]);
  }
}

// A warp for each environment, in a block of its own.
extern "C" __global__ void __launch_bounds__(kLanes, 16) jaxrl_draw(const Launch launch) {
  const u32 env = blockIdx.x;
  const Sight& sight = launch.sights[env];
  if (sight.seen == Seen::kOne || sight.seen == Seen::kTwo)
    return draw_pictures(launch, env, sight.seen == Seen::kTwo);
  if (sight.seen != Seen::kStart) return;
  const u32 pixels = (u32)(launch.world->height * launch.world->width);
  const u8* start = (const u8*)(launch.world + 1) + sight.start * pixels;
  for (u32 at = threadIdx.x; at < pixels; at += kLanes)
    launch.frames[(u64)env * pixels + at] = start[at];
}

// A thread in each block, which has a slot. Nearly always there is nothing to do.
extern "C" __global__ void jaxrl_again(const Launch launch) {
  const u32 listed = launch.again[0];
  if (blockIdx.x >= listed) return;
  const World& world = *launch.world;
  Slot& slot = launch.slots[blockIdx.x];
  const u32 pixels = (u32)(world.height * world.width);
  const Averager averager{world.height,       world.width, world.rows, world.columns,
                          (bool)world.halves, false,       world.down, world.across};
  const GameRules& rules = *rules_of(world.game);
  Cartridge& cartridge = const_cast<Cartridge&>(world.cartridge);
  const u8* grays = grays_of(cartridge.setup.pal).of;
  for (u32 place = blockIdx.x; place < listed; place += launch.num_slots) {
    const u32 env = launch.again[1 + place];
    slot.machine = Machine{};
    slot.machine.writes = slot.writes;
    slot.machine.capacity = kLogCapacity;
    slot.screens.colors = grays;
    slot.screens.newest = 0;
    Stepper stepper{{slot.machine, cartridge, rules, nullptr},
                    slot.screens,
                    world.rules,
                    averager,
                    grays,
                    world.starts,
                    kStarts,
                    slot.gray};
    Snapshot& game = launch.games[env];
    put_row(launch, env,
            step(stepper, game.env, game.turn, action_of(launch, env),
                 launch.frames + (u64)env * pixels));
  }
}
