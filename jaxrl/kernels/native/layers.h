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

inline Border border_of(const Layer& layer) {
  return {static_cast<int>(layer.padding), layer.rectify_inputs};
}

// Floats of an image without its padding.
inline int64_t bare_inputs(const Shape& s, const Layer& layer) {
  return (s.height - 2 * layer.padding) * (s.width - 2 * layer.padding) * s.channels;
}

inline double multiplications(const Shape& s) {
  return static_cast<double>(s.outputs()) * s.size * s.size * s.channels;
}

// Calls work(part, from, to) for parts of the images, on all threads.
template <typename Pool, typename Work>
void for_images(Pool& pool, int parts, int64_t images, Work work) {
  in_parallel(pool, parts, [=](int part) {
    ahead().plan({});
    work(part, images * part / parts, images * (part + 1) / parts);
  });
}

// The memory of an image of `size` floats, or nothing if nobody reads it.
inline Ahead::Part memory_of(const float* images, int64_t image, int64_t size, bool read = true) {
  return {images + image * size, read ? static_cast<long>(size * sizeof(float)) : 0};
}

// The images of a layer, one at a time; an image lasts until the thread takes its next one.
class FloatImages {
 public:
  FloatImages(const Shape& s, const Layer& layer, const float* x)
      : x_(x), size_(bare_inputs(s, layer)) {}

  const float* at(int64_t image) const { return x_ + image * size_; }

  Ahead::Part memory(int64_t image) const { return memory_of(x_, image, size_); }

 private:
  const float* x_;
  int64_t size_;
};

// Scale and shift are those of a pixel, for all its channels.
class ByteImages {
 public:
  ByteImages(const Shape& s, const Layer& layer, const uint8_t* x, const float* scale,
             const float* shift, float limit)
      : channels_(s.channels),
        x_(x),
        scale_(scale),
        shift_(shift),
        limit_(limit),
        size_(bare_inputs(s, layer)) {}

  const float* at(int64_t image) const {
    float* to = scratch<4>(size_);
    normalize(size_ / channels_, channels_, x_ + image * size_, scale_, shift_, limit_, to);
    return to;
  }

  Ahead::Part memory(int64_t image) const { return {x_ + image * size_, static_cast<long>(size_)}; }

 private:
  int channels_;
  const uint8_t* x_;
  const float *scale_, *shift_;
  float limit_;
  int64_t size_;
};

// Floats, or pairs, of the outputs' gradient that are taken at a time: they stay in a near cache.
constexpr long kBand = 4096;

// y of all images.
template <typename Op, typename Pool, typename Images>
void layer_outputs(Pool& pool, const Shape& s, const Layer& layer, const Images& images,
                   int64_t count, const float* weights, const float* bias, float* y) {
  const float* factors = lines_of_weights<Op>(s.weights() / s.filters, s.filters, weights);
  const Border border = border_of(layer);
  for_images(pool, shares_of(multiplications(s), count, pool), count,
             [=](int, int64_t from, int64_t to) {
               float* around = zeros<0>(border.none() ? 0 : s.inputs() / Op::kPer);
               for (int64_t i = from; i < to; i++) {
                 const float* image = channels_of_image<Op>(s, border, images.at(i), around);
                 if (i + 1 < to)
                   ahead().plan({images.memory(i + 1), memory_of(y, i + 1, s.outputs())});
                 convolve<Op>(over_channels<Op>(s), image, factors, bias, layer.rectify,
                              y + i * s.outputs());
               }
             });
}

// The gradients of weights and bias by that of y, which is only read where it was rectified.
template <typename Op, typename Pool, typename Images>
void layer_weights_gradient(Pool& pool, const Shape& s, const Layer& layer, const Images& images,
                            int64_t count, const float* y, const float* gradient, float* of_weights,
                            float* of_bias) {
  const int parts = parts_of(multiplications(s), count, kParts);
  const long weights = s.weights(), size = weights + s.filters;
  const int band = static_cast<int>(std::max(1L, kBand / s.out_line()));
  float* sums = scratch<5>(parts * size);
  memset(sums, 0, parts * size * sizeof(float));
  const Border border = border_of(layer);
  for_images(pool, parts, count, [=](int part, int64_t from, int64_t to) {
    float *sum = sums + part * size,
          *around = zeros<0>(Op::kPer == 1 && border.none() ? 0 : s.inputs());
    for (int64_t i = from; i < to; i++) {
      const OfOutputs outputs{y + i * s.outputs(), gradient + i * s.outputs(), layer.rectify};
      const float* image = lines_of_image<Op>(s, border, images.at(i), around);
      if (i + 1 < to)
        ahead().plan({memory_of(gradient, i + 1, s.outputs()),
                      memory_of(y, i + 1, s.outputs(), layer.rectify), images.memory(i + 1)});
      in_even_parts((s.rows() + Op::kPer - 1) / Op::kPer, band, [&](int first, int count) {
        const int row = first * Op::kPer, rows = std::min(count * Op::kPer, s.rows() - row);
        const long floats = rows * s.out_line();
        const float* d = outputs.some(row * s.out_line(), floats);
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
        float* wide = zeros<2>(s.wide_outputs() / Op::kPer);
        for (int64_t i = from; i < to; i++) {
          const OfOutputs outputs{y + i * s.outputs(), gradient + i * s.outputs(), layer.rectify};
          place_gradient<Op>(s, outputs, wide);
          if (i + 1 < to)
            ahead().plan({memory_of(gradient, i + 1, s.outputs()),
                          memory_of(y, i + 1, s.outputs(), layer.rectify),
                          memory_of(x, i + 1, size, layer.rectify_inputs),
                          memory_of(of_inputs, i + 1, size)});
          inputs_gradient<Op>(over_filters<Op>(s), border, wide, factors,
                              layer.rectify_inputs ? x + i * size : nullptr, of_inputs + i * size);
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
