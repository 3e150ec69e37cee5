// Memory that a thread needs next, fetched while the products of a tile keep it busy: else it would
// wait for an image and then multiply it, one after the other.
#pragma once

#include <cassert>
#include <initializer_list>

namespace jaxrl {

class Ahead {
 public:
  struct Part {
    const void* at;
    long bytes;  // 0 for nothing
  };

  // Gives up what has not been fetched. The parts are fetched in as many steps as were made since
  // the last call, and not at all if they are so small that they will be in a cache.
  void plan(std::initializer_list<Part> parts) {
    assert(parts.size() <= kMost);
    count_ = first_ = 0;
    long lines = 0;
    for (const Part& part : parts) {
      const char* at = static_cast<const char*>(part.at);
      spans_[count_++] = {at, at + part.bytes};
      lines += part.bytes / kLine;
    }
    if (lines < kFew) count_ = 0;
    pace_ = lines / (steps_ ? steps_ : kSteps) + 1;
    steps_ = 0;
  }

  void step() {
    steps_++;
    for (long left = pace_; left > 0 && first_ < count_;) {
      Span& span = spans_[first_];
      for (; left > 0 && span.at < span.end; left--, span.at += kLine)
        __builtin_prefetch(span.at, 0, 2);
      if (span.at >= span.end) first_++;
    }
  }

 private:
  struct Span {
    const char *at, *end;
  };

  static constexpr long kLine = 64;   // bytes
  static constexpr long kFew = 512;   // lines
  static constexpr long kSteps = 64;  // of an image, before one has been counted
  static constexpr int kMost = 4;
  Span spans_[kMost];
  int first_ = 0, count_ = 0;
  long pace_ = 0, steps_ = 0;
};

// This thread's.
inline Ahead& ahead() {
  thread_local Ahead of_thread;
  return of_thread;
}

}  // namespace jaxrl
