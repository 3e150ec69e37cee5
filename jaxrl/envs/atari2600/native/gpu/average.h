// The observation of rows that are drawn one after another: the maximum of two frames, averaged
// over areas, by the lanes of a warp, each of which has some columns of it. env/observation.h has
// the same for whole screens, and adds in the same order.
#pragma once

#include "gpu/share.h"

namespace jaxrl {

constexpr i32 kOwnColumns = (kScreenWidth + kLanes - 1) / kLanes;

struct RowAverager {
  const World& world;
  u8* out;    // the observation
  i32 y = 0;  // its row that is being added up
  float sums[kOwnColumns] = {};
  i32 whole[kOwnColumns] = {};  // the same where pixels are averaged in blocks

  // Adds a line of the two frames.
  void add(i32 line, const u8* a, const u8* b) {
    if (world.down)
      add_to_blocks(line, a, b);
    else
      add_to_areas(line, a, b);
  }

 private:
  static u32 largest(const u8* a, const u8* b, i32 x) { return a[x] > b[x] ? a[x] : b[x]; }

  void put(i32 x, i32 pixel) { out[y * world.width + x] = (u8)pixel; }

  void add_to_blocks(i32 line, const u8* a, const u8* b) {
    const i32 down = world.down, across = world.across;
    const float share = 1.0f / (float)(down * across);
    const bool ends = line % down == down - 1;
    for (i32 own = 0; own < kOwnColumns; own++) {
      const i32 x = (i32)threadIdx.x + own * kLanes;
      if (x >= world.width) break;
      for (i32 at = across * x; at < across * (x + 1); at++) whole[own] += (i32)largest(a, b, at);
      if (!ends) continue;
      put(x, world.halves ? (whole[own] + 2) >> 2 : to_nearest((float)whole[own] * share));
      whole[own] = 0;
    }
    y += ends;
  }

  void add_to_areas(i32 line, const u8* a, const u8* b) {
    float parts[kOwnColumns];
    for (i32 own = 0; own < kOwnColumns; own++) {
      const i32 x = (i32)threadIdx.x + own * kLanes;
      if (x >= world.width) break;
      const Taps& across = world.columns[x];
      parts[own] = 0;
      for (i32 column = 0; column < across.count; column++)
        parts[own] += (float)largest(a, b, across.first + column) * across.share[column];
    }
    // A line between two rows belongs to both.
    while (y < world.height && world.rows[y].first <= line) {
      const Taps& down = world.rows[y];
      const bool ends = line == down.first + down.count - 1;
      for (i32 own = 0; own < kOwnColumns; own++) {
        const i32 x = (i32)threadIdx.x + own * kLanes;
        if (x >= world.width) break;
        sums[own] += down.share[line - down.first] * parts[own];
        if (!ends) continue;
        put(x, to_nearest(sums[own]));
        sums[own] = 0;
      }
      if (!ends) break;
      y++;
    }
  }
};

}  // namespace jaxrl
