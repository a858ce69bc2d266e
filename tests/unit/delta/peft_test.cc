// LoRA folders as PEFT writes them, against the definition Δ = s·BA computed the plain way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "delta/float_codec.h"
#include "delta/tune.h"
#include "raw_file.h"
#include "tensor/float16.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::RawFile;
using testing::RawTensor;
using testing::TempFolder;
using Json = nlohmann::ordered_json;

constexpr const char* kPrefix = "base_model.model.";
constexpr const char* kUp = "model.layers.1.mlp.up_proj";         // [160, 64] of models/llama
constexpr const char* kQ = "model.layers.0.self_attn.q_proj";     // [64, 64]
constexpr const char* kEmbeddings = "model.embed_tokens.weight";  // [512, 64]

// Values that bf16 can hold, without pattern.
std::vector<float> numbers(int64_t count, uint32_t seed) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& value : out) {
    seed = seed * 1664525u + 1013904223u;
    value = bf16_to_f32(
        f32_to_bf16((static_cast<float>(seed >> 8) / static_cast<float>(1 << 24) - 0.5f) * 0.1f));
  }
  return out;
}

RawTensor tensor(DType type, const Shape& shape, const std::vector<float>& values) {
  RawTensor out{type, shape, std::string(values.size() * dtype_size(type), 0)};
  narrow(type, static_cast<int64_t>(values.size()), values.data(), out.bytes.data());
  return out;
}

class PeftTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto base = Checkpoint::open(DELTAD_GOLDEN "/models/llama");
    ASSERT_TRUE(base.ok()) << base.status().message();
    base_ = std::move(*base);
    config_ = {{"peft_type", "LORA"}, {"r", 4},
               {"lora_alpha", 8},     {"bias", "none"},
               {"use_dora", false},   {"init_lora_weights", true}};
  }

  void add_pair(const std::string& module, int64_t outputs, int64_t inputs, int64_t rank,
                const std::string& middle = "", DType type = DType::kBF16) {
    a_[module] = numbers(rank * inputs, static_cast<uint32_t>(inputs + rank));
    b_[module] = numbers(outputs * rank, static_cast<uint32_t>(outputs + rank + 7));
    raw_.tensors[kPrefix + module + ".lora_A" + middle + ".weight"] =
        tensor(type, Shape{rank, inputs}, a_[module]);
    raw_.tensors[kPrefix + module + ".lora_B" + middle + ".weight"] =
        tensor(type, Shape{outputs, rank}, b_[module]);
  }

  Result<std::unique_ptr<Tune>> open() {
    folder_.write("adapter_config.json", config_.dump());
    testing::write_raw(folder_.file("adapter_model.safetensors"), raw_);
    return open_adapter(*base_, folder_.path());
  }

  // Δ of the module is s·BA.
  void expect_delta(const std::string& module, int64_t outputs, int64_t inputs, int64_t rank,
                    double s) {
    auto tune = open();
    ASSERT_TRUE(tune.ok()) << tune.status().message();
    const std::string name = module + ".weight";
    ASSERT_EQ((*tune)->tensors().count(name), 1u);
    EXPECT_TRUE((*tune)->tensors().at(name).as_delta);
    auto differs = (*tune)->differs(name);
    ASSERT_TRUE(differs.ok());
    EXPECT_TRUE(*differs);
    std::vector<double> delta(static_cast<size_t>((outputs - 3) * inputs));
    ASSERT_TRUE((*tune)->delta_rows(name, 3, outputs - 3, nullptr, delta.data()).ok());
    const std::vector<float>&a = a_[module], &b = b_[module];
    for (int64_t o = 3; o < outputs; ++o)
      for (int64_t i = 0; i < inputs; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < rank; ++k)
          sum += static_cast<double>(b[static_cast<size_t>(o * rank + k)]) *
                 static_cast<double>(a[static_cast<size_t>(k * inputs + i)]);
        ASSERT_NEAR(delta[static_cast<size_t>((o - 3) * inputs + i)], s * sum,
                    1e-15 + 1e-12 * std::fabs(s * sum));
      }
  }

  void expect_refused(const std::string& key, const Json& value) {
    SCOPED_TRACE(key);
    const Json kept = config_;
    config_[key] = value;
    const Status status = open().status();
    EXPECT_EQ(status.code(), Code::kUnimplemented);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(key), HasSubstr(folder_.file("adapter_config.json"))));
    config_ = kept;
  }

  TempFolder folder_;
  std::unique_ptr<Checkpoint> base_;
  Json config_;
  RawFile raw_;
  std::map<std::string, std::vector<float>> a_, b_;
};

TEST_F(PeftTest, DeltaIsScaledProduct) {
  add_pair(kUp, 160, 64, 4);
  expect_delta(kUp, 160, 64, 4, 2.0);
}

TEST_F(PeftTest, NamesWithTheAdaptersName) {
  add_pair(kUp, 160, 64, 4, ".default");
  expect_delta(kUp, 160, 64, 4, 2.0);
}

TEST_F(PeftTest, NamesWithoutTheWrappersPrefix) {
  add_pair(kUp, 160, 64, 4);
  RawFile bare;
  for (const auto& [name, tensor] : raw_.tensors)
    bare.tensors[name.substr(std::string(kPrefix).size())] = tensor;
  raw_ = bare;
  expect_delta(kUp, 160, 64, 4, 2.0);
}

TEST_F(PeftTest, OtherTypes) {
  add_pair(kUp, 160, 64, 4, "", DType::kF32);
  expect_delta(kUp, 160, 64, 4, 2.0);
}

TEST_F(PeftTest, FanInFanOutMeansNothingForLinearLayers) {
  config_["fan_in_fan_out"] = true;
  add_pair(kUp, 160, 64, 4);
  expect_delta(kUp, 160, 64, 4, 2.0);
}

TEST_F(PeftTest, RankStabilised) {
  config_["use_rslora"] = true;
  add_pair(kUp, 160, 64, 4);
  expect_delta(kUp, 160, 64, 4, 8 / std::sqrt(4.0));
}

TEST_F(PeftTest, PatternsForRankAndAlpha) {
  config_["rank_pattern"] = {{"layers.1.mlp.up_proj", 2}};
  config_["alpha_pattern"] = {{"k_proj", 99}, {".*layers\\.[01]\\.(mlp|x).*", 3}, {"up_proj", 77}};
  add_pair(kUp, 160, 64, 2);
  expect_delta(kUp, 160, 64, 2, 3.0 / 2);
}

TEST_F(PeftTest, APatternMatchesWholePartsOfANameOnly) {
  config_["alpha_pattern"] = {{"p_proj", 99}, {"up", 98}, {"mlp.up_proj", 5}};
  add_pair(kUp, 160, 64, 4);
  expect_delta(kUp, 160, 64, 4, 5.0 / 4);
}

TEST_F(PeftTest, HostilePatternsEnd) {
  config_["alpha_pattern"] = {{"(a*)*(.*)*(.*)*(.*)*!", 5}};
  add_pair(kUp, 160, 64, 4);
  const Status status = open().status();
  EXPECT_THAT(status.message(), ::testing::AnyOf(HasSubstr("too costly"), ::testing::IsEmpty()));
  config_["alpha_pattern"] = {{"(", 5}};
  EXPECT_THAT(open().status().message(), HasSubstr("not a regular expression"));
}

TEST_F(PeftTest, RefusesByNameWhatIsNotPlainLora) {
  add_pair(kUp, 160, 64, 4);
  expect_refused("use_dora", true);
  expect_refused("bias", "all");
  expect_refused("bias", "lora_only");
  expect_refused("lora_bias", true);
  expect_refused("peft_type", "IA3");
  expect_refused("use_qalora", true);
  expect_refused("alora_invocation_tokens", {1, 2});
  expect_refused("layer_replication", {{0, 1}});
  expect_refused("trainable_token_indices", {3});
  expect_refused("target_parameters", {"x"});
  expect_refused("init_lora_weights", "pissa");
  expect_refused("init_lora_weights", "olora");
  expect_refused("use_something_new", true);
  expect_refused("new_config", {{"a", 1}});
  raw_.tensors[std::string(kPrefix) + kUp + ".lora_magnitude_vector"] =
      tensor(DType::kF32, Shape{160}, numbers(160, 1));
  EXPECT_EQ(open().status().code(), Code::kUnimplemented);
  EXPECT_THAT(open().status().message(), HasSubstr("DoRA"));
}

TEST_F(PeftTest, ConfigsThatMakeNoSense) {
  add_pair(kUp, 160, 64, 4);
  const auto message = [&](const char* key, const Json& value) {
    const Json kept = config_;
    config_[key] = value;
    const Status status = open().status();
    config_ = kept;
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message("r", 0), HasSubstr("r is 0"));
  EXPECT_THAT(message("r", "four"), HasSubstr("r is"));
  EXPECT_THAT(message("lora_alpha", Json()), HasSubstr("lora_alpha is null"));
  EXPECT_THAT(message("rank_pattern", 3), HasSubstr("rank_pattern"));
  EXPECT_THAT(message("alpha_pattern", {{"up_proj", "x"}}), HasSubstr("alpha_pattern"));
  EXPECT_THAT(message("r", 8), HasSubstr("expected [8, 64]"));
  folder_.write("adapter_config.json", "[");
  EXPECT_THAT(open_adapter(*base_, folder_.path()).status().message(),
              HasSubstr("not a JSON object"));
}

// PEFT ignores the tensors of modules that the config does not name.
TEST_F(PeftTest, ModulesThatTheConfigLeavesOutAreRefused) {
  add_pair(kUp, 160, 64, 4);  // of layer 1
  const auto message = [&](const Json& settings) {
    const Json kept = config_;
    config_.update(settings);
    const auto opened = open();
    config_ = kept;
    return opened.ok() ? std::string("fits") : opened.status().message();
  };
  for (const Json& fits :
       {Json{{"target_modules", {"up_proj"}}}, Json{{"target_modules", {kUp}}},
        Json{{"target_modules", "all-linear"}}, Json{{"target_modules", ".*\\.up_proj"}},
        Json{{"target_modules", nullptr}},
        Json{{"target_modules", {"mlp.up_proj"}}, {"layers_to_transform", 1}},
        Json{{"target_modules", {"up_proj"}}, {"layers_to_transform", {0, 1}}},
        Json{{"target_modules", {"up_proj"}},
             {"layers_to_transform", {1}},
             {"layers_pattern", "layers"}},
        Json{{"target_modules", {"up_proj"}}, {"exclude_modules", {"layers.0.mlp.up_proj"}}}})
    EXPECT_EQ(message(fits), "fits") << fits;
  for (const Json& misses :
       {Json{{"target_modules", {"p_proj", "down_proj"}}}, Json{{"target_modules", "up_proj"}},
        Json{{"target_modules", Json::array()}},
        Json{{"target_modules", {"up_proj"}}, {"layers_to_transform", {0, 2}}},
        Json{{"target_modules", {"up_proj"}},
             {"layers_to_transform", {1}},
             {"layers_pattern", {"blocks"}}},
        Json{{"target_modules", {"up_proj"}}, {"exclude_modules", ".*layers\\.1\\..*"}}})
    EXPECT_THAT(message(misses), HasSubstr("does not name its module")) << misses;
  EXPECT_THAT(message({{"target_modules", 3}}), HasSubstr("target_modules is 3"));
  EXPECT_THAT(message({{"target_modules", "("}}), HasSubstr("not a regular expression"));
  EXPECT_THAT(message({{"layers_to_transform", "x"}}), HasSubstr("layers_to_transform"));
  EXPECT_THAT(message({{"layers_pattern", 1}}), HasSubstr("layers_pattern"));
}

TEST_F(PeftTest, TensorsThatBelongToNothingAreListed) {
  add_pair(kUp, 160, 64, 4);
  add_pair("model.layers.9.mlp.up_proj", 160, 64, 4);
  add_pair("model.layers.0.mlp.experts.0.up_proj", 160, 64, 4);
  raw_.tensors["base_model.model.model.layers.0.mlp.up_proj.bias"] =
      tensor(DType::kF32, Shape{160}, numbers(160, 1));
  const Status status = open().status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("5 of 7 tensors belong to no module"),
                    HasSubstr("\n  base_model.model.model.layers.9.mlp.up_proj.lora_A.weight"),
                    HasSubstr("\n  base_model.model.model.layers.9.mlp.up_proj.lora_B.weight"),
                    HasSubstr("experts.0.up_proj.lora_B.weight"), HasSubstr("up_proj.bias")));
}

TEST_F(PeftTest, WrongShapesTypesAndMissingFactors) {
  add_pair(kUp, 150, 64, 4);
  EXPECT_THAT(open().status().message(),
              AllOf(HasSubstr("up_proj.lora_B.weight"), HasSubstr("expected [160, 4]")));
  add_pair(kUp, 160, 60, 4);
  EXPECT_THAT(open().status().message(),
              AllOf(HasSubstr("up_proj.lora_A.weight"), HasSubstr("expected [4, 64]")));
  add_pair(kUp, 160, 64, 4);
  raw_.tensors.erase(std::string(kPrefix) + kUp + ".lora_B.weight");
  EXPECT_THAT(open().status().message(), HasSubstr("other factor"));
  add_pair(kUp, 160, 64, 4);
  raw_.tensors[std::string(kPrefix) + kUp + ".lora_A.weight"] = {DType::kI8, Shape{4, 64},
                                                                 std::string(256, 1)};
  EXPECT_THAT(open().status().message(), HasSubstr("expected F32, F16 or BF16"));
  raw_.tensors.clear();
  EXPECT_THAT(open().status().message(), HasSubstr("no tensors"));
}

TEST_F(PeftTest, AZeroFactorChangesNothing) {
  add_pair(kUp, 160, 64, 4);
  add_pair(kQ, 64, 64, 4);
  raw_.tensors[std::string(kPrefix) + kQ + ".lora_B.weight"].bytes.assign(64 * 4 * 2, 0);
  auto tune = open();
  ASSERT_TRUE(tune.ok()) << tune.status().message();
  auto differs = (*tune)->differs(std::string(kQ) + ".weight");
  ASSERT_TRUE(differs.ok());
  EXPECT_FALSE(*differs);
}

TEST_F(PeftTest, TensorsSavedWholeAreCarried) {
  const std::vector<float> norm = numbers(64, 3), head = numbers(512 * 64, 4);
  raw_.tensors["base_model.model.model.norm.weight"] = tensor(DType::kF32, Shape{64}, norm);
  raw_.tensors["base_model.model.lm_head.modules_to_save.default.weight"] =
      tensor(DType::kBF16, Shape{512, 64}, head);
  auto tune = open();
  ASSERT_TRUE(tune.ok()) << tune.status().message();
  const TunedTensor& found = (*tune)->tensors().at("model.norm.weight");
  EXPECT_FALSE(found.as_delta);
  EXPECT_EQ(found.type, DType::kF32);
  std::vector<float> values(512 * 64);
  ASSERT_TRUE((*tune)->value_rows("model.norm.weight", 0, 64, values.data()).ok());
  EXPECT_TRUE(std::equal(norm.begin(), norm.end(), values.begin()));
  ASSERT_TRUE((*tune)->value_rows("lm_head.weight", 0, 512, values.data()).ok());
  EXPECT_EQ(values, head);
}

TEST_F(PeftTest, LowRankEmbeddingsAreAddedAndCarried) {
  const std::vector<float> a = numbers(4 * 512, 5), b = numbers(64 * 4, 6);
  const std::string module = std::string(kPrefix) + "model.embed_tokens";
  raw_.tensors[module + ".lora_embedding_A"] = tensor(DType::kBF16, Shape{4, 512}, a);
  raw_.tensors[module + ".lora_embedding_B"] = tensor(DType::kBF16, Shape{64, 4}, b);
  auto tune = open();
  ASSERT_TRUE(tune.ok()) << tune.status().message();
  // PEFT's head goes on using the base's embeddings.
  EXPECT_FALSE((*tune)->tied_head());
  EXPECT_FALSE((*tune)->tensors().at(kEmbeddings).as_delta);
  std::vector<float> base(512 * 64), values(500 * 64);
  ASSERT_TRUE(base_->read_rows_f32(kEmbeddings, 0, 512, base.data()).ok());
  ASSERT_TRUE((*tune)->value_rows(kEmbeddings, 12, 500, values.data()).ok());
  for (size_t v = 12; v < 512; ++v)
    for (size_t h = 0; h < 64; ++h) {
      double sum = 0;
      for (size_t k = 0; k < 4; ++k)
        sum += static_cast<double>(a[k * 512 + v]) * static_cast<double>(b[h * 4 + k]);
      const double exact = static_cast<double>(base[v * 64 + h]) + 2.0 * sum;
      ASSERT_NEAR(values[(v - 12) * 64 + h], exact, std::fabs(exact) / 256 + 1e-30);
    }
}

TEST_F(PeftTest, EmbeddingsSavedUnderBothNamesStayTied) {
  const std::vector<float> table = numbers(520 * 64, 9);
  raw_.tensors["base_model.model.model.embed_tokens.weight"] =
      tensor(DType::kBF16, Shape{520, 64}, table);
  auto alone = open();
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  EXPECT_FALSE((*alone)->tied_head());
  config_["ensure_weight_tying"] = true;
  auto told = open();
  ASSERT_TRUE(told.ok());
  EXPECT_TRUE((*told)->tied_head());
  config_.erase("ensure_weight_tying");
  raw_.tensors["base_model.model.lm_head.weight"] = tensor(DType::kBF16, Shape{520, 64}, table);
  auto both = open();
  ASSERT_TRUE(both.ok());
  EXPECT_TRUE((*both)->tied_head());
  EXPECT_EQ((*both)->tensors().count("lm_head.weight"), 0u);
}

}  // namespace
}  // namespace deltad
