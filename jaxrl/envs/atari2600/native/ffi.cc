// The engine for Python (plain functions) and for compiled programs (XLA's foreign function interface).
//
// An engine is known by a number, which a compiled call holds as an attribute: numbers start at 1 in
// each process, so a program that was compiled before is found again. A token orders the calls.
#include <cstring>
#include <map>
#include <memory>

#include "cpu_engine.h"
#include "game_calls.h"
#include "vector_calls.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using namespace jaxrl;

namespace {

std::mutex engines_mutex;
// Shared, so that an engine that is closed lives until nobody waits for it; never destroyed, so that
// the end of the process waits for no thread.
auto& engines = *new std::map<i64, std::shared_ptr<CpuEngine>>;
i64 last_number = 0;

std::shared_ptr<CpuEngine> find(i64 number) {
  std::lock_guard<std::mutex> lock(engines_mutex);
  const auto found = engines.find(number);
  return found == engines.end() ? nullptr : found->second;
}

template <typename T>
void copy(void* to, const std::vector<T>& from) {
  memcpy(to, from.data(), from.size() * sizeof(T));
}

ffi::Error send_call(i64 number, ffi::Buffer<ffi::U8>, ffi::Buffer<ffi::S32> actions,
                     ffi::ResultBuffer<ffi::U8> token) {
  const std::shared_ptr<CpuEngine> engine = find(number);
  if (!engine) return ffi::Error::Internal("the engine of this program is closed");
  if (actions.element_count() != engine->count())
    return ffi::Error::InvalidArgument("there must be one action for each environment");
  engine->send(actions.typed_data());
  memset(token->typed_data(), 0, token->size_bytes());
  return ffi::Error::Success();
}

ffi::Error recv_call(i64 number, ffi::Buffer<ffi::U8>, ffi::ResultBuffer<ffi::U8> token,
                     ffi::ResultBuffer<ffi::U8> frames, ffi::ResultBuffer<ffi::F32> reward,
                     ffi::ResultBuffer<ffi::F32> score, ffi::ResultBuffer<ffi::PRED> terminated,
                     ffi::ResultBuffer<ffi::PRED> truncated, ffi::ResultBuffer<ffi::PRED> game_over,
                     ffi::ResultBuffer<ffi::PRED> reset) {
  const std::shared_ptr<CpuEngine> engine = find(number);
  if (!engine) return ffi::Error::Internal("the engine of this program is closed");
  const Rows& rows = engine->rows();
  bool fits = frames->element_count() == rows.frames.size();
  for (size_t size : {reward->element_count(), score->element_count(), terminated->element_count(),
                      truncated->element_count(), game_over->element_count(),
                      reset->element_count()})
    fits &= size == engine->count();
  if (!fits) return ffi::Error::InvalidArgument("the rows have another size than the engine's");
  engine->wait();
  memset(token->typed_data(), 0, token->size_bytes());
  copy(frames->typed_data(), rows.frames);
  copy(reward->typed_data(), rows.reward);
  copy(score->typed_data(), rows.score);
  copy(terminated->typed_data(), rows.terminated);
  copy(truncated->typed_data(), rows.truncated);
  copy(game_over->typed_data(), rows.game_over);
  copy(reset->typed_data(), rows.reset);
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_send, send_call,
                              ffi::Ffi::Bind()
                                  .Attr<i64>("engine")
                                  .Arg<ffi::Buffer<ffi::U8>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::Buffer<ffi::U8>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_recv, recv_call,
                              ffi::Ffi::Bind()
                                  .Attr<i64>("engine")
                                  .Arg<ffi::Buffer<ffi::U8>>()
                                  .Ret<ffi::Buffer<ffi::U8>>()
                                  .Ret<ffi::Buffer<ffi::U8>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::PRED>>()
                                  .Ret<ffi::Buffer<ffi::PRED>>()
                                  .Ret<ffi::Buffer<ffi::PRED>>()
                                  .Ret<ffi::Buffer<ffi::PRED>>());

extern "C" {

// Returns the lines that a game shows, or 0 for an unknown one. A known game's cartridge may still be of
// an unknown kind.
i32 jaxrl_lines(const char* game) {
  const GameRules* rules = find_rules(game);
  return rules ? rules->setup.height : 0;
}

// Makes an engine and returns its number, 0 for an unknown game or cartridge, or -1 where there is no
// memory or no thread left.
i64 jaxrl_open(const char* game, const u8* image, u64 size, const Rules* rules, i32 height,
               i32 width, const u64* runs, const u64* seeds, u64 count, u32 threads) {
  const GameRules* known = find_rules(game);
  auto cartridge = std::make_unique<Cartridge>();
  if (!known || !load_image(*cartridge, image, size, known->setup)) return 0;
  std::shared_ptr<CpuEngine> engine;
  try {
    engine = std::make_shared<CpuEngine>(*known, image, size, *rules, height, width,
                                              std::vector<u64>(runs, runs + count),
                                              std::vector<u64>(seeds, seeds + count), threads);
  } catch (const std::exception&) {
    return -1;  // no memory, or no threads
  }
  std::lock_guard<std::mutex> lock(engines_mutex);
  engines[++last_number] = std::move(engine);
  return last_number;
}

void jaxrl_close(i64 number) {
  std::shared_ptr<CpuEngine> engine;
  {
    std::lock_guard<std::mutex> lock(engines_mutex);
    const auto found = engines.find(number);
    if (found == engines.end()) return;
    engine = std::move(found->second);
    engines.erase(found);
  }
  engine->wait();
}

// These return 0 where the engine is closed.
u8 jaxrl_begin(i64 number, u32 random_steps) {
  const std::shared_ptr<CpuEngine> engine = find(number);
  if (engine) engine->begin(random_steps);
  return engine != nullptr;
}
u8 jaxrl_send_now(i64 number, const i32* actions) {
  const std::shared_ptr<CpuEngine> engine = find(number);
  if (engine) engine->send(actions);
  return engine != nullptr;
}
u8 jaxrl_save(i64 number, u8* snapshots) {
  const std::shared_ptr<CpuEngine> engine = find(number);
  if (engine) engine->save(snapshots);
  return engine != nullptr;
}
u8 jaxrl_render(i64 number, u8* out) {
  const std::shared_ptr<CpuEngine> engine = find(number);
  if (engine) engine->render(out);
  return engine != nullptr;
}

// Returns the bytes of one environment's snapshot, 0 where the engine is closed.
u64 jaxrl_snapshot_size(i64 number) {
  const std::shared_ptr<CpuEngine> engine = find(number);
  return engine ? engine->snapshot_size() : 0;
}
u32 jaxrl_snapshot_version() { return kSnapshotVersion; }
// Returns a `Refusal`, or -1 where the engine is closed.
i32 jaxrl_load(i64 number, const u8* snapshots) {
  const std::shared_ptr<CpuEngine> engine = find(number);
  return engine ? (i32)engine->load(snapshots) : -1;
}

// Waits for the step and writes its rows.
u8 jaxrl_receive(i64 number, u8* frames, float* reward, float* score, u8* terminated,
                   u8* truncated, u8* game_over, u8* reset) {
  const std::shared_ptr<CpuEngine> engine = find(number);
  if (!engine) return 0;
  engine->wait();
  const Rows& rows = engine->rows();
  copy(frames, rows.frames);
  copy(reward, rows.reward);
  copy(score, rows.score);
  copy(terminated, rows.terminated);
  copy(truncated, rows.truncated);
  copy(game_over, rows.game_over);
  copy(reset, rows.reset);
  return 1;
}
}
