// The engine for Python (plain functions) and for compiled programs
// (XLA's foreign function interface).
//
// An engine is known by a number, which a compiled call holds as an attribute: numbers start at 1
// in each process, so a program that was compiled before is found again. A token orders the calls;
// its new value has the place of the old one, and nobody writes it.
#include <cstring>
#include <map>
#include <memory>

#include "gpu/ffi_rows.h"
#include "gpu/stream_calls.h"
#include "vector/game_calls.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using namespace jaxrl;

namespace {

std::mutex engines_mutex;
// Shared, so that an engine that is closed lives until nobody waits for it; never destroyed, so
// that the end of the process waits for no thread.
auto& engines = *new std::map<i64, std::shared_ptr<OpenEngine>>;
i64 last_number = 0;

std::shared_ptr<OpenEngine> find(i64 number) {
  std::lock_guard<std::mutex> lock(engines_mutex);
  const auto entry = engines.find(number);
  return entry == engines.end() ? nullptr : entry->second;
}

// What Python is told of a call.
enum Answer : u8 { kIsClosed, kDone, kDeviceFailed, kIsForked };

// Whether an engine is open, with its threads: they do not follow into a process that is forked.
Answer answer_of(const OpenEngine* engine) {
  if (!engine) return kIsClosed;
  return engine->process == getpid() ? kDone : kIsForked;
}

// Calls `work(engine)` when nothing of the engine is left on a stream.
template <typename Work>
u8 when_still(i64 number, Work work) {
  const std::shared_ptr<OpenEngine> engine = find(number);
  if (const Answer answer = answer_of(engine.get()); answer != kDone) return answer;
  if (!engine->pinned.wait_for_device()) return kDeviceFailed;
  work(*engine);
  return kDone;
}

void copy_rows(const Rows& rows, const RowArrays& to) {
  for (const Copy& copy : rows.copies(to)) memcpy(copy.to, copy.from, copy.bytes);
}

// --- compiled programs ---------------------------------------------------------------------------

using Token = ffi::Buffer<ffi::U8>;
using Actions = ffi::Buffer<ffi::S32>;
using NewToken = ffi::ResultBuffer<ffi::U8>;
using NewFrames = ffi::ResultBuffer<ffi::U8>;

const char* const kClosed = "the engine of this program is closed";
const char* const kForked =
    "the games belong to the process that this one was forked from, and their threads are not here";

ffi::Error error_of(Answer answer) {
  return ffi::Error::Internal(answer == kIsForked ? kForked : kClosed);
}

// Calls `start(engine, actions)`.
template <typename Start>
ffi::Error send_by(i64 number, const Actions& actions, Start start) {
  const std::shared_ptr<OpenEngine> engine = find(number);
  if (const Answer answer = answer_of(engine.get()); answer != kDone) return error_of(answer);
  if (actions.element_count() != engine->count())
    return ffi::Error::InvalidArgument("there must be one action for each environment");
  return start(*engine, actions.typed_data());
}

// Calls `receive(engine, arrays)`.
template <typename Receive>
ffi::Error receive_by(i64 number, NewFrames frames, Numbers reward, Numbers score, Flags terminated,
                      Flags truncated, Flags game_over, Flags reset, Receive receive) {
  const std::shared_ptr<OpenEngine> engine = find(number);
  if (const Answer answer = answer_of(engine.get()); answer != kDone) return error_of(answer);
  bool fits = frames->element_count() == engine->count() * engine->pixels();
  for (size_t size :
       {reward->element_count(), score->element_count(), terminated->element_count(),
        truncated->element_count(), game_over->element_count(), reset->element_count()})
    fits &= size == engine->count();
  if (!fits) return ffi::Error::InvalidArgument("the rows have another size than the engine's");
  return receive(*engine,
                 RowArrays{frames->untyped_data(), reward->untyped_data(), score->untyped_data(),
                           terminated->untyped_data(), truncated->untyped_data(),
                           game_over->untyped_data(), reset->untyped_data()});
}

ffi::Error send_call(i64 number, Token, Actions actions, NewToken) {
  return send_by(number, actions, [](OpenEngine& engine, const i32* from) {
    engine.send(from);
    return ffi::Error::Success();
  });
}

template <typename... Arrays>
ffi::Error recv_call(i64 number, Token, NewToken, Arrays... arrays) {
  return receive_by(number, arrays..., [](OpenEngine& engine, const RowArrays& to) {
    engine.wait();
    copy_rows(engine.rows(), to);
    return ffi::Error::Success();
  });
}

ffi::Error send_on_stream(DriverHandle stream, i64 number, Token, Actions actions, NewToken) {
  return send_by(number, actions, [stream](OpenEngine& engine, const i32* from) {
    return send_on(stream, engine, from);
  });
}

template <typename... Arrays>
ffi::Error recv_on_stream(DriverHandle stream, i64 number, Token, NewToken, Arrays... arrays) {
  return receive_by(number, arrays..., [stream](OpenEngine& engine, const RowArrays& to) {
    return receive_on(stream, engine, to);
  });
}

// For platforms without streams, where a test's driver plays.
ffi::Error send_without_stream(i64 number, Token old, Actions actions, NewToken token) {
  return send_on_stream(nullptr, number, old, actions, token);
}
template <typename... Arrays>
ffi::Error recv_without_stream(i64 number, Token old, NewToken token, Arrays... arrays) {
  return recv_on_stream(nullptr, number, old, token, arrays...);
}

}  // namespace

#define JAXRL_SEND .Attr<i64>("engine").Arg<Token>().Arg<Actions>().Ret<Token>()
#define JAXRL_RECV \
  .Attr<i64>("engine").Arg<Token>().Ret<Token>().Ret<ffi::Buffer<ffi::U8>>() JAXRL_NUMBERS_AND_FLAGS
#define JAXRL_ROWS NewFrames, Numbers, Numbers, Flags, Flags, Flags, Flags
#define JAXRL_STREAM ffi::Ffi::Bind().Ctx<ffi::PlatformStream<DriverHandle>>()

// All else of ours is hidden: see FLAGS in runtime/native_library.py.
#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_send, send_call, ffi::Ffi::Bind() JAXRL_SEND);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_recv, (recv_call<JAXRL_ROWS>), ffi::Ffi::Bind() JAXRL_RECV);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_send_on_stream, send_on_stream, JAXRL_STREAM JAXRL_SEND);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_recv_on_stream, (recv_on_stream<JAXRL_ROWS>),
                              JAXRL_STREAM JAXRL_RECV);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_send_without_stream, send_without_stream,
                              ffi::Ffi::Bind() JAXRL_SEND);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_recv_without_stream, (recv_without_stream<JAXRL_ROWS>),
                              ffi::Ffi::Bind() JAXRL_RECV);

// --- Python --------------------------------------------------------------------------------------

extern "C" {

// Makes an engine and returns its number, 0 for an unknown game or cartridge, or -1 where there is
// no memory or no thread left.
i64 jaxrl_open(const char* game, const u8* image, u64 size, const Rules* rules, i32 height,
               i32 width, const u64* runs, const u64* seeds, u64 count, u32 threads) {
  const GameRules* known = find_rules(game);
  auto cartridge = std::make_unique<Cartridge>();
  if (!known || !load_image(*cartridge, image, size, known->setup)) return 0;
  std::shared_ptr<OpenEngine> engine;
  try {
    engine = std::make_shared<OpenEngine>(*known, image, size, *rules, height, width,
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
  std::shared_ptr<OpenEngine> engine;
  {
    std::lock_guard<std::mutex> lock(engines_mutex);
    const auto entry = engines.find(number);
    if (entry == engines.end()) return;
    engine = std::move(entry->second);
    engines.erase(entry);
  }
  if (answer_of(engine.get()) == kIsForked || !engine->pinned.wait_for_device()) {
    // For ever: its threads cannot be joined, or the device that failed may still name its rows.
    new std::shared_ptr<OpenEngine>(engine);
    return;
  }
  engine->wait();
}

// Pins the rows of an engine for a device, before a program sends on its stream. Returns 0, or the
// length of what failed, of which `message` takes 256 characters.
u32 jaxrl_pin(i64 number, i32 device, char* message) {
  const std::shared_ptr<OpenEngine> engine = find(number);
  const std::string failure = engine ? engine->pinned.pin(engine->rows().pages, device) : kClosed;
  message[failure.copy(message, 255)] = 0;
  return (u32)failure.size();
}

// These return an `Answer`.
u8 jaxrl_begin(i64 number, u32 random_steps) {
  return when_still(number, [=](OpenEngine& engine) { engine.begin(random_steps); });
}
u8 jaxrl_send_now(i64 number, const i32* actions) {
  return when_still(number, [=](OpenEngine& engine) { engine.send(actions); });
}
u8 jaxrl_save(i64 number, u8* snapshots) {
  return when_still(number, [=](OpenEngine& engine) { engine.save(snapshots); });
}
u8 jaxrl_render(i64 number, u8* out) {
  return when_still(number, [=](OpenEngine& engine) { engine.render(out); });
}
// `refusal` is a `Refusal`.
u8 jaxrl_load(i64 number, const u8* snapshots, i32* refusal) {
  return when_still(number, [=](OpenEngine& engine) { *refusal = (i32)engine.load(snapshots); });
}
// Waits for the step and writes its rows.
u8 jaxrl_receive(i64 number, u8* frames, float* reward, float* score, u8* terminated, u8* truncated,
                 u8* game_over, u8* reset) {
  return when_still(number, [=](OpenEngine& engine) {
    engine.wait();
    copy_rows(engine.rows(), {frames, reward, score, terminated, truncated, game_over, reset});
  });
}

// Returns the bytes of one environment's snapshot, 0 where the engine is closed.
u64 jaxrl_snapshot_size(i64 number) {
  const std::shared_ptr<OpenEngine> engine = find(number);
  return engine ? engine->snapshot_size() : 0;
}
u32 jaxrl_snapshot_version() { return kSnapshotVersion; }
}

#pragma GCC visibility pop
