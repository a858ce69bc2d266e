// GGUF files as checkpoints: values in the hub's order, configuration, and what is refused.
#include "model/gguf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "io/safetensors.h"
#include "tensor/float16.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden_gguf.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::deltad::testing::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string golden(const std::string& name) { return DELTAD_GOLDEN "/" + name; }

std::vector<float> tensor_of(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry* entry = file.find(name);
  EXPECT_NE(entry, nullptr) << name;
  std::vector<float> values(static_cast<size_t>(entry->bytes / 4));
  EXPECT_TRUE(file.read(*entry, 0, entry->bytes, values.data()).ok());
  return values;
}

class GoldenGguf : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenGguf, HasTheReferenceValues) {
  const std::string type = GetParam();
  const std::string path = testing::golden_gguf(type);
  const std::string values_of = type == "bf16" ? "f32" : type;  // the same values
  const auto reference =
      SafetensorsFile::open(golden("gguf/llama-" + values_of + ".reference.safetensors"));
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  // In the file's own order.
  for (const char* name : {"blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    const GgufTensor& tensor = (*file)->tensors().at(name);
    const auto expected = tensor_of(*reference, name);
    std::vector<float> values(expected.size());
    ASSERT_EQ(tensor.rows() * tensor.columns(), static_cast<int64_t>(values.size()));
    ASSERT_TRUE((*file)->read_rows_f32(tensor, 0, tensor.rows(), values.data()).ok());
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size() * 4), 0) << name;
  }
  // In the hub's.
  const auto opened = Checkpoint::open(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Checkpoint& model = **opened;
  const std::string k = "model.layers.0.self_attn.k_proj.weight";
  const auto expected = tensor_of(*reference, k);
  const int64_t rows = model.tensors().at(k).shape[0], columns = model.tensors().at(k).shape[1];
  // Any range of rows, whole heads (of 16) or parts of them.
  for (int64_t first = 0; first < rows; ++first)
    for (int64_t count = 1; count <= rows - first; ++count) {
      std::vector<float> values(static_cast<size_t>(count * columns), -1.0f);
      std::vector<uint16_t> rounded(values.size());
      ASSERT_TRUE(model.read_rows_f32(k, first, count, values.data()).ok());
      ASSERT_TRUE(model.read_rows_bf16(k, first, count, rounded.data()).ok());
      ASSERT_EQ(std::memcmp(values.data(), expected.data() + first * columns, values.size() * 4), 0)
          << first << " " << count;
      for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(rounded[i], f32_to_bf16(values[i]));
    }
  const std::string v = "model.layers.0.self_attn.v_proj.weight";
  std::vector<float> values(expected.size());
  ASSERT_TRUE(model.read_rows_f32(v, 0, rows, values.data()).ok());
  EXPECT_EQ(values, tensor_of(*reference, "blk.0.attn_v.weight"));
}

TEST_P(GoldenGguf, HasTheFoldersConfiguration) {
  const auto opened = Checkpoint::open(testing::golden_gguf(GetParam()));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const ModelConfig& config = (*opened)->config();
  const auto folder = Checkpoint::open(golden("models/llama"));
  ASSERT_TRUE(folder.ok());
  const ModelConfig& expected = (*folder)->config();
  EXPECT_EQ(config.architecture, expected.architecture);
  EXPECT_EQ(config.hidden, expected.hidden);
  EXPECT_EQ(config.layers, expected.layers);
  EXPECT_EQ(config.heads, expected.heads);
  EXPECT_EQ(config.kv_heads, expected.kv_heads);
  EXPECT_EQ(config.head_dim, expected.head_dim);
  EXPECT_EQ(config.intermediate, expected.intermediate);
  EXPECT_EQ(config.vocab, expected.vocab);
  EXPECT_EQ(config.max_positions, expected.max_positions);
  EXPECT_EQ(config.rope_theta, expected.rope_theta);
  EXPECT_FLOAT_EQ(static_cast<float>(config.rms_eps), static_cast<float>(expected.rms_eps));
  EXPECT_EQ(config.tied_head, expected.tied_head);
  EXPECT_EQ(config.name, std::string("llama-") + GetParam() + ".gguf");
  ASSERT_EQ((*opened)->tensors().size(), (*folder)->tensors().size());
  for (const auto& [name, tensor] : (*folder)->tensors()) {
    ASSERT_EQ((*opened)->tensors().count(name), 1u) << name;
    EXPECT_EQ((*opened)->tensors().at(name).shape, tensor.shape) << name;
  }
  EXPECT_NE((*opened)->gguf(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Types, GoldenGguf,
                         ::testing::Values("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"));

TEST(GgufCheckpoint, ABf16FileHasTheFoldersValues) {
  const auto gguf = Checkpoint::open(golden("gguf/llama-bf16.gguf"));
  const auto folder = Checkpoint::open(golden("models/llama"));
  ASSERT_TRUE(gguf.ok() && folder.ok());
  for (const auto& [name, tensor] : (*folder)->tensors()) {
    const auto count = static_cast<size_t>(tensor.shape.count());
    std::vector<uint16_t> a(count), b(count);
    ASSERT_TRUE((*gguf)->read_rows_bf16(name, 0, tensor.shape[0], a.data()).ok());
    ASSERT_TRUE((*folder)->read_rows_bf16(name, 0, tensor.shape[0], b.data()).ok());
    EXPECT_EQ(a, b) << name;
  }
}

// A tiny model whose metadata and tensors a test may spoil.
GgufWriter tiny() {
  GgufWriter gguf;
  gguf.string("general.architecture", "llama");
  gguf.u32("llama.embedding_length", 4);
  gguf.u32("llama.block_count", 1);
  gguf.u32("llama.feed_forward_length", 6);
  gguf.u32("llama.attention.head_count", 2);
  gguf.u32("llama.attention.head_count_kv", 1);
  gguf.tensor("token_embd.weight", {4, 10}, 0, std::string(160, '\0'));
  gguf.tensor("blk.0.attn_q.weight", {4, 4}, 0, std::string(64, '\0'));
  return gguf;
}

Status error_of(const GgufWriter& writer) {
  auto file = GgufFile::parse(writer.bytes(), "tiny.gguf");
  if (!file.ok()) return file.status();
  return make_gguf_checkpoint(std::move(*file)).status();
}

void expect_refused(const GgufWriter& writer, Code code, const std::string& expected) {
  const Status status = error_of(writer);
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("tiny.gguf"));
  EXPECT_THAT(status.message(), HasSubstr(expected));
}

TEST(GgufCheckpoint, ReadsATinyModel) {
  GgufWriter writer = tiny();
  writer.u32("tokenizer.ggml.bos_token_id", 1);
  writer.u32("tokenizer.ggml.eos_token_id", 2);
  writer.u32("tokenizer.ggml.eot_token_id", 7);
  writer.tensor("output.weight", {4, 10}, 1, std::string(80, '\0'));
  auto file = GgufFile::parse(writer.bytes(), "a/tiny.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto model = make_gguf_checkpoint(std::move(*file));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelConfig& config = (*model)->config();
  EXPECT_EQ(config.head_dim, 2);
  EXPECT_EQ(config.vocab, 10);
  EXPECT_FALSE(config.tied_head);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_THAT(config.eos_ids, ElementsAre(2, 7));
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.name, "tiny.gguf");
  EXPECT_EQ((*model)->tensors().at("lm_head.weight").stored_type, "F16");
  EXPECT_EQ((*model)->text_file("tokenizer.json"), "");
}

TEST(GgufCheckpoint, RefusesWhatIsNotBuiltByName) {
  GgufWriter other = tiny();
  other.string("general.architecture", "qwen2");
  expect_refused(other, Code::kUnimplemented, "'qwen2'");
  GgufWriter split = tiny();
  split.u32("split.count", 3);
  expect_refused(split, Code::kUnimplemented, "3 parts");
  GgufWriter experts = tiny();
  experts.u32("llama.expert_count", 8);
  expect_refused(experts, Code::kUnimplemented, "8 experts");
  GgufWriter yarn = tiny();
  yarn.string("llama.rope.scaling.type", "yarn");
  expect_refused(yarn, Code::kUnimplemented, "rope type 'yarn'");
  GgufWriter scaled = tiny();
  scaled.f32("llama.rope.scale_linear", 4);
  expect_refused(scaled, Code::kUnimplemented, "llama.rope.scale_linear");
  GgufWriter factors = tiny();
  factors.tensor("rope_freqs.weight", {1}, 0, std::string(4, '\0'));
  expect_refused(factors, Code::kUnimplemented, "'llama3'");
  GgufWriter partial = tiny();
  partial.u32("llama.rope.dimension_count", 1);
  expect_refused(partial, Code::kUnimplemented, "rope over 1 of the 2");
  GgufWriter values = tiny();
  values.u32("llama.attention.value_length", 4);
  expect_refused(values, Code::kUnimplemented, "values of 4 beside keys of 2");
  GgufWriter bias = tiny();
  bias.tensor("blk.0.attn_q.bias", {4}, 0, std::string(16, '\0'));
  expect_refused(bias, Code::kUnimplemented, "'blk.0.attn_q.bias'");
  GgufWriter beyond = tiny();
  beyond.tensor("blk.1.attn_v.weight", {4, 2}, 0, std::string(32, '\0'));
  expect_refused(beyond, Code::kUnimplemented, "'blk.1.attn_v.weight'");
  GgufWriter type = tiny();
  type.tensor("blk.0.attn_v.weight", {256, 2}, 12, std::string(288, '\0'));
  expect_refused(type, Code::kUnimplemented, "blk.0.attn_v.weight is Q4_K");
  GgufWriter vector = tiny();
  vector.tensor("blk.0.attn_norm.weight", {32}, 8, std::string(34, '\0'));
  expect_refused(vector, Code::kUnimplemented, "blk.0.attn_norm.weight is Q8_0");
}

TEST(GgufCheckpoint, RefusesWrongValuesByKey) {
  for (const char* key : {"llama.embedding_length", "llama.block_count",
                          "llama.feed_forward_length", "llama.attention.head_count"}) {
    for (const uint32_t value : {0u, 1u << 31}) {
      GgufWriter writer = tiny();
      writer.u32(key, value);
      expect_refused(writer, Code::kInvalidArgument, key);
    }
    GgufWriter text = tiny();
    text.string(key, "4");
    expect_refused(text, Code::kInvalidArgument, "expected an integer");
    GgufWriter missing = tiny();
    missing.remove(key);
    expect_refused(missing, Code::kNotFound, key);
  }
  GgufWriter heads = tiny();
  heads.u32("llama.attention.head_count_kv", 3);
  expect_refused(heads, Code::kInvalidArgument, "do not divide");
  GgufWriter odd = tiny();
  odd.u32("llama.attention.key_length", 3);
  expect_refused(odd, Code::kInvalidArgument, "even");
  GgufWriter theta = tiny();
  theta.f32("llama.rope.freq_base", -1);
  expect_refused(theta, Code::kInvalidArgument, "llama.rope.freq_base");
  GgufWriter id = tiny();
  id.i32("tokenizer.ggml.eos_token_id", -3);
  expect_refused(id, Code::kInvalidArgument, "tokenizer.ggml.eos_token_id");
  GgufWriter no_embedding = tiny();
  no_embedding.remove("token_embd.weight");
  no_embedding.remove("blk.0.attn_q.weight");
  expect_refused(no_embedding, Code::kInvalidArgument, "token_embd.weight");
  GgufWriter rows = tiny();
  rows.tensor("blk.0.attn_k.weight", {4, 3}, 0, std::string(48, '\0'));
  expect_refused(rows, Code::kInvalidArgument, "whole heads of 2");
  GgufWriter rank = tiny();
  rank.tensor("blk.0.attn_v.weight", {4, 2, 1}, 0, std::string(32, '\0'));
  expect_refused(rank, Code::kInvalidArgument, "3 dimensions");
}

}  // namespace
}  // namespace deltad
