// What a vector environment shows of up to three pictures: grays as env/observation.h averages
// them, or red, green and blue, each averaged by itself.
#pragma once

#include "console/palette.h"
#include "env/observation.h"

namespace jaxrl {

// Scratch of a thread.
struct Pictures {
  u8 left[2][kMostLines * kScreenWidth];  // by the row before
  u8 plane[kMostLines * kScreenWidth];
  u8 average[kMostLines * kScreenWidth];
};

// What a thread needs to show pictures.
struct Viewer {
  const Averager& averager;
  Pictures& pictures;
  i32 screen_size;
  const ColorPlanes* colors;  // null shows grays
};

// Up to three pictures, of which the maximum is seen.
struct Seen {
  const u8* pictures[3];
  u32 count = 0;
  void add(const u8* picture) { pictures[count++] = picture; }
};

// Whether a line looks as the one above it in all pictures, as most lines do.
inline bool repeats_line(const Seen& seen, i32 start) {
  if (start == 0) return false;
  for (u32 one = 0; one < seen.count; one++) {
    const u8* line = seen.pictures[one] + start;
    if (memcmp(line, line - kScreenWidth, kScreenWidth)) return false;
  }
  return true;
}

// Writes the maximum of the pictures, each by a table.
inline void take_maximum(const Seen& seen, const u8* table, i32 size, u8* out) {
  for (i32 start = 0; start < size; start += kScreenWidth) {
    u8* line = out + start;
    if (repeats_line(seen, start)) {
      memcpy(line, line - kScreenWidth, kScreenWidth);
      continue;
    }
    for (i32 x = 0; x < kScreenWidth; x++) line[x] = table[seen.pictures[0][start + x]];
    for (u32 other = 1; other < seen.count; other++)
      for (i32 x = 0; x < kScreenWidth; x++) {
        const u8 value = table[seen.pictures[other][start + x]];
        if (value > line[x]) line[x] = value;
      }
  }
}

inline void observe_colors(const Viewer& viewer, const Seen& seen, u8* out) {
  const i32 pixels = viewer.averager.height * viewer.averager.width;
  u8 *plane = viewer.pictures.plane, *average = viewer.pictures.average;
  for (int color = 0; color < 3; color++) {
    take_maximum(seen, viewer.colors->of[color], viewer.screen_size, plane);
    observe(viewer.averager, plane, plane, average);
    for (i32 pixel = 0; pixel < pixels; pixel++) out[3 * pixel + color] = average[pixel];
  }
}

// Writes the observation of the maximum of the pictures,
// of grays or of COLUxx where it shows colors.
inline void observe(const Viewer& viewer, const Seen& seen, u8* out) {
  if (viewer.colors) return observe_colors(viewer, seen, out);
  const u8* first = seen.pictures[0];
  if (seen.count == 3) {
    u8* plane = viewer.pictures.plane;
    for (i32 at = 0; at < viewer.screen_size; at++) {
      const u8 one = first[at], other = seen.pictures[1][at];
      plane[at] = one > other ? one : other;
    }
    first = plane;
  }
  observe(viewer.averager, first, seen.pictures[seen.count - 1], out);
}

}  // namespace jaxrl
