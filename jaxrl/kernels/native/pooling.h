// Max-pooling of one image by windows of 3 x 3 pixels, 2 apart, and its gradient: [H, W, C] -> [H',
// W', C], H' = ceil(H / 2).
//
// Windows lie as XLA's "SAME" has them: where they do not fit, one more pixel of them is outside at
// the end than at the start.
#pragma once

#include <algorithm>
#include <cstring>

#include "lanes.h"

namespace jaxrl {

struct Pooling {
  int height, width, channels;  // channels are a multiple of kLanes

  static constexpr int kSize = 3, kStride = 2;
  static int outputs_along(int length) { return (length + kStride - 1) / kStride; }
  // Of the first window, 0 or below.
  static int start(int length) {
    return -std::max(0, (outputs_along(length) - 1) * kStride + kSize - length) / 2;
  }
  int rows() const { return outputs_along(height); }
  int columns() const { return outputs_along(width); }
  long inputs() const { return static_cast<long>(height) * width * channels; }
  long outputs() const { return static_cast<long>(rows()) * columns() * channels; }

  // Calls work(place, pixel) for the pixels of a window that are in the image, row by row.
  template <typename Work>
  void each_pixel(int row, int column, Work work) const {
    const int y0 = start(height) + row * kStride, x0 = start(width) + column * kStride;
    for (int place = 0; place < kSize * kSize; place++) {
      const int y = y0 + place / kSize, x = x0 + place % kSize;
      if (y >= 0 && y < height && x >= 0 && x < width)
        work(place, (static_cast<long>(y) * width + x) * channels);
    }
  }
};

// Writes the largest pixel of each window, and its place in it: the first of equal ones. What is
// not a number is larger.
inline void max_pool(const Pooling& p, const float* image, float* outputs, uint8_t* places) {
  for (int row = 0; row < p.rows(); row++)
    for (int column = 0; column < p.columns(); column++)
      for (int c = 0; c < p.channels; c += kLanes) {
        Lanes largest = Lanes{} - __builtin_inff(), where{};
        p.each_pixel(row, column, [&](int place, long pixel) {
          const Lanes x = load(image + pixel + c);
          const auto is_larger = (largest < x) | (x != x);
          largest = is_larger ? x : largest;
          where = is_larger ? Lanes{} + static_cast<float>(place) : where;
        });
        const long at = (static_cast<long>(row) * p.columns() + column) * p.channels + c;
        store(outputs + at, largest);
        for (int i = 0; i < kLanes; i++) places[at + i] = static_cast<uint8_t>(where[i]);
      }
}

// The gradient of an image: that of each output, at the place that it came from.
inline void max_pool_gradient(const Pooling& p, const uint8_t* places, const float* gradient,
                              float* image) {
  memset(image, 0, p.inputs() * sizeof(float));
  for (int row = 0; row < p.rows(); row++)
    for (int column = 0; column < p.columns(); column++)
      for (int c = 0; c < p.channels; c += kLanes) {
        const long at = (static_cast<long>(row) * p.columns() + column) * p.channels + c;
        Lanes where;
        for (int i = 0; i < kLanes; i++) where[i] = static_cast<float>(places[at + i]);
        const Lanes d = load(gradient + at);
        p.each_pixel(row, column, [&](int place, long pixel) {
          float* to = image + pixel + c;
          store(to, load(to) + (where == static_cast<float>(place) ? d : Lanes{}));
        });
      }
}

}  // namespace jaxrl
