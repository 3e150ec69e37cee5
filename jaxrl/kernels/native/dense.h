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
  const int parts = layer.multiplications() < kShared ? 1 : std::min(count, 4 * num_threads(pool));
  in_parallel(pool, parts,
              [=](int part) { work(count * part / parts, count * (part + 1) / parts); });
}

// Rows of a batch at a time: they bound the memory of pairs, which threads keep.
constexpr int64_t kRows = 2048;

// Calls work(first row, layer of some rows) for a batch.
template <typename Work>
void in_blocks_of_rows(const Dense& layer, Work work) {
  for (int64_t first = 0; first < layer.batch; first += kRows)
    work(first, Dense{std::min(kRows, layer.batch - first), layer.inputs, layer.outputs});
}

// A panel of some lines of weights, as factors that lie one after the other. A batch of one tile
// reads it only once, as well from where it lies.
template <typename Op>
Right panel_of(const Dense& layer, const float* weights) {
  if (Op::kPer == 1 && layer.batch <= kMostRows<2>) return {weights, layer.outputs};
  float* panel = scratch<9>(layer.inputs / Op::kPer * kPanel);
  for (int64_t k = 0; k < layer.inputs / Op::kPer; k++) {
    const float* line = weights + k * Op::kPer * layer.outputs;
    if constexpr (Op::kPer == 1)
      memcpy(panel + k * kPanel, line, kPanel * sizeof(float));
    else
      pair_lines(kPanel, numbers_of(line), numbers_of(line + layer.outputs), panel + k * kPanel);
  }
  return {panel, kPanel};
}

// y = x W.
template <typename Op, typename Pool>
void dense_outputs(Pool& pool, const Dense& whole, const float* x, const float* weights, float* y) {
  in_blocks_of_rows(whole, [&](int64_t first, const Dense& layer) {
    const int rows = static_cast<int>(layer.batch);
    const int depth = static_cast<int>(layer.inputs / Op::kPer);
    const float* factors = neighbors<Op>(rows * layer.inputs, x + first * layer.inputs);
    const Left left{factors, depth, 1, 0, depth};
    float* to = y + first * layer.outputs;
    for_ranges(pool, layer, layer.outputs / kPanel, [=](int64_t from, int64_t end) {
      for (int64_t f = from * kPanel; f < end * kPanel; f += kPanel) {
        product_rows<Op, 2>(rows, left, panel_of<Op>(layer, weights + f), Finish{}, to + f,
                            layer.outputs);
      }
    });
  });
}

// The gradient of x by that of y: times the turned W.
template <typename Op, typename Pool>
void dense_inputs_gradient(Pool& pool, const Dense& whole, const float* weights,
                           const float* gradient, float* of_inputs) {
  in_blocks_of_rows(whole, [&](int64_t first, const Dense& layer) {
    const int rows = static_cast<int>(layer.batch);
    const int depth = static_cast<int>(layer.outputs / Op::kPer);
    const float* factors = neighbors<Op>(rows * layer.outputs, gradient + first * layer.outputs);
    const Left left{factors, depth, 1, 0, depth};
    float* to = of_inputs + first * layer.inputs;
    for_ranges(pool, layer, layer.inputs / kPanel, [=](int64_t from, int64_t end) {
      float* panel = scratch<9>(depth * kPanel);
      for (int64_t c = from * kPanel; c < end * kPanel; c += kPanel) {
        const float* lines = neighbors<Op, 10>(kPanel * layer.outputs, weights + c * layer.outputs);
        transpose(kPanel, depth, lines, depth, panel, kPanel);
        product_rows<Op, 2>(rows, left, Right{panel, kPanel}, Finish{}, to + c, layer.inputs);
      }
    });
  });
}

// The gradient of W by that of y.
template <typename Op, typename Pool>
void dense_weights_gradient(Pool& pool, const Dense& whole, const float* x, const float* gradient,
                            float* of_weights) {
  in_blocks_of_rows(whole, [&](int64_t first, const Dense& layer) {
    const int pixels = static_cast<int>((layer.batch + Op::kPer - 1) / Op::kPer);
    const float* left = lines_of_rows<Op, 6>(layer.batch, layer.inputs, x + first * layer.inputs);
    const float* right =
        lines_of_rows<Op>(layer.batch, layer.outputs, gradient + first * layer.outputs);
    for_ranges(pool, layer, layer.inputs, [=](int64_t from, int64_t end) {
      in_even_parts(static_cast<int>(end - from), kMostRows<2>, [=](int line, int count) {
        const int64_t c = from + line;
        for (int64_t f = 0; f < layer.outputs; f += kPanel)
          add_outer_rows<Op, 2>(count, Left{left + c, layer.inputs, 1, 0, 0}, pixels, right + f,
                                layer.outputs, 0, first > 0, of_weights + c * layer.outputs + f,
                                layer.outputs);
      });
    });
  });
}

}  // namespace jaxrl
