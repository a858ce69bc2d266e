// Planned sizes against what the CPU backend accounts for, within 2 %; and hand-computed ones.
#include "plan/memory_sizes.h"

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "model/transformer.h"
#include "model/weight_table.h"
#include "plan/model_shapes.h"

namespace deltad {
namespace {

ModelConfig small(bool tied) {  // of SmolLM2-135M's shape, with fewer layers
  ModelConfig config;
  config.hidden = 576;
  config.layers = 4;
  config.heads = 9;
  config.kv_heads = 3;
  config.head_dim = 64;
  config.intermediate = 1536;
  config.vocab = 5003;
  config.max_positions = 2048;
  config.tied_head = tied;
  return config;
}

ModelConfig awkward() {  // nothing is a multiple of 16
  ModelConfig config = small(false);
  config.hidden = 90;
  config.heads = 6;
  config.head_dim = 22;
  config.intermediate = 250;
  return config;
}

void expect_near(int64_t planned, size_t real, const std::string& what) {
  const auto expected = static_cast<double>(real);
  EXPECT_NEAR(static_cast<double>(planned), expected, 0.02 * expected) << what;
}

class PlannedSizes : public ::testing::TestWithParam<ModelConfig> {
 protected:
  void SetUp() override {
    table_ = make_weight_table(GetParam());
    auto made = make_cpu_backend({.threads = 1, .pin = false, .isa = ""});
    ASSERT_TRUE(made.ok()) << made.status().message();
    backend_ = std::move(*made);
    const Status declared = backend_->declare_weights(table_.specs);
    ASSERT_TRUE(declared.ok()) << declared.message();
  }
  // What the loader would ask for.
  VariantContent content(const VariantShape& shape) const {
    VariantContent out;
    for (WeightId id = 0; id < static_cast<WeightId>(table_.specs.size()); ++id) {
      const WeightSpec& spec = table_.specs[static_cast<size_t>(id)];
      if (is_block_matrix(spec.parts[0].name)) {
        if (shape.levels > 0) out.signs.push_back({id, static_cast<int>(shape.levels)});
        for (int p = 0; shape.rank > 0 && p < static_cast<int>(spec.parts.size()); ++p)
          out.low_rank.push_back({id, p, shape.rank});
      } else if (spec.alias < 0 &&
                 (shape.dense == DenseTensors::kAll ||
                  (shape.dense == DenseTensors::kNorms && spec.kind == WeightKind::kVector))) {
        out.dense.push_back({id, 0, spec.parts[0].rows});
      }
    }
    return out;
  }
  WeightTable table_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(PlannedSizes, OfTheBaseAreWhatTheBackendTakes) {
  expect_near(base_bytes(GetParam()), backend_->weight_bytes(), "base");
}

TEST_P(PlannedSizes, OfEachKindOfVariantAreWhatTheBackendTakes) {
  for (const VariantShape& shape :
       {VariantShape{1, 0, DenseTensors::kNone}, VariantShape{1, 0, DenseTensors::kNorms},
        VariantShape{2, 0, DenseTensors::kAll}, VariantShape{4, 0, DenseTensors::kNorms},
        VariantShape{0, 4, DenseTensors::kNone}, VariantShape{0, 33, DenseTensors::kNone},
        VariantShape{2, 16, DenseTensors::kNorms}}) {
    const auto made = backend_->new_variant(content(shape));
    ASSERT_TRUE(made.ok()) << made.status().message();
    expect_near(variant_bytes(GetParam(), shape).resident, (*made)->bytes(),
                std::to_string(shape.levels) + " levels, rank " + std::to_string(shape.rank));
  }
}

TEST_P(PlannedSizes, OfKvBlocksAreWhatTheBackendTakes) {
  const auto transformer = Transformer::make(GetParam(), table_, *backend_, 8, 64);
  ASSERT_TRUE(transformer.ok());
  EXPECT_EQ(kv_block_bytes(GetParam()),
            GetParam().layers * backend_->ops().kv_block_bytes((*transformer)->attention_shape(),
                                                               kPlanBlockTokens));
}

TEST_P(PlannedSizes, OfTheWorkspaceAreWhatTheBackendTakes) {
  ModelConfig config = GetParam();
  config.max_positions = 64;
  const auto transformer = Transformer::make(config, table_, *backend_, 40, 64);
  ASSERT_TRUE(transformer.ok());
  const auto activation = static_cast<int64_t>(dtype_size(backend_->ops().activation_type()));
  expect_near(workspace_bytes(config, 40, 0, activation), (*transformer)->workspace_bytes(),
              "workspace");  // logits come with the first step: tests/e2e/test_plan.py
}

INSTANTIATE_TEST_SUITE_P(Models, PlannedSizes,
                         ::testing::Values(small(true), small(false), awkward()));

// 70B: q and o 8192², k and v 1024·8192, three of 28672·8192, all 80 times: 68 451 041 280 weights;
// embeddings and head 128256·8192 each; norms 161·8192 in 4 bytes.
TEST(PlannedSizesOfLlama3, AreThoseComputedByHand) {
  const ModelConfig model = *planned_model("70b");
  EXPECT_EQ(base_bytes(model), 2 * (68451041280 + 2 * 1050673152) + 4 * 161 * 8192);
  // A bit a weight, and α of 10240 + 8192 + 57344 + 8192 rows a layer.
  EXPECT_EQ(variant_bytes(model, {1, 0, DenseTensors::kNone}).resident,
            68451041280 / 8 + 4 * 80 * 83968);
  EXPECT_EQ(kv_block_bytes(model), 80 * 8 * 16 * 2 * 128 * 2);  // 320 KiB a token
  EXPECT_EQ(base_bytes_read(model), base_bytes(model) - 2 * 1050673152);
}

TEST(PlannedSizesOfLlama3, AreCutByTensorParallelism) {
  const auto part = tensor_parallel_part(*planned_model("70b"), 8);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(base_bytes(*part), (2 * (68451041280 + 2 * 1050673152)) / 8 + 4 * 161 * 8192);
  EXPECT_EQ(kv_block_bytes(*part), 10 * 16 * 8 * 2 * 128 * 2);
  // The most that one of three has: 3 of 8 KV heads, 1195 of 3584 units of the MLP.
  const auto uneven = tensor_parallel_part(*planned_model("70b"), 3);
  ASSERT_TRUE(uneven.ok());
  EXPECT_EQ(uneven->kv_heads, 3);
  EXPECT_EQ(uneven->heads, 24);
  EXPECT_EQ(uneven->intermediate, 1195 * 8);
  const auto too_many = tensor_parallel_part(*planned_model("70b"), 65);
  EXPECT_EQ(too_many.status().code(), Code::kInvalidArgument);
  EXPECT_NE(too_many.status().message().find("expected 1 to 64"), std::string::npos);
}

}  // namespace
}  // namespace deltad
