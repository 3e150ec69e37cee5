// A layer of a batch of images, and its gradients, on all threads of a device.
//
// y = [max(0, .)] (convolution of x, padded and rectified if so said, + bias). Images are floats,
// or bytes that are normalized here: nobody keeps the floats, which are four times as large.
#pragma once

#include "factors.h"
#include "pooling.h"

namespace jaxrl {

struct Layer {
  int64_t stride, padding;
  bool rectify_inputs, rectify;
};

// Of images [H, W, C], padded, and a kernel [K, K, C, F].
inline Shape shape_of(const Layer& layer, int64_t height, int64_t width, int64_t channels,
                      int64_t size, int64_t filters) {
  const auto padded = [&](int64_t length) { return static_cast<int>(length + 2 * layer.padding); };
  return {padded(height),
          padded(width),
          static_cast<int>(channels),
          static_cast<int>(size),
          static_cast<int>(layer.stride),
          static_cast<int>(filters)};
}

// Floats of an image without its padding.
inline int64_t bare_inputs(const Shape& s, const Layer& layer) {
  return (s.height - 2 * layer.padding) * (s.width - 2 * layer.padding) * s.channels;
}

inline double multiplications(const Shape& s) {
  return static_cast<double>(s.outputs()) * s.size * s.size * s.channels;
}

// Parts that a batch is cut into, `most` at most.
inline int parts_of(double work, int64_t images, int64_t most) {
  return images * work < kShared ? 1 : static_cast<int>(std::min(images, most));
}

// Parts whose results are added up:
// their number decides the order of sums, so the threads must not.
constexpr int kParts = 16;

// Parts that write results of their own: enough that threads of different speed end together.
template <typename Pool>
int shares_of(double work, int64_t images, Pool& pool) {
  return parts_of(work, images, 4 * num_threads(pool));
}

// Calls work(part, from, to) for parts of the images, on all threads.
template <typename Pool, typename Work>
void for_images(Pool& pool, int parts, int64_t images, Work work) {
  in_parallel(pool, parts,
              [=](int part) { work(part, images * part / parts, images * (part + 1) / parts); });
}

// An image as its convolution takes it: padded and rectified where it must be, else as it is.
inline const float* surrounded(const Shape& s, const Layer& layer, const float* image) {
  if (!layer.padding && !layer.rectify_inputs) return image;
  const int border = static_cast<int>(layer.padding);
  float* to = scratch<0>(s.inputs());
  if (border) memset(to, 0, s.inputs() * sizeof(float));
  pad(s.height - 2 * border, s.width - 2 * border, s.channels, border, layer.rectify_inputs, image,
      to);
  return to;
}

// The images of a layer, one at a time; an image lasts until the thread takes its next one.
class FloatImages {
 public:
  FloatImages(const Shape& s, const Layer& layer, const float* x)
      : s_(s), layer_(layer), x_(x), size_(bare_inputs(s, layer)) {}

  const float* at(int64_t image) const { return surrounded(s_, layer_, x_ + image * size_); }

 private:
  Shape s_;
  Layer layer_;
  const float* x_;
  int64_t size_;
};

// Scale and shift are those of a pixel, for all its channels.
class ByteImages {
 public:
  ByteImages(const Shape& s, const Layer& layer, const uint8_t* x, const float* scale,
             const float* shift, float limit)
      : s_(s),
        layer_(layer),
        x_(x),
        scale_(scale),
        shift_(shift),
        limit_(limit),
        size_(bare_inputs(s, layer)) {}

  const float* at(int64_t image) const {
    float* to = scratch<4>(size_);
    normalize(size_ / s_.channels, s_.channels, x_ + image * size_, scale_, shift_, limit_, to);
    return surrounded(s_, layer_, to);
  }

 private:
  Shape s_;
  Layer layer_;
  const uint8_t* x_;
  const float *scale_, *shift_;
  float limit_;
  int64_t size_;
};

// The gradient before the rectifier, of `count` floats: 0 where the output y is.
inline const float* before_rectifier(long count, bool rectify, const float* y,
                                     const float* gradient) {
  if (!rectify) return gradient;
  float* to = scratch<1>(count);
  for (long i = 0; i < count; i += kLanes)
    store(to + i, where_positive(load(y + i), load(gradient + i)));
  return to;
}

// Floats of the outputs whose gradient is taken at a time: they stay in the nearest cache.
constexpr long kBand = 4096;

// y of all images.
template <typename Op, typename Pool, typename Images>
void layer_outputs(Pool& pool, const Shape& s, const Layer& layer, const Images& images,
                   int64_t count, const float* weights, const float* bias, float* y) {
  const float* factors = lines_of_weights<Op>(s.weights() / s.filters, s.filters, weights);
  for_images(pool, shares_of(multiplications(s), count, pool), count,
             [=](int, int64_t from, int64_t to) {
               for (int64_t i = from; i < to; i++)
                 convolve<Op>(over_channels<Op>(s), neighbors<Op>(s.inputs(), images.at(i)),
                              factors, bias, layer.rectify, y + i * s.outputs());
             });
}

// The gradients of weights and bias by that of y, which is only read where it was rectified.
template <typename Op, typename Pool, typename Images>
void layer_weights_gradient(Pool& pool, const Shape& s, const Layer& layer, const Images& images,
                            int64_t count, const float* y, const float* gradient, float* of_weights,
                            float* of_bias) {
  const int parts = parts_of(multiplications(s), count, kParts);
  const long weights = s.weights(), size = weights + s.filters;
  const int band = static_cast<int>(std::max(1L, kBand / Op::kPer / s.out_line()));
  float* sums = scratch<5>(parts * size);
  memset(sums, 0, parts * size * sizeof(float));
  for_images(pool, parts, count, [=](int part, int64_t from, int64_t to) {
    float* sum = sums + part * size;
    for (int64_t i = from; i < to; i++) {
      const float* image = lines_of_image<Op>(s, images.at(i));
      in_even_parts((s.rows() + Op::kPer - 1) / Op::kPer, band, [&](int first, int count) {
        const int row = first * Op::kPer, rows = std::min(count * Op::kPer, s.rows() - row);
        const long from = i * s.outputs() + row * s.out_line(), floats = rows * s.out_line();
        const float* d = before_rectifier(floats, layer.rectify, y + from, gradient + from);
        add_weights_gradient<Op>(s, image, first, count, lines_of_rows<Op>(rows, s.out_line(), d),
                                 sum);
        add_bias_gradient(s.filters, floats, d, sum + weights);
      });
    }
  });
  for (int part = 1; part < parts; part++)
    for (long i = 0; i < size; i++) sums[i] += sums[part * size + i];
  memcpy(of_weights, sums, weights * sizeof(float));
  memcpy(of_bias, sums + weights, s.filters * sizeof(float));
}

// The gradient of x by that of y; x and y are only read where they were rectified.
template <typename Op, typename Pool>
void layer_inputs_gradient(Pool& pool, const Shape& s, const Layer& layer, int64_t count,
                           const float* x, const float* weights, const float* y,
                           const float* gradient, float* of_inputs) {
  float* turned = scratch<3>(s.turned_weights());
  turn_weights(s, weights, turned);
  const long pixel = s.stride * s.channels;
  const float* factors = lines_of_weights<Op>(s.turned_weights() / pixel, pixel, turned);
  const int border = static_cast<int>(layer.padding);
  const int64_t size = bare_inputs(s, layer);
  for_images(
      pool, shares_of(multiplications(s), count, pool), count, [=](int, int64_t from, int64_t to) {
        float* wide = scratch<2>(s.wide_outputs());
        memset(wide, 0, s.wide_outputs() * sizeof(float));
        for (int64_t i = from; i < to; i++) {
          const float* d = before_rectifier(s.outputs(), layer.rectify, y + i * s.outputs(),
                                            gradient + i * s.outputs());
          pad(s.rows(), s.columns(), s.filters, s.taps() - 1, false, d, wide);
          inputs_gradient<Op>(over_filters<Op>(s), border, neighbors<Op>(s.wide_outputs(), wide),
                              factors, layer.rectify_inputs ? x + i * size : nullptr,
                              of_inputs + i * size);
        }
      });
}

// Outputs and places of `max_pool`, of all images.
template <typename Pool>
void pooled(Pool& pool, const Pooling& p, int64_t count, const float* images, float* outputs,
            uint8_t* places) {
  for_images(pool, shares_of(p.inputs(), count, pool), count, [=](int, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++)
      max_pool(p, images + i * p.inputs(), outputs + i * p.outputs(), places + i * p.outputs());
  });
}

template <typename Pool>
void pooled_gradient(Pool& pool, const Pooling& p, int64_t count, const uint8_t* places,
                     const float* gradient, float* images) {
  for_images(pool, shares_of(p.inputs(), count, pool), count, [=](int, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++)
      max_pool_gradient(p, places + i * p.outputs(), gradient + i * p.outputs(),
                        images + i * p.inputs());
  });
}

}  // namespace jaxrl
