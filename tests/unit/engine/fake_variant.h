// Variants without weights, told apart by a number.
#pragma once

#include <memory>
#include <string>

#include "delta/variant.h"

namespace deltad::testing {

class FakeVariantWeights final : public VariantWeights {
 public:
  explicit FakeVariantWeights(uint32_t t) : tag(t) {}
  Status put_sign_rows(WeightId, int, int, int64_t, int64_t, const uint8_t*) override { return {}; }
  Status put_alpha(WeightId, int, int, const float*) override { return {}; }
  Status put_dense_rows(WeightId, int, int64_t, int64_t, const uint16_t*) override { return {}; }
  Status put_low_rank(WeightId, int, float, const float*, const float*) override { return {}; }
  void alias_weight(WeightId, WeightId) override {}
  Status finish(const std::atomic<bool>*) override { return {}; }
  size_t bytes() const override { return 0; }
  int64_t dense_rows(WeightId) const override { return 0; }

  const uint32_t tag;
};

inline VariantRef make_variant(uint32_t number, const std::string& name = "v") {
  auto variant = std::make_shared<Variant>();
  variant->name = name;
  variant->digest = "digest-" + std::to_string(number);
  variant->weights = std::make_shared<FakeVariantWeights>(1000 + number);
  return variant;
}

}  // namespace deltad::testing
