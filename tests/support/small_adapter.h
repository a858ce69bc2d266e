// Made-up LoRA adapters of a tiny model, from a formula that tests/golden/make/pool.py has too.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "delta/packed_adapter.h"
#include "merge/mix.h"
#include "model/config.h"
#include "model/weight_table.h"

namespace deltad::testing {

inline WeightTable small_table() {
  ModelConfig config;
  config.hidden = 24;
  config.layers = 2;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 8;
  config.intermediate = 40;
  config.vocab = 32;
  return make_weight_table(config);
}

struct SmallAdapter {
  uint64_t seed = 1;
  int64_t rank = 4;
  double scale = 2;
  uint64_t like = 0;   // the seed of an adapter that it resembles
  uint64_t alike = 0;  // in so many of 100 values
  double falling = 1;  // rank vector i has this to the power of i as its size
};

// A value in 1/64s from -2 to below 2, which bf16 holds exactly; times a power of `falling`.
inline float small_value(const SmallAdapter& adapter, uint64_t stream, uint64_t i, int64_t vector) {
  const bool other = mix(mix(adapter.seed, 1000 + stream), i) % 100 < adapter.alike;
  const uint64_t bits = mix(mix(other ? adapter.like : adapter.seed, stream), i);
  const float value = (static_cast<float>(bits >> 56) - 128) / 64;
  return value * static_cast<float>(std::pow(adapter.falling, static_cast<double>(vector)));
}

inline AdapterFactorSet small_factors(const WeightTable& table, const SmallAdapter& adapter) {
  AdapterFactorSet set;
  uint64_t stream = 0;
  for (const auto& [weight, place] : table.by_name) {
    if (!is_block_matrix(weight)) continue;
    const WeightSpec& spec = table.specs[static_cast<size_t>(place.weight)];
    AdapterFactors f;
    f.rank = adapter.rank;
    f.inputs = spec.columns;
    f.outputs = spec.parts[static_cast<size_t>(place.part)].rows;
    f.scale = adapter.scale;
    for (int64_t i = 0; i < f.rank * f.inputs; ++i)
      f.a.push_back(small_value(adapter, stream, static_cast<uint64_t>(i), i / f.inputs));
    ++stream;
    for (int64_t i = 0; i < f.outputs * f.rank; ++i)
      f.b.push_back(small_value(adapter, stream, static_cast<uint64_t>(i), 0));
    ++stream;
    set[weight] = std::move(f);
  }
  return set;
}

// The file, in 16 bits.
inline std::string write_small(const WeightTable& table, const SmallAdapter& adapter,
                               const std::string& path) {
  const auto written =
      write_packed_adapter(pack_adapter(16, "", small_factors(table, adapter)), path);
  EXPECT_TRUE(written.ok()) << written.status().message();
  return path;
}

}  // namespace deltad::testing
