// A convolution of one image and its gradients: [H, W, C], [K, K, C, F] -> [H', W', F], H' = (H -
// K) / S + 1.
//
// A row of outputs is a sum over the K lines of the kernel of products [pixels x K C] [K C x F]:
// the left factor is the image itself, whose rows overlap. Filters, and channels for the gradient
// of the inputs, are a multiple of kLanes.
#pragma once

#include <cstring>

#include "tiles.h"

namespace jaxrl {

struct Shape {
  int height, width, channels, size, stride, filters;

  int rows() const { return (height - size) / stride + 1; }
  int columns() const { return (width - size) / stride + 1; }
  // Outputs along an axis that see a pixel, at most.
  int taps() const { return (size + stride - 1) / stride; }
  long line() const { return static_cast<long>(width) * channels; }
  long inputs() const { return height * line(); }
  long out_line() const { return static_cast<long>(columns()) * filters; }
  long outputs() const { return rows() * out_line(); }
  long weights() const { return static_cast<long>(size) * size * channels * filters; }
  // Of an output's gradient that has `taps() - 1` zeros around it.
  long wide_line() const { return static_cast<long>(columns() + 2 * (taps() - 1)) * filters; }
  long wide_outputs() const { return (rows() + 2 * (taps() - 1)) * wide_line(); }
  long phase() const { return static_cast<long>(taps()) * taps() * filters * channels; }
  long turned_weights() const { return phase() * stride * stride; }
};

// Copies lines of `count` floats.
inline void copy_lines(int lines, long count, const float* from, long from_step, float* to,
                       long to_step) {
  for (int i = 0; i < lines; i++)
    memcpy(to + i * to_step, from + i * from_step, count * sizeof(float));
}

// Copies an image into one with `border` more pixels on each side, which are 0 and stay so;
// rectified if so said.
inline void pad(int height, int width, int channels, int border, bool rectify, const float* from,
                float* to) {
  const long line = static_cast<long>(width) * channels, wide = line + 2L * border * channels;
  float* inner = to + border * (wide + channels);
  if (!rectify) return copy_lines(height, line, from, line, inner, wide);
  for (int y = 0; y < height; y++)
    for (long i = 0; i < line; i++) {
      const float x = from[y * line + i];
      inner[y * wide + i] = x < 0 ? 0 : x;
    }
}

// x = clip(byte * scale - shift) between -limit and limit.
inline void normalize(long count, const uint8_t* bytes, const float* scale, const float* shift,
                      float limit, float* x) {
  for (long i = 0; i < count; i++) {
    const float value = static_cast<float>(bytes[i]) * scale[i] - shift[i];
    const float above = value < -limit ? -limit : value;
    x[i] = above > limit ? limit : above;
  }
}

// outputs[y, x, f] = bias[f] + sum of image * weights, rectified if so said.
inline void convolve(const Shape& s, const float* image, const float* weights, const float* bias,
                     bool rectify, float* outputs) {
  in_blocks(s.filters, [&](int f, auto n) {
    for (int y = 0; y < s.rows(); y++) {
      const Left left{image + y * s.stride * s.line(), static_cast<long>(s.stride) * s.channels,
                      s.size, s.line(), s.size * s.channels};
      const Finish finish{bias + f, rectify};
      product_rows<n()>(s.columns(), left, weights + f, s.filters, finish,
                        outputs + y * s.out_line() + f, s.filters);
    }
  });
}

// Adds to the gradient of the weights what an image and the gradient of its outputs say.
inline void add_weights_gradient(const Shape& s, const float* image, const float* gradient,
                                 float* weights) {
  const int depth = s.size * s.channels;
  in_blocks(s.filters, [&](int f, auto n) {
    for (int line = 0; line < s.size; line++) {
      const Left left{image + line * s.line(), static_cast<long>(s.stride) * s.channels, s.rows(),
                      s.stride * s.line(), 0};
      add_outer_rows<n()>(depth, left, s.columns(), gradient + f, s.filters, s.out_line(),
                          weights + static_cast<long>(line) * depth * s.filters + f, s.filters);
    }
  });
}

inline void add_bias_gradient(const Shape& s, const float* gradient, float* bias) {
  constexpr int kSums = 4;  // side by side: one addition waits for that before it
  for (int f = 0; f < s.filters; f += kLanes) {
    Lanes sums[kSums] = {load(bias + f)};
    long i = f;
    for (; i + (kSums - 1) * s.filters < s.outputs(); i += kSums * s.filters)
#pragma GCC unroll 4
      for (int n = 0; n < kSums; n++) sums[n] += load(gradient + i + n * s.filters);
    for (; i < s.outputs(); i += s.filters) sums[0] += load(gradient + i);
    store(bias + f, (sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
}

// Turns weights around for the gradient of the inputs: [stride, stride, taps, taps, F, C], 0 beyond
// the kernel. Pixels whose place modulo the stride is equal, a phase, are seen by the same weights.
inline void turn_weights(const Shape& s, const float* weights, float* turned) {
  const int taps = s.taps();
  for (int py = 0; py < s.stride; py++)
    for (int px = 0; px < s.stride; px++)
      for (int ty = 0; ty < taps; ty++)
        for (int tx = 0; tx < taps; tx++) {
          const int y = (taps - 1 - ty) * s.stride + py, x = (taps - 1 - tx) * s.stride + px;
          const bool within = y < s.size && x < s.size;
          const float* from =
              weights + (static_cast<long>(y) * s.size + x) * s.channels * s.filters;
          for (int f = 0; f < s.filters; f++)
            for (int c = 0; c < s.channels; c++)
              *turned++ = within ? from[static_cast<long>(c) * s.filters + f] : 0.f;
        }
}

// Writes the gradient of the inputs but those of a border, [H - 2 border, W - 2 border, C]; 0 where
// `where`, if any, is not above 0. `wide` is the gradient of the outputs with `taps() - 1` zeros
// around it.
inline void inputs_gradient(const Shape& s, int border, const float* wide, const float* turned,
                            const float* where, float* inputs) {
  const int taps = s.taps(), height = s.height - 2 * border, width = s.width - 2 * border;
  const long line = static_cast<long>(width) * s.channels;
  // Along an axis, phase p has its pixels q * stride + p from the first that is no border to the
  // last that an output sees.
  const auto first = [&](int p) {
    return p >= border ? 0 : (border - p + s.stride - 1) / s.stride;
  };
  const auto end = [&](int p, int length, int outputs) {
    return std::min(outputs + taps - 1, (length - border - p + s.stride - 1) / s.stride);
  };
  const auto sees_all = [&](int length, int outputs) {
    return (outputs + taps - 1) * s.stride >= length - border;
  };
  if (!sees_all(s.height, s.rows()) || !sees_all(s.width, s.columns()))
    memset(inputs, 0, height * line * sizeof(float));
  for (int py = 0; py < s.stride; py++)
    for (int px = 0; px < s.stride; px++, turned += s.phase())
      in_blocks(s.channels, [&](int c, auto n) {
        const int from = first(px), columns = end(px, s.width, s.columns()) - from;
        if (columns <= 0) return;
        for (int q = first(py); q < end(py, s.height, s.rows()); q++) {
          // Lines above and below the outputs are 0.
          const int top = std::max(0, taps - 1 - q),
                    bottom = std::min(taps, taps - 1 + s.rows() - q);
          const Left left{wide + (q + top) * s.wide_line() + static_cast<long>(from) * s.filters,
                          s.filters, bottom - top, s.wide_line(), taps * s.filters};
          const float* weights =
              turned + static_cast<long>(top) * taps * s.filters * s.channels + c;
          const long place = (q * s.stride + py - border) * line +
                             static_cast<long>(from * s.stride + px - border) * s.channels + c;
          const Finish finish{nullptr, false, where ? where + place : nullptr};
          product_rows<n()>(columns, left, weights, s.channels, finish, inputs + place,
                            static_cast<long>(s.stride) * s.channels);
        }
      });
}

}  // namespace jaxrl
