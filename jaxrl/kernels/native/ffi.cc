// The layers of layers.h, dense.h and normalization.h for compiled programs, through XLA's foreign
// function interface.
#include "xla/ffi/api/ffi.h"
#include "dense.h"
#include "layers.h"
#include "normalization.h"

namespace ffi = xla::ffi;
using namespace jaxrl;

namespace {

using In = ffi::Buffer<ffi::F32>;
using Bytes = ffi::Buffer<ffi::U8>;
using Out = ffi::ResultBuffer<ffi::F32>;
using Sizes = ffi::Span<const int64_t>;

Shape shape_of(Sizes images, Sizes kernel, const Layer& layer) {
  return jaxrl::shape_of(layer, images[1], images[2], images[3], kernel[0], kernel[3]);
}

// Calls work(Op{}) for the numbers that products take.
template <typename Work>
ffi::Error with_numbers(bool bfloat16, Work work) {
  if (bfloat16)
    work(Pairs{});
  else
    work(Singles{});
  return ffi::Error::Success();
}

ffi::Error forward_floats(ffi::ThreadPool pool, In x, In kernel, In bias, Out y, int64_t stride,
                          int64_t padding, bool rectify_inputs, bool rectify, bool bfloat16) {
  const Layer layer{stride, padding, rectify_inputs, rectify};
  const Shape s = shape_of(x.dimensions(), kernel.dimensions(), layer);
  return with_numbers(bfloat16, [&](auto op) {
    layer_outputs<decltype(op)>(pool, s, layer, FloatImages(s, layer, x.typed_data()),
                                x.dimensions()[0], kernel.typed_data(), bias.typed_data(),
                                y->typed_data());
  });
}

ffi::Error forward_bytes(ffi::ThreadPool pool, Bytes x, In scale, In shift, In kernel, In bias,
                         Out y, int64_t stride, int64_t padding, bool rectify_inputs, bool rectify,
                         bool bfloat16, float limit) {
  const Layer layer{stride, padding, rectify_inputs, rectify};
  const Shape s = shape_of(x.dimensions(), kernel.dimensions(), layer);
  const ByteImages images(s, layer, x.typed_data(), scale.typed_data(), shift.typed_data(), limit);
  return with_numbers(bfloat16, [&](auto op) {
    layer_outputs<decltype(op)>(pool, s, layer, images, x.dimensions()[0], kernel.typed_data(),
                                bias.typed_data(), y->typed_data());
  });
}

ffi::Error weights_of_floats(ffi::ThreadPool pool, In x, In y, In gradient, Out kernel, Out bias,
                             int64_t stride, int64_t padding, bool rectify_inputs, bool rectify,
                             bool bfloat16) {
  const Layer layer{stride, padding, rectify_inputs, rectify};
  const Shape s = shape_of(x.dimensions(), kernel->dimensions(), layer);
  return with_numbers(bfloat16, [&](auto op) {
    layer_weights_gradient<decltype(op)>(pool, s, layer, FloatImages(s, layer, x.typed_data()),
                                         x.dimensions()[0], y.typed_data(), gradient.typed_data(),
                                         kernel->typed_data(), bias->typed_data());
  });
}

ffi::Error weights_of_bytes(ffi::ThreadPool pool, Bytes x, In scale, In shift, In y, In gradient,
                            Out kernel, Out bias, int64_t stride, int64_t padding,
                            bool rectify_inputs, bool rectify, bool bfloat16, float limit) {
  const Layer layer{stride, padding, rectify_inputs, rectify};
  const Shape s = shape_of(x.dimensions(), kernel->dimensions(), layer);
  const ByteImages images(s, layer, x.typed_data(), scale.typed_data(), shift.typed_data(), limit);
  return with_numbers(bfloat16, [&](auto op) {
    layer_weights_gradient<decltype(op)>(pool, s, layer, images, x.dimensions()[0], y.typed_data(),
                                         gradient.typed_data(), kernel->typed_data(),
                                         bias->typed_data());
  });
}

ffi::Error inputs_gradient_of(ffi::ThreadPool pool, In x, In kernel, In y, In gradient, Out inputs,
                              int64_t stride, int64_t padding, bool rectify_inputs, bool rectify,
                              bool bfloat16) {
  const Layer layer{stride, padding, rectify_inputs, rectify};
  const Shape s = shape_of(x.dimensions(), kernel.dimensions(), layer);
  return with_numbers(bfloat16, [&](auto op) {
    layer_inputs_gradient<decltype(op)>(pool, s, layer, x.dimensions()[0], x.typed_data(),
                                        kernel.typed_data(), y.typed_data(), gradient.typed_data(),
                                        inputs->typed_data());
  });
}

Dense dense_of(Sizes rows, Sizes weights) { return {rows[0], weights[0], weights[1]}; }

ffi::Error dense_forward(ffi::ThreadPool pool, In x, In weights, Out y, bool bfloat16) {
  const Dense layer = dense_of(x.dimensions(), weights.dimensions());
  return with_numbers(bfloat16, [&](auto op) {
    dense_outputs<decltype(op)>(pool, layer, x.typed_data(), weights.typed_data(), y->typed_data());
  });
}

ffi::Error dense_weights(ffi::ThreadPool pool, In x, In gradient, Out weights, bool bfloat16) {
  const Dense layer = dense_of(x.dimensions(), weights->dimensions());
  return with_numbers(bfloat16, [&](auto op) {
    dense_weights_gradient<decltype(op)>(pool, layer, x.typed_data(), gradient.typed_data(),
                                         weights->typed_data());
  });
}

ffi::Error dense_inputs(ffi::ThreadPool pool, In weights, In gradient, Out inputs, bool bfloat16) {
  const Dense layer = dense_of(inputs->dimensions(), weights.dimensions());
  return with_numbers(bfloat16, [&](auto op) {
    dense_inputs_gradient<decltype(op)>(pool, layer, weights.typed_data(), gradient.typed_data(),
                                        inputs->typed_data());
  });
}

Pooling pooling_of(Sizes images) {
  return {static_cast<int>(images[1]), static_cast<int>(images[2]), static_cast<int>(images[3])};
}

ffi::Error pool_images(ffi::ThreadPool pool, In x, Out y, ffi::ResultBuffer<ffi::U8> places) {
  pooled(pool, pooling_of(x.dimensions()), x.dimensions()[0], x.typed_data(), y->typed_data(),
         places->typed_data());
  return ffi::Error::Success();
}

ffi::Error pool_gradient(ffi::ThreadPool pool, Bytes places, In gradient, Out images) {
  const auto sizes = images->dimensions();
  pooled_gradient(pool, pooling_of(sizes), sizes[0], places.typed_data(), gradient.typed_data(),
                  images->typed_data());
  return ffi::Error::Success();
}

Normalization normalization_of(In x, In scale, In bias, float epsilon, bool rectify) {
  const auto sizes = x.dimensions();
  return {sizes[0], sizes[1], scale.typed_data(), bias.typed_data(), epsilon, rectify};
}

ffi::Error normalize_rows(ffi::ThreadPool pool, In x, In scale, In bias, Out y, float epsilon,
                          bool rectify) {
  normalized(pool, normalization_of(x, scale, bias, epsilon, rectify), x.typed_data(),
             y->typed_data());
  return ffi::Error::Success();
}

ffi::Error normalize_gradients(ffi::ThreadPool pool, In x, In scale, In bias, In gradient, Out of_x,
                               Out of_scale, Out of_bias, float epsilon, bool rectify) {
  normalized_gradients(pool, normalization_of(x, scale, bias, epsilon, rectify), x.typed_data(),
                       gradient.typed_data(), of_x->typed_data(), of_scale->typed_data(),
                       of_bias->typed_data());
  return ffi::Error::Success();
}

}  // namespace

// All else of ours is hidden: see FLAGS in runtime/native_library.py.
#pragma GCC visibility push(default)

extern "C" int jaxrl_lanes() { return kLanes; }

extern "C" int jaxrl_multiplies_bfloat16() { return Pairs::kFast; }

#define JAXRL_CALL ffi::Ffi::Bind().Ctx<ffi::ThreadPool>()
#define JAXRL_LAYER \
  .Attr<int64_t>("stride") \
      .Attr<int64_t>("padding") \
      .Attr<bool>("rectify_inputs") \
      .Attr<bool>("rectify") \
      .Attr<bool>("bfloat16")
#define JAXRL_RESULT Ret<ffi::Buffer<ffi::F32>>()

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_convolution, forward_floats,
                              JAXRL_CALL.Arg<In>().Arg<In>().Arg<In>().JAXRL_RESULT JAXRL_LAYER);
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    jaxrl_convolution_of_bytes, forward_bytes,
    JAXRL_CALL.Arg<Bytes>().Arg<In>().Arg<In>().Arg<In>().Arg<In>().JAXRL_RESULT
        JAXRL_LAYER.Attr<float>("limit"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    jaxrl_convolution_weights, weights_of_floats,
    JAXRL_CALL.Arg<In>().Arg<In>().Arg<In>().JAXRL_RESULT.JAXRL_RESULT JAXRL_LAYER);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_convolution_of_bytes_weights, weights_of_bytes,
                              JAXRL_CALL.Arg<Bytes>()
                                  .Arg<In>()
                                  .Arg<In>()
                                  .Arg<In>()
                                  .Arg<In>()
                                  .JAXRL_RESULT.JAXRL_RESULT JAXRL_LAYER.Attr<float>("limit"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    jaxrl_convolution_inputs, inputs_gradient_of,
    JAXRL_CALL.Arg<In>().Arg<In>().Arg<In>().Arg<In>().JAXRL_RESULT JAXRL_LAYER);
#define JAXRL_DENSE JAXRL_CALL.Arg<In>().Arg<In>().JAXRL_RESULT.Attr<bool>("bfloat16")
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_dense, dense_forward, JAXRL_DENSE);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_dense_weights, dense_weights, JAXRL_DENSE);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_dense_inputs, dense_inputs, JAXRL_DENSE);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_max_pool, pool_images,
                              JAXRL_CALL.Arg<In>().JAXRL_RESULT.Ret<ffi::Buffer<ffi::U8>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_max_pool_gradient, pool_gradient,
                              JAXRL_CALL.Arg<Bytes>().Arg<In>().JAXRL_RESULT);
#define JAXRL_NORMALIZATION Attr<float>("epsilon").Attr<bool>("rectify")
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    jaxrl_normalize, normalize_rows,
    JAXRL_CALL.Arg<In>().Arg<In>().Arg<In>().JAXRL_RESULT.JAXRL_NORMALIZATION);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrl_normalize_gradients, normalize_gradients,
                              JAXRL_CALL.Arg<In>()
                                  .Arg<In>()
                                  .Arg<In>()
                                  .Arg<In>()
                                  .JAXRL_RESULT.JAXRL_RESULT.JAXRL_RESULT.JAXRL_NORMALIZATION);

#pragma GCC visibility pop
