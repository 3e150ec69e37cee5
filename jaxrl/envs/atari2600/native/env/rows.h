// Rows of all environments, as arrays in pages of their own, which a driver can keep in memory.
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

#include "env/environment.h"

namespace jaxrl {

// Whole pages of zeros, from which arrays are taken one after another.
// No two share a line of a cache.
class Pages {
 public:
  static size_t padded(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

  explicit Pages(size_t bytes)
      : size_((bytes + kPage - 1) / kPage * kPage), memory_((u8*)std::aligned_alloc(kPage, size_)) {
    if (!memory_) throw std::bad_alloc();
    memset(memory_, 0, size_);
  }
  ~Pages() { std::free(memory_); }

  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  u8* memory() { return memory_; }
  size_t size() const { return size_; }

  template <typename T>
  T* take(size_t length) {
    u8* const taken = memory_ + used_;
    used_ += padded(length * sizeof(T));
    return (T*)taken;
  }

 private:
  static constexpr size_t kPage = 65536;  // the largest that systems have
  static constexpr size_t kLine = 64;

  const size_t size_;
  u8* const memory_;
  size_t used_ = 0;
};

// Where the arrays of rows are to be written: frames, then one number or flag for each environment.
struct RowArrays {
  void *frames, *reward, *score, *terminated, *truncated, *game_over, *reset;
};

inline void put_row(const Row& row, size_t env, float* reward, float* score, u8* terminated,
                    u8* truncated, u8* game_over, u8* reset) {
  reward[env] = row.reward;
  score[env] = row.score;
  terminated[env] = row.terminated;
  truncated[env] = row.truncated;
  game_over[env] = row.game_over;
  reset[env] = row.reset;
}

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Rows {
  const size_t count, pixels;  // E, height x width
  Pages pages;
  u8* const frames = pages.take<u8>(count * pixels);  // E x height x width
  float* const reward = pages.take<float>(count);
  float* const score = pages.take<float>(count);
  i32* const actions = pages.take<i32>(count);  // what a device sends for the next rows
  u8* const terminated = pages.take<u8>(count);
  u8* const truncated = pages.take<u8>(count);
  u8* const game_over = pages.take<u8>(count);
  u8* const reset = pages.take<u8>(count);

  Rows(size_t count_, size_t pixels_)
      : count(count_),
        pixels(pixels_),
        pages(Pages::padded(count * pixels) + 3 * Pages::padded(4 * count) +
              4 * Pages::padded(count)) {}

  u8* frame(size_t env) { return frames + env * pixels; }

  // What copies the rows to these arrays.
  std::array<Copy, 7> copies(const RowArrays& to) const {
    return {{{to.frames, frames, count * pixels},
             {to.reward, reward, count * sizeof *reward},
             {to.score, score, count * sizeof *score},
             {to.terminated, terminated, count},
             {to.truncated, truncated, count},
             {to.game_over, game_over, count},
             {to.reset, reset, count}}};
  }

  Row row(size_t env) const {
    return {reward[env], score[env], terminated[env], truncated[env], game_over[env], reset[env]};
  }
  void put(size_t env, const Row& row) {
    put_row(row, env, reward, score, terminated, truncated, game_over, reset);
  }
};

}  // namespace jaxrl
