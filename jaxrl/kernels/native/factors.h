// The factors of a layer's products, as numbers or as pairs: what Singles and Pairs of lanes.h
// take.
#pragma once

#include "convolution.h"
#include "pairs.h"
#include "parallel.h"

namespace jaxrl {

// A shape whose channels, or filters, are summed over.
template <typename Op>
Shape over_channels(Shape s) {
  s.channels /= Op::kPer;
  return s;
}

template <typename Op>
Shape over_filters(Shape s) {
  s.filters /= Op::kPer;
  return s;
}

// Numbers that are summed over with the next ones: the pixels of an image, or of a gradient.
template <typename Op, int memory = 6>
const float* neighbors(long count, const float* x) {
  if constexpr (Op::kPer == 1) return x;
  float* pairs = scratch<memory>(count / 2);
  pair_neighbors(count, x, pairs);
  return pairs;
}

// Weights whose lines of `count` numbers are summed over.
template <typename Op>
const float* lines_of_weights(long lines, long count, const float* weights) {
  if constexpr (Op::kPer == 1) return weights;
  float* pairs = scratch<7>(lines / 2 * count);
  for (long line = 0; line < lines; line += 2)
    pair_lines(count, weights + line * count, weights + (line + 1) * count,
               pairs + line / 2 * count);
  return pairs;
}

// Lines of an image, each with that which the next row of outputs sees in its place.
template <typename Op>
const float* lines_of_image(const Shape& s, const float* image) {
  if constexpr (Op::kPer == 1) return image;
  float* pairs = scratch<6>(s.inputs());
  for (int y = 0; y < s.height; y++)
    pair_lines(s.line(), image + y * s.line(),
               y + s.stride < s.height ? image + (y + s.stride) * s.line() : nullptr,
               pairs + y * s.line());
  return pairs;
}

// Lines of `count` numbers, as rows of outputs, two by two; a last one alone.
template <typename Op, int memory = 8>
const float* lines_of_rows(long rows, long count, const float* x) {
  if constexpr (Op::kPer == 1) return x;
  float* pairs = scratch<memory>((rows + 1) / 2 * count);
  for (long row = 0; row < rows; row += 2)
    pair_lines(count, x + row * count, row + 1 < rows ? x + (row + 1) * count : nullptr,
               pairs + row / 2 * count);
  return pairs;
}

}  // namespace jaxrl
