// The engine's calls on streams that fall behind: a stand-in for the driver, whose streams are
// threads, and what must hold whenever they get to their work. Built with sanitizers.
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>

#include "gpu/stream_calls.h"

using namespace jaxrl;

#define CHECK(truth) \
  do { \
    if (!(truth)) { \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #truth); \
      abort(); \
    } \
  } while (0)

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201;
constexpr u32 kEnvs = 9, kThreads = 3;
constexpr i32 kHeight = 42, kWidth = 40, kDevice = 1;

// A thread that does what was put on it, in order, once the gate is open.
class Stream {
 public:
  Stream() : thread_([this] { work(); }) {}
  ~Stream() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void put(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }
  void open(bool value) {
    std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = value;
    changed_.notify_all();
  }
  void drain() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty() && !is_busy_; });
  }
  size_t waiting() {
    std::lock_guard<std::mutex> lock(mutex_);
    return queue_.size();
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || (is_open_ && !queue_.empty()); });
      if (ends_) return;
      std::function<void()> next = std::move(queue_.front());
      queue_.pop_front();
      is_busy_ = true;
      lock.unlock();
      next();
      lock.lock();
      is_busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool is_open_ = false, is_busy_ = false, ends_ = false;
  std::thread thread_;
};

int context, retains = 0;
thread_local int entered = 0;
std::mutex host_mutex;  // a driver may have one thread for the functions of all streams
std::vector<Stream*> streams;

struct Range {
  u8* memory;
  size_t size;
};
std::vector<Range> pinned;

bool is_pinned(const void* from, size_t bytes) {
  for (const Range& range : pinned)
    if ((u8*)from >= range.memory && (u8*)from + bytes <= range.memory + range.size) return true;
  return false;
}

int put_copy(void* to, const void* from, const void* on_host, size_t bytes, void* stream) {
  if (!entered) return kInvalidContext;
  if (!is_pinned(on_host, bytes)) return kInvalidValue;
  ((Stream*)stream)->put([=] { memcpy(to, from, bytes); });
  return kSuccess;
}

}  // namespace

extern "C" {
int cuInit(unsigned) { return kSuccess; }
int cuDevicePrimaryCtxRetain(void** retained, int device) {
  *retained = &context;
  retains++;
  return device == kDevice ? kSuccess : kInvalidValue;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  retains--;
  return kSuccess;
}
int cuStreamGetCtx(void*, void** current) {
  *current = &context;
  return kSuccess;
}
int cuCtxPushCurrent_v2(void* pushed) {
  if (pushed != &context) return kInvalidContext;
  entered++;
  return kSuccess;
}
int cuCtxPopCurrent_v2(void**) {
  entered--;
  return kSuccess;
}
int cuCtxSynchronize() {
  if (!entered) return kInvalidContext;
  for (Stream* stream : streams) stream->drain();
  return kSuccess;
}
int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  if (!entered || flags != kForAllContexts || is_pinned(memory, 1)) return kInvalidValue;
  pinned.push_back({(u8*)memory, bytes});
  return kSuccess;
}
int cuMemHostUnregister(void* memory) {
  for (Range& range : pinned)
    if (entered && range.memory == memory) {
      range = pinned.back();
      pinned.pop_back();
      return kSuccess;
    }
  abort();
}
int cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t bytes, void* stream) {
  return put_copy(to, from, to, bytes, stream);
}
int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, void* stream) {
  return put_copy(to, from, from, bytes, stream);
}
int cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  if (!entered) return kInvalidContext;
  ((Stream*)stream)->put([=] {
    std::lock_guard<std::mutex> lock(host_mutex);
    function(argument);
  });
  return kSuccess;
}
int cuGetErrorName(int, const char** name) {
  *name = "AN_ERROR";
  return kSuccess;
}
#define UNUSED(name) \
  int name() { abort(); }
UNUSED(cuCtxGetDevice)
UNUSED(cuDeviceGetAttribute)
UNUSED(cuModuleLoadData)
UNUSED(cuModuleGetFunction)
UNUSED(cuFuncSetAttribute)
UNUSED(cuMemsetD32Async)
UNUSED(cuLaunchKernel)
}

namespace {

std::vector<u8> image;
const GameRules* game;

std::unique_ptr<OpenEngine> make_engine(u64 seed) {
  Rules rules{};
  rules.max_steps = 12;
  rules.noop_max = 4;
  rules.repeat_probability = 0.25f;
  rules.reward_clip = 1;
  rules.num_actions = 4;
  for (u8 action = 0; action < 4; action++) rules.actions[action] = action;
  auto engine = std::make_unique<OpenEngine>(
      *game, image.data(), image.size(), rules, kHeight, kWidth, std::vector<u64>(kEnvs, seed),
      [seed] {
        std::vector<u64> seeds(kEnvs);
        for (u32 env = 0; env < kEnvs; env++) seeds[env] = seed + env;
        return seeds;
      }(),
      kThreads);
  engine->begin(8);
  return engine;
}

i32 action_of(u32 step, u32 env) { return (i32)((step * 7 + env * 3 + step / 5) % 4); }

// The arrays of a device.
struct Device {
  std::vector<i32> actions = std::vector<i32>(kEnvs, -1);
  std::vector<u8> frames = std::vector<u8>(kEnvs * kHeight * kWidth, 0xEE);
  std::vector<float> reward = std::vector<float>(kEnvs, 99), score = reward;
  std::vector<u8> terminated = std::vector<u8>(kEnvs, 9), truncated = terminated,
                  game_over = terminated, reset = terminated;

  RowArrays rows() {
    return {frames.data(),    reward.data(),    score.data(), terminated.data(),
            truncated.data(), game_over.data(), reset.data()};
  }
  std::vector<u8> bytes() const {
    std::vector<u8> all(frames);
    for (const auto* numbers : {&reward, &score})
      all.insert(all.end(), (const u8*)numbers->data(), (const u8*)(numbers->data() + kEnvs));
    for (const auto* flags : {&terminated, &truncated, &game_over, &reset})
      all.insert(all.end(), flags->begin(), flags->end());
    return all;
  }
};

std::vector<std::vector<u8>> played_directly(u64 seed, u32 steps) {
  const auto engine = make_engine(seed);
  std::vector<std::vector<u8>> all;
  Device device;
  for (u32 step = 0; step < steps; step++) {
    for (u32 env = 0; env < kEnvs; env++) device.actions[env] = action_of(step, env);
    engine->send(device.actions.data());
    engine->wait();
    for (const Copy& copy : engine->rows().copies(device.rows()))
      memcpy(copy.to, copy.from, copy.bytes);
    all.push_back(device.bytes());
  }
  return all;
}

// A program's run of steps on a stream. It writes the actions where those of the step before were,
// and reads the rows where those of the next will be.
void put_steps(Stream& stream, OpenEngine& engine, Device& device, u32 first, u32 steps,
               std::vector<std::vector<u8>>& all) {
  for (u32 step = first; step < first + steps; step++) {
    stream.put([&device, step] {
      for (u32 env = 0; env < kEnvs; env++) device.actions[env] = action_of(step, env);
    });
    CHECK(send_on((DriverHandle)&stream, engine, device.actions.data()).success());
    stream.put([&device] { std::fill(device.actions.begin(), device.actions.end(), -1); });
    CHECK(receive_on((DriverHandle)&stream, engine, device.rows()).success());
    stream.put([&device, &all] { all.push_back(device.bytes()); });
  }
}

}  // namespace

// Takes a file with the cartridge, the game's name, and the number of steps.
int main(int, char** arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  image.assign(std::istreambuf_iterator<char>(file), {});
  game = find_rules(arguments[2]);
  const u32 steps = (u32)atoi(arguments[3]);
  CHECK(game && !image.empty());
  const std::vector<u64> seeds{5, 6};

  Stream one, other;
  streams = {&one, &other};
  Device devices[2];
  std::vector<std::vector<u8>> all[2];
  std::unique_ptr<OpenEngine> engines[2];
  for (u32 index = 0; index < 2; index++) {
    engines[index] = make_engine(seeds[index]);
    CHECK(send_on((DriverHandle)streams[index], *engines[index], nullptr).failure());  // not pinned
    CHECK(engines[index]->pinned.pin(engines[index]->rows().pages, kDevice).empty());
    put_steps(*streams[index], *engines[index], devices[index], 0, steps, all[index]);
    // Nothing has waited for the device, and nothing has run ahead of it.
    CHECK(streams[index]->waiting() == steps * (3 + 2 + 8));
    CHECK(devices[index].bytes() == Device{}.bytes());
  }
  CHECK(pinned.size() == 2);
  for (Stream* stream : streams) stream->open(true);
  for (u32 index = 0; index < 2; index++) {
    // As Python does it before a checkpoint: behind what is on the stream.
    CHECK(engines[index]->pinned.wait_for_device());
    CHECK(all[index].size() == steps);
    CHECK(all[index] == played_directly(seeds[index], steps));
  }

  // An engine ends when its steps have.
  one.open(false);
  put_steps(one, *engines[0], devices[0], steps, 2, all[0]);
  CHECK(send_on((DriverHandle)&one, *engines[0], devices[0].actions.data()).success());
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    one.open(true);
  });
  engines[0].reset();
  CHECK(all[0].size() == steps + 2 && one.waiting() == 0);
  opens.join();
  engines[1].reset();
  CHECK(pinned.empty() && retains == 0);
  printf("%u steps\n", steps);
  return 0;
}
