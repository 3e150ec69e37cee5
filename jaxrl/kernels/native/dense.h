// The product of a fully connected layer, and its gradients, on all threads of a device.
//
// y = x W: [B, C] [C, F]. Every thread takes some columns of a result, or rows of the gradient of
// W, with all of their sums, so that the number of threads changes no order.
#pragma once

#include "factors.h"
#include "transpose.h"

namespace jaxrl {

struct Dense {
  int64_t batch, inputs, outputs;  // the last two are a multiple of kPanel

  double multiplications() const { return static_cast<double>(batch) * inputs * outputs; }
};

constexpr int kPanel = 2 * kLanes;  // columns of a tile

// Calls work(from, to) for parts of a range, on all threads if they are worth waking.
template <typename Pool, typename Work>
void for_ranges(Pool& pool, const Dense& layer, int64_t count, Work work) {
  const int parts =
      layer.multiplications() < kShared ? 1 : std::min<int64_t>(count, 4 * pool.num_threads());
  in_parallel(pool, parts,
              [=](int part) { work(count * part / parts, count * (part + 1) / parts); });
}

// A panel of some lines of weights, as factors that lie one after the other. A batch of one tile
// reads it only once, as well from where it lies.
template <typename Op>
std::pair<const float*, long> panel_of(const Dense& layer, const float* weights) {
  if (Op::kPer == 1 && layer.batch <= kMostRows<2>) return {weights, layer.outputs};
  float* panel = scratch<9>(layer.inputs / Op::kPer * kPanel);
  for (int64_t k = 0; k < layer.inputs / Op::kPer; k++) {
    const float* line = weights + k * Op::kPer * layer.outputs;
    if constexpr (Op::kPer == 1)
      memcpy(panel + k * kPanel, line, kPanel * sizeof(float));
    else
      pair_lines(kPanel, line, line + layer.outputs, panel + k * kPanel);
  }
  return {panel, kPanel};
}

// y = x W.
template <typename Op, typename Pool>
void dense_outputs(Pool& pool, const Dense& layer, const float* x, const float* weights, float* y) {
  const int depth = static_cast<int>(layer.inputs / Op::kPer);
  const Left left{neighbors<Op>(layer.batch * layer.inputs, x), depth, 1, 0, depth};
  for_ranges(pool, layer, layer.outputs / kPanel, [=](int64_t from, int64_t to) {
    for (int64_t f = from * kPanel; f < to * kPanel; f += kPanel) {
      const auto [panel, width] = panel_of<Op>(layer, weights + f);
      product_rows<Op, 2>(static_cast<int>(layer.batch), left, panel, width, Finish{}, y + f,
                          layer.outputs);
    }
  });
}

// The gradient of x by that of y: times the turned W.
template <typename Op, typename Pool>
void dense_inputs_gradient(Pool& pool, const Dense& layer, const float* weights,
                           const float* gradient, float* of_inputs) {
  const int depth = static_cast<int>(layer.outputs / Op::kPer);
  const Left left{neighbors<Op>(layer.batch * layer.outputs, gradient), depth, 1, 0, depth};
  for_ranges(pool, layer, layer.inputs / kPanel, [=](int64_t from, int64_t to) {
    float* panel = scratch<9>(depth * kPanel);
    for (int64_t c = from * kPanel; c < to * kPanel; c += kPanel) {
      const float* lines = neighbors<Op, 10>(kPanel * layer.outputs, weights + c * layer.outputs);
      transpose(kPanel, depth, lines, depth, panel, kPanel);
      product_rows<Op, 2>(static_cast<int>(layer.batch), left, panel, kPanel, Finish{},
                          of_inputs + c, layer.inputs);
    }
  });
}

// The gradient of W by that of y.
template <typename Op, typename Pool>
void dense_weights_gradient(Pool& pool, const Dense& layer, const float* x, const float* gradient,
                            float* of_weights) {
  const int pixels = static_cast<int>((layer.batch + Op::kPer - 1) / Op::kPer);
  const float* left = lines_of_rows<Op, 6>(layer.batch, layer.inputs, x);
  const float* right = lines_of_rows<Op>(layer.batch, layer.outputs, gradient);
  for_ranges(pool, layer, layer.inputs, [=](int64_t from, int64_t to) {
    in_even_parts(static_cast<int>(to - from), kMostRows<2>, [=](int first, int count) {
      const int64_t c = from + first;
      for (int64_t f = 0; f < layer.outputs; f += kPanel)
        add_outer_rows<Op, 2>(count, Left{left + c, layer.inputs, 1, 0, 0}, pixels, right + f,
                              layer.outputs, 0, false, of_weights + c * layer.outputs + f,
                              layer.outputs);
    });
  });
}

}  // namespace jaxrl
