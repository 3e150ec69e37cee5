// Convolutions for compiled programs, through XLA's foreign function interface.
//
// A layer is y = [max(0, .)] (convolution of x, padded and rectified if so said, + bias). Its images are floats, or bytes
// that are normalized here: nobody keeps the floats, which are four times as large.
#include "convolution.h"
#include "parallel.h"

namespace ffi = xla::ffi;
using namespace jaxrl;

namespace {

using In = ffi::Buffer<ffi::F32>;
using Bytes = ffi::Buffer<ffi::U8>;
using Out = ffi::ResultBuffer<ffi::F32>;

struct Layer {
  int64_t stride, padding;
  bool rectify_inputs, rectify;
};

// Below it other threads would be woken for less than they take to come.
constexpr double kShared = 4e6;  // multiplications

Shape shape_of(ffi::Span<const int64_t> image, ffi::Span<const int64_t> kernel, const Layer& layer) {
  const auto along = [&](int axis) { return static_cast<int>(image[axis] + 2 * layer.padding); };
  return {along(1), along(2), static_cast<int>(image[3]), static_cast<int>(kernel[0]), static_cast<int>(layer.stride),
          static_cast<int>(kernel[3])};
}

// Parts of a batch. Their number decides the order of sums, so it must not depend on the threads.
int parts_of(const Shape& s, int64_t images) {
  const double work = static_cast<double>(images) * s.rows() * s.columns() * s.size * s.size * s.channels * s.filters;
  return work < kShared ? 1 : static_cast<int>(std::min<int64_t>(images, 16));
}

// Calls work(part, from, to) for parts of the images, on all threads.
template <typename Work>
void for_images(ffi::ThreadPool& pool, int parts, int64_t images, Work work) {
  in_parallel(pool, parts, [=](int part) { work(part, images * part / parts, images * (part + 1) / parts); });
}

// An image as its convolution takes it: padded and rectified where it must be, else as it is.
const float* surrounded(const Shape& s, const Layer& layer, const float* image) {
  if (!layer.padding && !layer.rectify_inputs) return image;
  const int border = static_cast<int>(layer.padding);
  float* to = scratch<0>(s.inputs());
  if (border) memset(to, 0, s.inputs() * sizeof(float));
  pad(s.height - 2 * border, s.width - 2 * border, s.channels, border, layer.rectify_inputs, image, to);
  return to;
}

// The images of a layer, one at a time; an image lasts until the thread takes its next one.
class FloatImages {
 public:
  FloatImages(const Shape& s, const Layer& layer, const float* x)
      : s_(s), layer_(layer), x_(x), size_((s.height - 2 * layer.padding) * (s.width - 2 * layer.padding) * s.channels) {}

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
  ByteImages(const Shape& s, const Layer& layer, const uint8_t* x, const float* scale, const float* shift, float limit)
      : s_(s), layer_(layer), x_(x), limit_(limit),
        size_((s.height - 2 * layer.padding) * (s.width - 2 * layer.padding) * s.channels),
        spread_(std::make_shared<std::vector<float>>(2 * size_)) {
    for (int64_t i = 0; i < size_; i++) {
      (*spread_)[i] = scale[i / s.channels];
      (*spread_)[size_ + i] = shift[i / s.channels];
    }
  }

  const float* at(int64_t image) const {
    float* to = scratch<4>(size_);
    normalize(size_, x_ + image * size_, spread_->data(), spread_->data() + size_, limit_, to);
    return surrounded(s_, layer_, to);
  }

 private:
  Shape s_;
  Layer layer_;
  const uint8_t* x_;
  float limit_;
  int64_t size_;
  std::shared_ptr<std::vector<float>> spread_;  // of every channel
};

// The gradient before the rectifier: 0 where the output y is.
const float* before_rectifier(const Shape& s, bool rectify, const float* y, const float* gradient) {
  if (!rectify) return gradient;
  float* to = scratch<1>(s.outputs());
  for (long i = 0; i < s.outputs(); i += kLanes) store(to + i, where_positive(load(y + i), load(gradient + i)));
  return to;
}

template <typename Images>
ffi::Error forward(ffi::ThreadPool& pool, const Shape& s, const Layer& layer, const Images& images, int64_t count,
                   const In& kernel, const In& bias, Out& y) {
  const float *weights = kernel.typed_data(), *added = bias.typed_data();
  float* out = y->typed_data();
  for_images(pool, parts_of(s, count), count, [=](int, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++)
      convolve(s, images.at(i), weights, added, layer.rectify, out + i * s.outputs());
  });
  return ffi::Error::Success();
}

ffi::Error forward_floats(ffi::ThreadPool pool, In x, In kernel, In bias, Out y, int64_t stride, int64_t padding,
                          bool rectify_inputs, bool rectify) {
  const Layer layer{stride, padding, rectify_inputs, rectify};
  const Shape s = shape_of(x.dimensions(), kernel.dimensions(), layer);
  return forward(pool, s, layer, FloatImages(s, layer, x.typed_data()), x.dimensions()[0], kernel, bias, y);
}

ffi::Error forward_bytes(ffi::ThreadPool pool, Bytes x, In scale, In shift, In kernel, In bias, Out y, int64_t stride,
                         int64_t padding, bool rectify_inputs, bool rectify, float limit) {
  const Layer layer{stride, padding, rectify_inputs, rectify};
  const Shape s = shape_of(x.dimensions(), kernel.dimensions(), layer);
  const ByteImages images(s, layer, x.typed_data(), scale.typed_data(), shift.typed_data(), limit);
  return forward(pool, s, layer, images, x.dimensions()[0], kernel, bias, y);
}

template <typename Images>
ffi::Error weights_gradient(ffi::ThreadPool& pool, const Shape& s, const Layer& layer, const Images& images,
                            int64_t count, const In& y, const In& gradient, Out& kernel, Out& bias) {
  const float *outputs = y.typed_data(), *d = gradient.typed_data();
  const int parts = parts_of(s, count);
  const long weights = s.weights(), size = weights + s.filters;
  float* sums = scratch<5>(parts * size);
  memset(sums, 0, parts * size * sizeof(float));
  for_images(pool, parts, count, [=](int part, int64_t from, int64_t to) {
    float* own = sums + part * size;
    for (int64_t i = from; i < to; i++) {
      const float* image = images.at(i);
      const float* own_gradient = before_rectifier(s, layer.rectify, outputs + i * s.outputs(), d + i * s.outputs());
      add_weights_gradient(s, image, own_gradient, own);
      add_bias_gradient(s, own_gradient, own + weights);
    }
  });
  for (int part = 1; part < parts; part++)
    for (long i = 0; i < size; i++) sums[i] += sums[part * size + i];
  memcpy(kernel->typed_data(), sums, weights * sizeof(float));
  memcpy(bias->typed_data(), sums + weights, s.filters * sizeof(float));
  return ffi::Error::Success();
}

ffi::Error weights_of_floats(ffi::ThreadPool pool, In x, In y, In gradient, Out kernel, Out bias, int64_t stride,
                             int64_t padding, bool rectify_inputs, bool rectify) {
  const Layer layer{stride, padding, rectify_inputs, rectify};
  const Shape s = shape_of(x.dimensions(), kernel->dimensions(), layer);
  return weights_gradient(pool, s, layer, FloatImages(s, layer, x.typed_data()), x.dimensions()[0], y, gradient, kernel,
                          bias);
}

ffi::Error weights_of_bytes(ffi::ThreadPool pool, Bytes x, In scale, In shift, In y, In gradient, Out kernel, Out bias,
                            int64_t stride, int64_t padding, bool rectify_inputs, bool rectify, float limit) {
  const Layer layer{stride, padding, rectify_inputs, rectify};
  const Shape s = shape_of(x.dimensions(), kernel->dimensions(), layer);
  const ByteImages images(s, layer, x.typed_data(), scale.typed_data(), shift.typed_data(), limit);
  return weights_gradient(pool, s, layer, images, x.dimensions()[0], y, gradient, kernel, bias);
}

ffi::Error inputs_gradient_of(ffi::ThreadPool pool, In x, In kernel, In y, In gradient, Out inputs, int64_t stride,
                              int64_t padding, bool rectify_inputs, bool rectify) {
  const Layer layer{stride, padding, rectify_inputs, rectify};
  const Shape s = shape_of(x.dimensions(), kernel.dimensions(), layer);
  float* turned = scratch<3>(s.turned_weights());
  turn_weights(s, kernel.typed_data(), turned);
  const float *from_x = x.typed_data(), *outputs = y.typed_data(), *d = gradient.typed_data();
  float* to = inputs->typed_data();
  const int64_t count = x.dimensions()[0];
  const int border = static_cast<int>(padding);
  const long size = static_cast<long>(s.height - 2 * border) * (s.width - 2 * border) * s.channels;
  for_images(pool, parts_of(s, count), count, [=](int, int64_t first, int64_t last) {
    float* wide = scratch<2>(s.wide_outputs());
    memset(wide, 0, s.wide_outputs() * sizeof(float));
    for (int64_t i = first; i < last; i++) {
      const float* own = before_rectifier(s, layer.rectify, outputs + i * s.outputs(), d + i * s.outputs());
      pad(s.rows(), s.columns(), s.filters, s.taps() - 1, false, own, wide);
      inputs_gradient(s, border, wide, turned, layer.rectify_inputs ? from_x + i * size : nullptr, to + i * size);
    }
  });
  return ffi::Error::Success();
}

}  // namespace

extern "C" int jaxrl_lanes() { return kLanes; }

#define JAXRL_CALL ffi::Ffi::Bind().Ctx<ffi::ThreadPool>()
#define JAXRL_LAYER                                                                                         \
  .Attr<int64_t>("stride").Attr<int64_t>("padding").Attr<bool>("rectify_inputs").Attr<bool>("rectify")
#define JAXRL_RESULT Ret<ffi::Buffer<ffi::F32>>()

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_convolution, forward_floats,
                              JAXRL_CALL.Arg<In>().Arg<In>().Arg<In>().JAXRL_RESULT JAXRL_LAYER);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_convolution_of_bytes, forward_bytes,
                              JAXRL_CALL.Arg<Bytes>().Arg<In>().Arg<In>().Arg<In>().Arg<In>().JAXRL_RESULT JAXRL_LAYER
                                  .Attr<float>("limit"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_convolution_weights, weights_of_floats,
                              JAXRL_CALL.Arg<In>().Arg<In>().Arg<In>().JAXRL_RESULT.JAXRL_RESULT JAXRL_LAYER);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_convolution_of_bytes_weights, weights_of_bytes,
                              JAXRL_CALL.Arg<Bytes>().Arg<In>().Arg<In>().Arg<In>().Arg<In>().JAXRL_RESULT.JAXRL_RESULT
                                  JAXRL_LAYER.Attr<float>("limit"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_convolution_inputs, inputs_gradient_of,
                              JAXRL_CALL.Arg<In>().Arg<In>().Arg<In>().Arg<In>().JAXRL_RESULT JAXRL_LAYER);
