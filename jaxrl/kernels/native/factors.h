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

// Numbers that are summed over with the next ones.
template <typename Op, int memory = 6>
const float* neighbors(long count, const float* x) {
  if constexpr (Op::kPer == 1) return x;
  float* pairs = scratch<memory>(count / 2);
  pair_neighbors(count, numbers_of(x), pairs);
  return pairs;
}

// Weights whose lines of `count` numbers are summed over.
template <typename Op>
const float* lines_of_weights(long lines, long count, const float* weights) {
  if constexpr (Op::kPer == 1) return weights;
  float* pairs = scratch<7>(lines / 2 * count);
  for (long line = 0; line < lines; line += 2)
    pair_lines(count, numbers_of(weights + line * count), numbers_of(weights + (line + 1) * count),
               pairs + line / 2 * count);
  return pairs;
}

// Lines of `count` numbers, as rows of outputs, two by two; a last one alone.
template <typename Op, int memory = 8>
const float* lines_of_rows(long rows, long count, const float* x) {
  if constexpr (Op::kPer == 1) return x;
  float* pairs = scratch<memory>((rows + 1) / 2 * count);
  for (long row = 0; row < rows; row += 2)
    pair_lines(count, numbers_of(x + row * count),
               numbers_of(row + 1 < rows ? x + (row + 1) * count : nullptr),
               pairs + row / 2 * count);
  return pairs;
}

// Images in a border of zeros, rectified if so said. The shapes are those with the border.
struct Border {
  int pixels;
  bool rectify;

  bool none() const { return !pixels && !rectify; }

  // Numbers of line `y` of an image, which may be a line of the border.
  auto line(const Shape& s, const float* image, int y) const {
    const long count = static_cast<long>(s.width - 2 * pixels) * s.channels;
    const bool within = y >= pixels && y < s.height - pixels;
    const float *from = within ? image + (y - pixels) * count : nullptr,
                least = rectify ? 0 : -__builtin_inff();
    return [=](long i, long left) {
      const Lanes x = from ? load_some(from + i, left) : Lanes{};
      return x < least ? Lanes{} + least : x;
    };
  }
};

// Memory of this thread for factors in a border: zeros, which images leave where the border is.
template <int which>
float* zeros(long count) {
  float* memory = scratch<which>(count);
  if (count) memset(memory, 0, count * sizeof(float));
  return memory;
}

// An image whose channels are summed over, for `convolve`; where it has a border, within the zeros
// of `to`.
template <typename Op>
const float* channels_of_image(const Shape& s, const Border& border, const float* image,
                               float* to) {
  if (border.none()) return neighbors<Op>(s.inputs(), image);
  const long side = static_cast<long>(border.pixels) * s.channels, count = s.line() - 2 * side;
  for (int y = border.pixels; y < s.height - border.pixels; y++) {
    float* inner = to + (y * s.line() + side) / Op::kPer;
    if constexpr (Op::kPer == 1)
      copy(count, border.line(s, image, y), inner);
    else
      pair_neighbors(count, border.line(s, image, y), inner);
  }
  return to;
}

// An image whose lines are summed over, each with that which the next row of outputs sees in its
// place, for `add_weights_gradient`; between the zeros of `to`.
template <typename Op>
const float* lines_of_image(const Shape& s, const Border& border, const float* image, float* to) {
  if constexpr (Op::kPer == 1) return channels_of_image<Op>(s, border, image, to);
  const long side = static_cast<long>(border.pixels) * s.channels;
  for (int y = 0; y < s.height; y++)
    pair_lines(s.line() - 2 * side, border.line(s, image, y), border.line(s, image, y + s.stride),
               to + y * s.line() + side);
  return to;
}

// The gradient of outputs before a rectifier: 0 where the output is not above 0.
struct OfOutputs {
  const float *y, *gradient;
  bool rectify;

  Lanes at(long i) const {
    const Lanes d = load(gradient + i);
    return rectify ? where_positive(load(y + i), d) : d;
  }

  // Of `count` outputs.
  const float* some(long from, long count) const {
    if (!rectify) return gradient + from;
    float* to = scratch<1>(count);
    for (long i = 0; i < count; i += kLanes) store(to + i, at(from + i));
    return to;
  }
};

// The gradient of all outputs, whose filters are summed over, for `inputs_gradient`; in a border of
// taps() - 1 pixels of the zeros of `to`.
template <typename Op>
void place_gradient(const Shape& s, const OfOutputs& outputs, float* to) {
  const int border = s.taps() - 1;
  for (int row = 0; row < s.rows(); row++) {
    float* inner = to + ((border + row) * s.wide_line() + border * s.filters) / Op::kPer;
    const auto read = [&](long i, long left) {
      return left ? outputs.at(row * s.out_line() + i) : Lanes{};
    };
    if constexpr (Op::kPer == 1)
      copy(s.out_line(), read, inner);
    else
      pair_neighbors(s.out_line(), read, inner);
  }
}

}  // namespace jaxrl
