// The engine of a GPU for Python (plain functions) and for compiled programs (XLA's foreign
// function interface). Its calls only launch kernels on the stream that XLA gives them: the games
// are arrays of the program. The first one of a device loads them, and waits for that.
//
// Compiled by the machine's C++ compiler alone (gpu/driver.h).
#define JAXRL_GPU 1

#include <map>
#include <mutex>
#include <string>

#include "env/rows.h"
#include "gpu/driver.h"
#include "gpu/ffi_rows.h"
#include "gpu/layout.h"
#include "gpu/world.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using namespace jaxrl;

namespace {

// --- programs ------------------------------------------------------------------------------------

// The kernels as they are loaded in a context, and the multiprocessors of its device.
struct Kernels {
  DriverHandle step, draw, again;
  int multiprocessors;
};

// An image that NVRTC made, and the file that keeps it.
struct Program {
  std::string image, file;
};

// A program in a context, where one thread at a time loads it.
struct Loaded {
  std::mutex mutex;
  bool is_ready = false;
  Kernels kernels;
};

std::mutex programs_mutex;
// Programs by their numbers, which start at 1; never destroyed.
auto& programs = *new std::map<i64, Program>;
auto& loaded = *new std::map<std::pair<i64, DriverHandle>, Loaded>;

// Loads a program in the context that is current.
ffi::Error load_program(const Program& program, Kernels& kernels) {
  DriverHandle module;
  int device;
  if (const int error = driver().load_module(&module, program.image.data())) {
    const std::string remedy = "; delete '" + program.file + "', and they are compiled again";
    return failed("cuModuleLoadData", error, remedy);
  }
  for (auto [kernel, name] : {std::pair{&kernels.step, "jaxrl_step"},
                              {&kernels.draw, "jaxrl_draw"},
                              {&kernels.again, "jaxrl_again"}})
    if (const int error = driver().find_kernel(kernel, module, name)) return failed(name, error);
  // All of the memory that it shares with the cache, for more warps; an old driver may refuse.
  driver().set_attribute(kernels.step, kSharedShare, 100);
  if (const int error = driver().context_device(&device)) return failed("cuCtxGetDevice", error);
  if (const int error =
          driver().device_attribute(&kernels.multiprocessors, kMultiprocessors, device))
    return failed("cuDeviceGetAttribute", error);
  return ffi::Error::Success();
}

// Finds the kernels of a program in the context that is current, and loads it on first use.
ffi::Error find_kernels(i64 number, DriverHandle context, Kernels& kernels) {
  std::unique_lock<std::mutex> lock(programs_mutex);
  const auto program = programs.find(number);
  if (program == programs.end())
    return ffi::Error::Internal("the kernels of this program are unknown");
  Loaded& entry = loaded[{number, context}];  // neither map moves what it holds
  lock.unlock();
  std::lock_guard<std::mutex> lock_of_context(entry.mutex);
  if (!entry.is_ready) {
    ffi::Error error = load_program(program->second, entry.kernels);
    if (error.failure()) return error;
    entry.is_ready = true;
  }
  kernels = entry.kernels;
  return ffi::Error::Success();
}

// Returns how many lanes of a warp play: as few as keep the schedulers of the device busy, of which
// each multiprocessor has four, since lanes that play different instructions wait for each other.
u32 games_per_warp(u32 count, int multiprocessors) {
  const u32 warps = 4 * (u32)multiprocessors;
  u32 games = 1;
  while (games < (u32)kLanes && (count + games - 1) / games > warps) games *= 2;
  return games;
}

// Launches kernels one after another on a stream, in its context; a bit of `chosen` for each.
// Without `launch.games_per_warp` it is found here.
ffi::Error launch_all(i64 program, i64 chosen, DriverHandle context, DriverHandle stream,
                      Launch& launch) {
  Kernels kernels;
  ffi::Error error = find_kernels(program, context, kernels);
  if (error.failure()) return error;
  if (!launch.games_per_warp)
    launch.games_per_warp = games_per_warp(launch.count, kernels.multiprocessors);
  void* arguments[] = {&launch};
  const u32 warps = (launch.count + launch.games_per_warp - 1) / launch.games_per_warp;
  const auto start = [&](DriverHandle kernel, u32 blocks, u32 threads) {
    return driver().launch(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr);
  };
  int code = driver().set_words(launch.again, 0, 1, stream);
  if (code) return failed("cuMemsetD32Async", code);
  if (chosen & 1) code = start(kernels.step, warps, kLanes);
  if (code) return failed("jaxrl_step", code);
  if (chosen & 2) code = start(kernels.draw, launch.count, kLanes);
  if (code) return failed("jaxrl_draw", code);
  if (chosen & 4) code = start(kernels.again, launch.num_slots, 1);
  if (code) return failed("jaxrl_again", code);
  return ffi::Error::Success();
}

// --- the call ------------------------------------------------------------------------------------

using Bytes = ffi::Buffer<ffi::U8>;
using NewBytes = ffi::ResultBuffer<ffi::U8>;
using NewWords = ffi::ResultBuffer<ffi::U32>;

// Plays a row of every environment. `games` and `frames` are the arrays of the results, in place.
ffi::Error step_on(DriverHandle stream, i64 program, i64 kernels, i64 games_per_warp, Bytes world,
                   Bytes games, Bytes frames, ffi::Buffer<ffi::S32> actions, NewBytes new_games,
                   NewBytes new_frames, Numbers reward, Numbers score, Flags terminated,
                   Flags truncated, Flags game_over, Flags reset, NewBytes sights, NewBytes slots,
                   NewWords again) {
  const u64 count = actions.element_count();
  const u64 num_slots = slots->element_count() / sizeof(Slot);
  const u64 pixels = count ? frames.element_count() / count : 0;
  bool fits = count > 0 && pixels > 0 && num_slots > 0 && num_slots <= kMostSlots &&
              world.element_count() == sizeof(World) + kStarts * pixels &&
              games.element_count() == count * sizeof(Snapshot) &&
              new_games->element_count() == games.element_count() &&
              frames.element_count() == count * pixels &&
              new_frames->element_count() == frames.element_count() &&
              sights->element_count() == count * sizeof(Sight) &&
              slots->element_count() == num_slots * sizeof(Slot) &&
              again->element_count() == 1 + count && 0 <= games_per_warp &&
              games_per_warp <= kLanes;
  for (u64 size : {reward->element_count(), score->element_count(), terminated->element_count(),
                   truncated->element_count(), game_over->element_count(), reset->element_count()})
    fits &= size == count;
  if (!fits) return ffi::Error::InvalidArgument("the arrays have another size than the engine's");
  if (games.untyped_data() != new_games->untyped_data() ||
      frames.untyped_data() != new_frames->untyped_data())
    return ffi::Error::InvalidArgument("the games and their frames must be updated in place");
  Launch launch{(const World*)world.untyped_data(),
                actions.typed_data(),
                (Snapshot*)new_games->untyped_data(),
                new_frames->typed_data(),
                reward->typed_data(),
                score->typed_data(),
                (u8*)terminated->untyped_data(),
                (u8*)truncated->untyped_data(),
                (u8*)game_over->untyped_data(),
                (u8*)reset->untyped_data(),
                (Sight*)sights->untyped_data(),
                (Slot*)slots->untyped_data(),
                again->typed_data(),
                (u32)count,
                (u32)games_per_warp,
                (u32)num_slots};
  return in_context_of(stream, [&](DriverHandle context) {
    return launch_all(program, kernels, context, stream, launch);
  });
}

template <typename... Arguments>
ffi::Error step_without_stream(Arguments... arguments) {
  return step_on(nullptr, arguments...);
}

}  // namespace

// All else of ours is hidden: see FLAGS in runtime/native_library.py.
#pragma GCC visibility push(default)

#define JAXRL_STEP_ARGUMENTS \
  .Attr<i64>("program") \
      .Attr<i64>("kernels") \
      .Attr<i64>("games_per_warp") \
      .Arg<Bytes>() \
      .Arg<Bytes>() \
      .Arg<Bytes>() \
      .Arg<ffi::Buffer<ffi::S32>>() \
      .Ret<Bytes>() \
      .Ret<Bytes>() JAXRL_NUMBERS_AND_FLAGS.Ret<Bytes>() \
      .Ret<Bytes>() \
      .Ret<ffi::Buffer<ffi::U32>>()

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_gpu_step, step_on,
                              ffi::Ffi::Bind().Ctx<ffi::PlatformStream<DriverHandle>>()
                                  JAXRL_STEP_ARGUMENTS);
// For platforms without streams, where a test's driver plays.
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    jaxrl_gpu_step_without_stream,
    (step_without_stream<i64, i64, i64, Bytes, Bytes, Bytes, ffi::Buffer<ffi::S32>, NewBytes,
                         NewBytes, Numbers, Numbers, Flags, Flags, Flags, Flags, NewBytes, NewBytes,
                         NewWords>),
    ffi::Ffi::Bind() JAXRL_STEP_ARGUMENTS);

extern "C" {

// Sizes of World (with the observations of its starts), Snapshot, Sight and Slot, in bytes.
void jaxrl_gpu_sizes(u64 pixels, u64* sizes) {
  sizes[0] = sizeof(World) + kStarts * pixels;
  sizes[1] = sizeof(Snapshot);
  sizes[2] = sizeof(Sight);
  sizes[3] = sizeof(Slot);
}

// Keeps an image of kernels, which is that of a file, and returns its number.
i64 jaxrl_gpu_program(const u8* image, u64 size, const char* file) {
  std::lock_guard<std::mutex> lock(programs_mutex);
  const i64 number = (i64)programs.size() + 1;
  programs[number] = {std::string((const char*)image, size), file};
  return number;
}

// Writes the world of a game; returns 0 for an unknown game or cartridge. `needed` are the
// collision latches that the engine of CPUs has seen the cartridge read.
u8 jaxrl_gpu_world(const char* game, const u8* image, u64 size, const Rules* rules, u16 needed,
                   i32 height, i32 width, u8* out) {
  u32 number = 0;
  while (rules_of(number) && strcmp(rules_of(number)->name, game)) number++;
  if (!rules_of(number) || rules->mode != Variant::kFirst || rules->difficulty) return 0;
  const GameRules& known = *rules_of(number);
  auto made = std::make_unique<World>();
  World& world = *made;
  if (!insert(world.cartridge, image, size, known.setup)) return 0;
  world.cartridge.needed = needed;
  world.rules = *rules;
  world.game = number;
  world.height = height;
  world.width = width;
  world.halves = 2 * height == kSeenLines && 2 * width == kScreenWidth;
  if (kSeenLines % height == 0 && kScreenWidth % width == 0) {
    world.down = kSeenLines / height;
    world.across = kScreenWidth / width;
  }
  const auto put = [](const std::vector<Taps>& taps, Taps* to) {
    std::copy(taps.begin(), taps.end(), to);
  };
  put(taps_of(kSeenLines, height), world.rows);
  put(taps_of(kScreenWidth, width), world.columns);
  auto slot = std::make_unique<Slot>();
  slot->machine.writes = slot->writes;
  slot->machine.capacity = kLogCapacity;
  Player player{slot->machine, world.cartridge, known, nullptr};
  const std::vector<Start> starts = make_starts(player);
  const Averager averager{height, width,      world.rows,  world.columns, (bool)world.halves,
                          false,  world.down, world.across};
  const u8* grays = grays_of(known.setup.pal).of;
  const Stepper stepper{player, slot->screens, world.rules, averager,
                        grays,  world.starts,  kStarts,     slot->gray};
  const size_t pixels = (size_t)height * (size_t)width;
  for (u32 start = 0; start < kStarts; start++) {
    world.starts[start] = starts[start];
    const u8* seen = starts[start].screens.last();
    slot->screens.colors = kIdentity.of;
    see(stepper, seen, seen, out + sizeof world + start * pixels);
    // An address of this process says nothing to a kernel, nor to another process.
    world.starts[start].screens.colors = nullptr;
  }
  memcpy((void*)out, (const void*)&world, sizeof world);
  return 1;
}

// Writes checkpoints' snapshots of games and their frames, which lie on the host.
void jaxrl_gpu_pack(const World* world, const Snapshot* games, const u8* frames, u64 count,
                    u64 pixels, u8* snapshots) {
  for (u64 env = 0; env < count; env++) {
    const Snapshot& game = games[env];
    save(game.env, game.turn, game.row, frames + env * pixels, pixels, world->cartridge,
         world->rules, snapshots + env * (sizeof game + pixels));
  }
}

// Reads such snapshots, with their rows; returns a `Refusal`.
i32 jaxrl_gpu_unpack(const World* world, const u8* snapshots, u64 count, u64 pixels,
                     Snapshot* games, u8* frames, float* reward, float* score, u8* terminated,
                     u8* truncated, u8* game_over, u8* reset) {
  const u64 size = sizeof(Snapshot) + pixels;
  for (u64 env = 0; env < count; env++) {
    const u8* bytes = snapshots + env * size;
    const Refusal refusal = load(bytes, size, world->cartridge, world->rules, games[env]);
    if (refusal != Refusal::kNone) return (i32)refusal;
    memcpy(frames + env * pixels, bytes + sizeof(Snapshot), pixels);
    put_row(games[env].row, env, reward, score, terminated, truncated, game_over, reset);
  }
  return 0;
}
}

#pragma GCC visibility pop
