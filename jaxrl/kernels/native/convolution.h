// A convolution of one image and its gradients: [H, W, C], [K, K, C, F] -> [H', W', F], H' = (H -
// K) / S + 1.
//
// A row of outputs is a sum over the K lines of the kernel of products [pixels x K C] [K C x F]:
// the left factor is the image itself, whose rows overlap. Filters, and channels for the gradient
// of the inputs, are a multiple of kLanes. Where two numbers are a pair, one float, the sums go
// over half as many floats: of channels, of rows, and of filters, whose numbers the shape has so.
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
  // Of a row, for every place of its pixels modulo the stride.
  long phases() const { return static_cast<long>(taps()) * taps() * filters * stride * channels; }
  long turned_weights() const { return phases() * stride; }
};

inline float clipped(float x, float limit) {
  const float above = x < -limit ? -limit : x;
  return above > limit ? limit : above;
}

// Each of the first lanes four times.
template <int... lane>
Lanes four_times(Lanes lanes, std::integer_sequence<int, lane...>) {
  return shuffled<(lane / 4)...>(lanes, lanes);
}

// x = clip(byte * scale - shift) between -limit and limit; scale and shift are those of a pixel.
inline void normalize(long pixels, int channels, const uint8_t* bytes, const float* scale,
                      const float* shift, float limit, float* x) {
  constexpr auto kAll = std::make_integer_sequence<int, kLanes>{};
  constexpr long kPixels = 2 * kLanes;  // whose floats stay in the nearest cache
  long pixel = 0;
  if (channels == 4)
    for (; pixel + kPixels + kLanes <= pixels; pixel += kPixels) {
      float* to = x + 4 * pixel;
      for (long i = 0; i < 4 * kPixels; i++) to[i] = static_cast<float>(bytes[4 * pixel + i]);
      for (long i = 0; i < kPixels; i += kLanes / 4) {
        const Lanes value = load(to + 4 * i) * four_times(load(scale + pixel + i), kAll) -
                            four_times(load(shift + pixel + i), kAll);
        const Lanes above = value < -limit ? Lanes{} - limit : value;
        store(to + 4 * i, above > limit ? Lanes{} + limit : above);
      }
    }
  for (; pixel < pixels; pixel++)
    for (int c = 0; c < channels; c++) {
      const long at = pixel * channels + c;
      x[at] = clipped(static_cast<float>(bytes[at]) * scale[pixel] - shift[pixel], limit);
    }
}

// outputs[y, x, f] = bias[f] + sum of image * weights, rectified if so said.
template <typename Op>
void convolve(const Shape& s, const float* image, const float* weights, const float* bias,
              bool rectify, float* outputs) {
  in_blocks(s.filters, [&](int f, auto n) {
    for (int y = 0; y < s.rows(); y++) {
      const Left left{image + y * s.stride * s.line(), static_cast<long>(s.stride) * s.channels,
                      s.size, s.line(), s.size * s.channels};
      const Finish finish{bias + f, rectify};
      product_rows<Op, n()>(s.columns(), left, Right{weights + f, s.filters}, finish,
                            outputs + y * s.out_line() + f, s.filters);
    }
  });
}

// Adds to the gradient of the weights what an image and the gradient of some rows of its outputs
// say; rows may be pairs of rows, as the lines of the image are paired then.
template <typename Op>
void add_weights_gradient(const Shape& s, const float* image, int first_row, int rows,
                          const float* gradient, float* weights) {
  const int depth = s.size * s.channels;
  const long step = s.stride * s.line() * Op::kPer;
  const float* seen = image + first_row * step;
  in_blocks(s.filters, [&](int f, auto n) {
    for (int line = 0; line < s.size; line++) {
      const Left left{seen + line * s.line(), static_cast<long>(s.stride) * s.channels, rows, step,
                      0};
      add_outer_rows<Op, n()>(depth, left, s.columns(), gradient + f, s.filters, s.out_line(), true,
                              weights + static_cast<long>(line) * depth * s.filters + f, s.filters);
    }
  });
}

// Adds the gradients of `count` floats of outputs.
inline void add_bias_gradient(int filters, long count, const float* gradient, float* bias) {
  constexpr int kSums = 4;  // side by side: one addition waits for that before it
  for (int f = 0; f < filters; f += kLanes) {
    Lanes sums[kSums] = {load(bias + f)};
    long i = f;
    for (; i + (kSums - 1) * filters < count; i += kSums * filters)
#pragma GCC unroll 4
      for (int n = 0; n < kSums; n++) sums[n] += load(gradient + i + n * filters);
    for (; i < count; i += filters) sums[0] += load(gradient + i);
    store(bias + f, (sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
}

// Turns weights around for the gradient of the inputs: [stride, taps, taps, F, stride, C], 0 beyond
// the kernel. Pixels whose place modulo the stride is equal, a phase, are seen by the same weights;
// those of the phases along a row lie side by side, as the pixels do.
inline void turn_weights(const Shape& s, const float* weights, float* turned) {
  const int taps = s.taps();
  for (int py = 0; py < s.stride; py++)
    for (int ty = 0; ty < taps; ty++)
      for (int tx = 0; tx < taps; tx++)
        for (int f = 0; f < s.filters; f++)
          for (int px = 0; px < s.stride; px++) {
            const int y = (taps - 1 - ty) * s.stride + py, x = (taps - 1 - tx) * s.stride + px;
            const bool within = y < s.size && x < s.size;
            const float* from =
                weights + (static_cast<long>(y) * s.size + x) * s.channels * s.filters + f;
            for (int c = 0; c < s.channels; c++)
              *turned++ = within ? from[static_cast<long>(c) * s.filters] : 0.f;
          }
}

// Pixels along an axis, of one phase: the q of q * stride + phase.
struct Span {
  int from, end;

  int count() const { return end - from; }
};

// From the first pixel that is no border to the last that an output sees.
inline Span seen_pixels(const Shape& s, int phase, int border, int length, int outputs) {
  const auto round_up = [&](int pixels) { return (pixels + s.stride - 1) / s.stride; };
  return {phase >= border ? 0 : round_up(border - phase),
          std::min(outputs + s.taps() - 1, round_up(length - border - phase))};
}

// Those of them whose outputs a tap reaches.
inline Span reached_pixels(const Shape& s, int tap, Span pixels) {
  const int first = s.taps() - 1 - tap;
  return {std::max(pixels.from, first), std::min(pixels.end, first + s.columns())};
}

// Taps before the first that reaches a phase: those of the first are beyond the kernel.
inline int first_tap(const Shape& s, int phase) {
  return (s.taps() - 1) * s.stride + phase < s.size ? 0 : 1;
}

// Multiplications of a sum that take as long as to load and store it once more, with AVX-512.
constexpr long kOfSum = 10;

// Whether each tap of a row has a product of the pixels that it reaches, because one of all taps
// would multiply so many of the zeros beside the outputs.
inline bool taps_apart(const Shape& s, int border) {
  const Span pixels = seen_pixels(s, 0, border, s.width, s.columns());
  long zeros = 0;
  for (int tap = 0; tap < s.taps(); tap++)
    zeros += pixels.count() - reached_pixels(s, tap, pixels).count();
  return zeros * s.filters > kOfSum * pixels.count();
}

// Writes what `count` taps of each line give to pixels of line q of a phase, or adds it; pixel 0 is
// at `place`, or would be.
template <typename Op, int N>
void product_of_taps(const Shape& s, int q, int top_tap, int tap, int count, bool add, Span pixels,
                     const float* wide, const float* turned, const float* where, long place,
                     float* inputs) {
  // Lines above and below the outputs are 0.
  const int taps = s.taps(), top = std::max(top_tap, taps - 1 - q),
            bottom = std::min(taps, taps - 1 + s.rows() - q);
  const long wide_pixel = static_cast<long>(s.stride) * s.channels,
             filters = s.filters * wide_pixel;
  place += pixels.from * wide_pixel;
  const Left left{
      wide + (q + top) * s.wide_line() + static_cast<long>(pixels.from + tap) * s.filters,
      s.filters, bottom - top, s.wide_line(), count * s.filters};
  const Right right{turned + (top * taps + tap) * filters, wide_pixel, (taps - count) * filters};
  const Finish finish{nullptr, false, where ? where + place : nullptr, add};
  product_rows<Op, N>(pixels.count(), left, right, finish, inputs + place, wide_pixel);
}

// Writes the gradient of the inputs but those of a border, [H - 2 border, W - 2 border, C]; 0 where
// `where`, if any, is not above 0. `wide` is the gradient of the outputs with `taps() - 1` zeros
// around it.
template <typename Op>
void inputs_gradient(const Shape& s, int border, const float* wide, const float* turned,
                     const float* where, float* inputs) {
  const int height = s.height - 2 * border, width = s.width - 2 * border;
  const long line = static_cast<long>(width) * s.channels;
  const auto sees_all = [&](int length, int outputs) {
    return (outputs + s.taps() - 1) * s.stride >= length - border;
  };
  const auto columns = [&](int phase) {
    return seen_pixels(s, phase, border, s.width, s.columns());
  };
  const bool apart = taps_apart(s, border);
  if (apart || !sees_all(s.height, s.rows()) || !sees_all(s.width, s.columns()))
    memset(inputs, 0, height * line * sizeof(float));
  // One product of the phases of a row where as many taps reach as many pixels of them.
  const Span first = columns(0), last = columns(s.stride - 1);
  const bool together = first.from == last.from && first.end == last.end &&
                        first_tap(s, 0) == first_tap(s, s.stride - 1);
  for (int py = 0; py < s.stride; py++, turned += s.phases()) {
    const Span lines = seen_pixels(s, py, border, s.height, s.rows());
    for (int px = 0; px < (together ? 1 : s.stride); px++)
      in_blocks(together ? s.stride * s.channels : s.channels, [&](int lane, auto n) {
        const int c = px * s.channels + lane, start = first_tap(s, px),
                  taps = apart ? 1 : s.taps() - start;
        for (int q = lines.from; q < lines.end; q++)
          for (int tap = start; tap + taps <= s.taps(); tap++)
            product_of_taps<Op, n()>(
                s, q, first_tap(s, py), tap, taps, apart,
                apart ? reached_pixels(s, tap, columns(px)) : columns(px), wide, turned + c, where,
                (q * s.stride + py - border) * line - static_cast<long>(border) * s.channels + c,
                inputs);
      });
  }
}

}  // namespace jaxrl
