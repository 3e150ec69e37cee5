// Layer normalization (Ba 2016) of rows, and its gradients, on all threads of a device.
//
// y = [max(0, .)] (x - mean) / sqrt(variance + epsilon) * scale + bias: [N, C], by the mean and the
// variance of each row.
#pragma once

#include <cmath>
#include <cstring>
#include <utility>

#include "lanes.h"
#include "parallel.h"

namespace jaxrl {

struct Normalization {
  int64_t rows, features;  // the latter is a multiple of kLanes
  const float *scale, *bias;
  float epsilon;
  bool rectify;

  double work() const { return 8.0 * features; }  // of a row, in multiplications
};

template <int apart, int... lane>
Lanes add_apart(Lanes lanes, std::integer_sequence<int, lane...>) {
  return lanes + shuffled<(lane ^ apart)...>(lanes, lanes);
}

// The sum of all lanes, in each of them.
template <int apart = kLanes / 2>
Lanes sum_of_lanes(Lanes lanes) {
  lanes = add_apart<apart>(lanes, std::make_integer_sequence<int, kLanes>{});
  if constexpr (apart > 1)
    return sum_of_lanes<apart / 2>(lanes);
  else
    return lanes;
}

// A row of `vectors` registers, or of any number of them where `vectors` is 0.
template <int vectors>
class NormalizedRow {
 public:
  NormalizedRow(const Normalization& layer, const float* x) : layer_(layer), x_(x) {
    Lanes sum{}, squares{};
    each([&](long i) { sum += load(x_ + i); });
    mean_ = mean(sum);
    each([&](long i) {
      const Lanes centered = load(x_ + i) - mean_;
      squares += centered * centered;
    });
    inverse_ = Lanes{} + 1 / std::sqrt(mean(squares)[0] + layer_.epsilon);
  }

  void outputs(float* y) const {
    each([&](long i) {
      const Lanes of = output(i, score(i));
      store(y + i, layer_.rectify ? rectified(of) : of);
    });
  }

  // Writes the gradient of x by that of y, and adds those of scale and bias.
  void gradients(const float* gradient, float* of_x, float* of_scale, float* of_bias) const {
    Lanes sum{}, product{};
    each([&](long i) {
      const Lanes x = score(i), d = of_output(i, x, gradient), scaled = d * load(layer_.scale + i);
      sum += scaled;
      product += scaled * x;
      store(of_scale + i, load(of_scale + i) + d * x);
      store(of_bias + i, load(of_bias + i) + d);
    });
    sum = mean(sum);
    product = mean(product);
    each([&](long i) {
      const Lanes x = score(i), d = of_output(i, x, gradient) * load(layer_.scale + i);
      store(of_x + i, inverse_ * (d - sum - x * product));
    });
  }

 private:
  template <typename Work>
  void each(Work work) const {
    const long end = vectors ? vectors * kLanes : layer_.features;
    for (long i = 0; i < end; i += kLanes) work(i);
  }

  Lanes mean(Lanes sum) const { return sum_of_lanes(sum) / static_cast<float>(layer_.features); }

  Lanes score(long i) const { return (load(x_ + i) - mean_) * inverse_; }

  Lanes output(long i, Lanes score) const {
    return score * load(layer_.scale + i) + load(layer_.bias + i);
  }

  Lanes of_output(long i, Lanes score, const float* gradient) const {
    const Lanes d = load(gradient + i);
    return layer_.rectify ? where_positive(output(i, score), d) : d;
  }

  const Normalization& layer_;
  const float* x_;
  Lanes mean_, inverse_;
};

// Calls work(row, at) for each of some rows, `at` where its features begin.
template <int vectors, typename Work>
void each_row_of(const Normalization& layer, const float* x, int64_t from, int64_t to, Work work) {
  for (int64_t row = from; row < to; row++)
    work(NormalizedRow<vectors>(layer, x + row * layer.features), row * layer.features);
}

template <typename Work>
void each_row(const Normalization& layer, const float* x, int64_t from, int64_t to, Work work) {
  switch (layer.features / kLanes) {
    case 1: return each_row_of<1>(layer, x, from, to, work);
    case 2: return each_row_of<2>(layer, x, from, to, work);
    case 3: return each_row_of<3>(layer, x, from, to, work);
    case 4: return each_row_of<4>(layer, x, from, to, work);
    default: return each_row_of<0>(layer, x, from, to, work);
  }
}

template <typename Pool>
void normalized(Pool& pool, const Normalization& layer, const float* x, float* y) {
  const int parts = shares_of(layer.work(), layer.rows, pool);
  in_parallel(pool, parts, [=](int part) {
    each_row(layer, x, layer.rows * part / parts, layer.rows * (part + 1) / parts,
             [=](const auto& row, int64_t at) { row.outputs(y + at); });
  });
}

template <typename Pool>
void normalized_gradients(Pool& pool, const Normalization& layer, const float* x,
                          const float* gradient, float* of_x, float* of_scale, float* of_bias) {
  const int parts = parts_of(layer.work(), layer.rows, kParts);
  const long size = 2 * layer.features;
  float* sums = scratch<10>(parts * size);
  memset(sums, 0, parts * size * sizeof(float));
  in_parallel(pool, parts, [=](int part) {
    float* sum = sums + part * size;
    each_row(layer, x, layer.rows * part / parts, layer.rows * (part + 1) / parts,
             [=](const auto& row, int64_t at) {
               row.gradients(gradient + at, of_x + at, sum, sum + layer.features);
             });
  });
  for (int part = 1; part < parts; part++)
    for (long i = 0; i < size; i++) sums[i] += sums[part * size + i];
  memcpy(of_scale, sums, layer.features * sizeof(float));
  memcpy(of_bias, sums + layer.features, layer.features * sizeof(float));
}

}  // namespace jaxrl
