// Plays games with a library of the vector environment and prints a digest of all that it returns,
// so that libraries of other processors can be compared: PROGRAM LIBRARY CARTRIDGE.bin...
#include <dlfcn.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "vector/engine.h"

using namespace jaxrl;

namespace {

constexpr u32 kCount = 3, kSteps = 60, kActions = 18;

// FNV-1a.
struct Digest {
  u64 value = 1469598103934665603u;
  template <typename T>
  void add(const std::vector<T>& values) {
    const u8* bytes = reinterpret_cast<const u8*>(values.data());
    for (size_t i = 0; i < values.size() * sizeof(T); i++)
      value = (value ^ bytes[i]) * 1099511628211u;
  }
};

template <typename Function>
Function* find(void* library, const char* name) {
  void* const function = dlsym(library, name);
  if (!function) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function*>(function);
}

void play(void* library, const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  const std::string game = path.stem().string();
  Digest digest;
  for (u8 color : {0, 1}) {
    VectorRules rules{};
    rules.frame_skip = 4;
    rules.noop_max = 30;
    rules.max_frames = 108000;
    rules.stack = 4;
    rules.height = rules.width = 84;
    rules.repeat_probability = 0.25f;
    rules.maxpool = rules.episodic_life = 1;
    rules.color = color;
    rules.num_actions = kActions;
    for (u8 action = 0; action < kActions; action++) rules.actions[action] = action;
    std::vector<u8> observations(kCount * 4 * 84 * 84 * (color ? 3 : 1)), ends(2 * kCount);
    std::vector<i32> numbers(5 * kCount);
    const VectorBatch batch{observations.data(), nullptr, numbers.data(), ends.data()};
    const VectorTitle title{game.c_str(), reinterpret_cast<const u8*>(image.data()), image.size()};
    VectorEngine* const engine = find<VectorEngine*(const VectorTitle*, u32, const VectorRules*,
                                                    u32, u32, u32, i32, const VectorBatch*)>(
        library, "jaxrl_vector_open")(&title, 1, &rules, kCount, kCount, 2, -1, &batch);
    if (!engine) throw std::runtime_error("cannot open " + game);
    const u8 chosen[kCount] = {1, 1, 1};
    const i64 seeds[kCount] = {1, 2, 3};
    find<void(VectorEngine*, const u8*, const i64*)>(library, "jaxrl_vector_reset")(engine, chosen,
                                                                                    seeds);
    const auto receive =
        find<const u8*(VectorEngine*, const VectorBatch*)>(library, "jaxrl_vector_receive");
    const auto send =
        find<u8(VectorEngine*, const i32*, const float*)>(library, "jaxrl_vector_send");
    u32 random = 12345;
    for (u32 step = 0; step < kSteps; step++) {
      receive(engine, &batch);
      digest.add(observations), digest.add(numbers), digest.add(ends);
      i32 actions[kCount];
      for (i32& action : actions) {
        random = random * 1664525u + 1013904223u;
        action = (i32)((random >> 16) % kActions);
      }
      if (!send(engine, actions, nullptr)) throw std::runtime_error("actions were refused");
    }
    receive(engine, &batch);
    std::vector<u8> snapshots(
        kCount * find<u64(VectorEngine*)>(library, "jaxrl_vector_snapshot_size")(engine));
    find<u8(VectorEngine*, u8*)>(library, "jaxrl_vector_save")(engine, snapshots.data());
    digest.add(snapshots);
    find<void(VectorEngine*)>(library, "jaxrl_vector_close")(engine);
  }
  printf("%s %016llx\n", game.c_str(), (unsigned long long)digest.value);
}

}  // namespace

int main(int count, char** arguments) {
  void* const library = dlopen(arguments[1], RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  for (int i = 2; i < count; i++) play(library, arguments[i]);
  return 0;
}
