// Random frames, averaged as the emulator does it and pixel by pixel: prints for each size how many
// of them differ, and the way that was taken.
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "env/observation.h"

using namespace jaxrl;

namespace {

// Every byte, few grays (whose averages often fall halfway), or one.
void draw(u64& random, std::vector<u8>& frame, int trial) {
  for (u8& pixel : frame) {
    const u8 byte = (u8)next_random(random);
    pixel = trial % 3 == 0 ? byte : trial % 3 == 1 ? (u8)((byte & 7) * 32) : 255;
  }
}

const char* way(const Averager& averager) {
  if (averager.halves) return "halves";
  if (averager.down) return "blocks";
#ifdef __AVX2__
  if (averager.square) return "square";
  if (!averager.eights.empty()) return "eights";
#endif
  return "pixels";
}

int differences(const Averager& averager, i32 lines) {
  const size_t pixels = (size_t)(averager.height * averager.width);
  std::vector<u8> a((size_t)lines * kScreenWidth), b(a), out(pixels), expected(pixels);
  u64 random = 1;
  int different = 0;
  for (int trial = 0; trial < 12; trial++) {
    draw(random, a, trial);
    draw(random, b, trial / 3);
    observe(averager, a.data(), b.data(), out.data());
    for (i32 y = 0, at = 0; y < averager.height; y++)
      for (i32 x = 0; x < averager.width; x++)
        expected[(size_t)at++] = averager.pixel(a.data(), b.data(), y, x);
    different += out != expected;
  }
  return different;
}

}  // namespace

int main() {
  constexpr i32 kSizes[][2] = {{84, 84}, {60, 60}, {44, 44},   {50, 33},  {33, 50},  {83, 97},
                               {72, 36}, {30, 30}, {100, 128}, {64, 159}, {200, 81}, {20, 13}};
  for (const i32 lines : {210, 250})
    for (const auto& [height, width] : kSizes) {
      const Averager averager(lines, height, width);
      std::printf("%d %d %d %d %s\n", lines, height, width, differences(averager, lines),
                  way(averager));
    }
}
