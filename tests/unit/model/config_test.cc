// config.json in both styles, defaults, and what must be refused by name.
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json plain() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"intermediate_size", 160},
          {"vocab_size", 512}};
}

// The error of the plain config with one key changed.
Status error_with(const char* key, const Json& value) {
  Json json = plain();
  json[key] = value;
  return parse_hf_config(json.dump(), "").status();
}
void expect_refused(const char* key, const Json& value, Code code, const std::string& expected) {
  const Status status = error_with(key, value);
  EXPECT_EQ(status.code(), code) << key << " " << value << ": " << status.message();
  EXPECT_THAT(status.message(), HasSubstr(expected)) << key << " " << value;
  EXPECT_THAT(status.message(), HasSubstr("config.json"));
}

std::string golden(const std::string& name) { return testing::slurp(DELTAD_GOLDEN "/" + name); }

TEST(Config, ReadsTheOlderStyle) {
  const auto config = parse_hf_config(golden("models/awkward/config.json"),
                                      golden("models/awkward/generation_config.json"));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->hidden, 72);
  EXPECT_EQ(config->layers, 3);
  EXPECT_EQ(config->heads, 3);
  EXPECT_EQ(config->kv_heads, 1);
  EXPECT_EQ(config->head_dim, 24);
  EXPECT_EQ(config->intermediate, 100);
  EXPECT_EQ(config->vocab, 509);
  EXPECT_EQ(config->max_positions, 509);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_EQ(config->rms_eps, 1e-5);
  EXPECT_FALSE(config->tied_head);
  EXPECT_EQ(config->bos_id, 1);
  EXPECT_THAT(config->eos_ids, ElementsAre(2));
}

TEST(Config, ReadsTheNewerStyle) {
  const auto config = parse_hf_config(golden("smollm2/config.json"), "");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->rope_theta, 100000.0);
  EXPECT_EQ(config->heads, 9);
  EXPECT_EQ(config->kv_heads, 3);
  EXPECT_EQ(config->layers, 30);
  EXPECT_TRUE(config->tied_head);
}

TEST(Config, FillsInDefaults) {
  const auto config = parse_hf_config(plain().dump(), "");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_EQ(config->rms_eps, 1e-6);
  EXPECT_FALSE(config->tied_head);
  Json nulls = plain();
  for (const char* key : {"head_dim", "num_key_value_heads", "rope_scaling", "rope_theta"})
    nulls[key] = nullptr;
  const auto same = parse_hf_config(nulls.dump(), "");
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_EQ(same->head_dim, 16);
  Json only_type = plain();
  only_type.erase("architectures");
  only_type["model_type"] = "llama";
  EXPECT_TRUE(parse_hf_config(only_type.dump(), "").ok());
}

TEST(Config, GenerationConfigSaysWhereGenerationEnds) {
  Json json = plain();
  json["eos_token_id"] = 2;
  json["bos_token_id"] = 1;
  EXPECT_THAT(parse_hf_config(json.dump(), "")->eos_ids, ElementsAre(2));
  EXPECT_THAT(parse_hf_config(json.dump(), "{}")->eos_ids, ElementsAre(2));
  const auto config = parse_hf_config(json.dump(), R"({"eos_token_id":[7,9],"bos_token_id":5})");
  EXPECT_THAT(config->eos_ids, ElementsAre(7, 9));
  EXPECT_EQ(config->bos_id, 5);
  json["eos_token_id"] = {3, 4};
  json["bos_token_id"] = nullptr;
  EXPECT_THAT(parse_hf_config(json.dump(), "")->eos_ids, ElementsAre(3, 4));
  EXPECT_EQ(parse_hf_config(json.dump(), "")->bos_id, -1);
  const Status bad = parse_hf_config(json.dump(), R"({"eos_token_id":"x"})").status();
  EXPECT_THAT(bad.message(), HasSubstr("generation_config.json: 'eos_token_id' is \"x\""));
  EXPECT_FALSE(parse_hf_config(json.dump(), R"({"eos_token_id":-1})").ok());
  EXPECT_FALSE(parse_hf_config(json.dump(), "[]").ok());
}

TEST(Config, RefusesWhatIsNotBuiltByName) {
  expect_refused("architectures", {"Qwen2ForCausalLM"}, Code::kUnimplemented, "Qwen2ForCausalLM");
  expect_refused("hidden_act", "gelu", Code::kUnimplemented, "gelu");
  expect_refused("attention_bias", true, Code::kUnimplemented, "attention_bias");
  expect_refused("mlp_bias", true, Code::kUnimplemented, "mlp_bias");
  expect_refused("partial_rotary_factor", 0.5, Code::kUnimplemented, "partial_rotary_factor 0.5");
  expect_refused("quantization_config", {{"bits", 4}}, Code::kUnimplemented, "quantization_config");
  expect_refused("rope_scaling", {{"type", "linear"}, {"factor", 4}}, Code::kUnimplemented,
                 "rope type 'linear'");
  expect_refused("rope_scaling", {{"rope_type", "llama3"}}, Code::kUnimplemented, "'llama3'");
  expect_refused("rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e4}},
                 Code::kUnimplemented, "'yarn'");
  expect_refused("rope_parameters", {{"full_attention", {{"rope_type", "default"}}}},
                 Code::kUnimplemented, "full_attention");
  EXPECT_TRUE(error_with("rope_scaling", {{"rope_type", "default"}}).ok());
}

TEST(Config, RefusesWrongValuesByKey) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "vocab_size"}) {
    Json json = plain();
    json.erase(key);
    const Status status = parse_hf_config(json.dump(), "").status();
    EXPECT_THAT(status.message(), HasSubstr("lacks '" + std::string(key) + "'"));
    for (const Json& value :
         {Json(0), Json(-1), Json("64"), Json(64.5), Json(1e30), Json(UINT64_MAX),
          Json(int64_t{1} << 60), Json::array({64}), Json::object(), Json(true)})
      expect_refused(key, value, Code::kInvalidArgument, std::string("'") + key + "' is");
  }
  expect_refused("num_key_value_heads", 3, Code::kInvalidArgument, "do not divide");
  expect_refused("head_dim", 15, Code::kInvalidArgument, "even");
  expect_refused("head_dim", 1 << 20, Code::kInvalidArgument, "wider");
  expect_refused("num_attention_heads", 5, Code::kInvalidArgument, "no multiple");
  expect_refused("rope_theta", 0, Code::kInvalidArgument, "a number above 0");
  expect_refused("rope_theta", "x", Code::kInvalidArgument, "a number above 0");
  expect_refused("rms_norm_eps", -1e-5, Code::kInvalidArgument, "'rms_norm_eps'");
  expect_refused("tie_word_embeddings", 1, Code::kInvalidArgument, "true or false");
  expect_refused("rope_parameters", 7, Code::kInvalidArgument, "an object");
  expect_refused("architectures", "LlamaForCausalLM", Code::kInvalidArgument, "a list");
  expect_refused("architectures", Json::array(), Code::kInvalidArgument, "a list");
}

TEST(Config, RefusesWhatIsNoObject) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("7"), std::string("\xff"),
        std::string(100'000, '['), std::string("{}")})
    EXPECT_EQ(parse_hf_config(text, "").status().code(), Code::kInvalidArgument);
  std::string deep = R"({"architectures":)";
  deep += std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_EQ(parse_hf_config(deep, "").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace deltad
