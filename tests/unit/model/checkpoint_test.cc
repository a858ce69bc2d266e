// Hugging Face folders as checkpoints: values, shards, and what is wrong with hostile ones.
#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "io/convert.h"
#include "io/safetensors.h"
#include "tensor/float16.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::deltad::testing::TempFolder;
using ::testing::HasSubstr;

std::string golden(const std::string& name) { return DELTAD_GOLDEN "/" + name; }

std::unique_ptr<Checkpoint> open(const std::string& path) {
  auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  return checkpoint.ok() ? std::move(*checkpoint) : nullptr;
}

std::string error_of(const std::string& path) {
  const auto checkpoint = Checkpoint::open(path);
  return checkpoint.ok() ? "accepted" : checkpoint.status().message();
}

// Writes a safetensors file of tensors filled with bytes.
void write_tensors(const std::string& path, const std::vector<SafetensorsWriter::Tensor>& tensors) {
  auto writer = SafetensorsWriter::create(path, {}, tensors);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (const auto& tensor : tensors) {
    const std::string bytes(static_cast<size_t>(tensor.shape.count()) * dtype_size(tensor.dtype),
                            '\1');
    ASSERT_TRUE(
        (*writer)->write(tensor.name, 0, bytes.data(), static_cast<int64_t>(bytes.size())).ok());
  }
  ASSERT_TRUE((*writer)->finish().ok());
}

TEST(Convert, AgreesWithTheScalarOnAllHalves) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(halves.size());
  std::vector<uint16_t> rounded(halves.size());
  f16_to_f32(halves.data(), floats.data(), 1 << 16);
  f16_to_bf16(halves.data(), rounded.data(), 1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) {
    const float expected = f16_to_f32(halves[i]);
    EXPECT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(expected)) << i;
    EXPECT_EQ(rounded[i], f32_to_bf16(expected)) << i;
  }
  bf16_to_f32(halves.data(), floats.data(), 1 << 16);
  f32_to_bf16(floats.data(), rounded.data(), 1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(floats[i]), static_cast<uint32_t>(i) << 16);
    if (!std::isnan(floats[i])) {
      EXPECT_EQ(rounded[i], i);
    } else {
      EXPECT_TRUE(std::isnan(bf16_to_f32(rounded[i]))) << i;
    }
  }
}

TEST(Convert, RoundsToNearestEven) {
  const std::vector<std::pair<uint32_t, uint16_t>> cases = {
      {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
      {0x3f817fff, 0x3f81}, {0x7f7fffff, 0x7f80}, {0x80000001, 0x8000}, {0xff800000, 0xff80}};
  for (const auto& [bits, expected] : cases) {
    const float value = std::bit_cast<float>(bits);
    uint16_t rounded = 0;
    f32_to_bf16(&value, &rounded, 1);
    EXPECT_EQ(rounded, expected) << bits;
  }
  const float nan = std::bit_cast<float>(0x7f800001u);
  uint16_t rounded = 0;
  f32_to_bf16(&nan, &rounded, 1);
  EXPECT_TRUE(std::isnan(bf16_to_f32(rounded)));
}

TEST(HfCheckpoint, ReadsABf16Folder) {
  const auto model = open(golden("models/awkward"));
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->config().name, "awkward");
  EXPECT_EQ(open(golden("models/awkward/"))->config().name, "awkward");
  EXPECT_EQ(open(golden("models/llama/../awkward/."))->config().name, "awkward");
  EXPECT_EQ(model->gguf(), nullptr);
  EXPECT_EQ(model->tensors().size(), 3u * 9 + 3);
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  EXPECT_EQ(model->tensors().at(name).shape, (Shape{72, 100}));
  EXPECT_EQ(model->tensors().at(name).stored_type, "BF16");
  // The bytes are the file's; fp32 is the same values.
  const auto file = SafetensorsFile::open(golden("models/awkward/model.safetensors"));
  std::vector<uint16_t> stored(72 * 100), read(5 * 100);
  ASSERT_TRUE(file->read(*file->find(name), 0, 72 * 100 * 2, stored.data()).ok());
  ASSERT_TRUE(model->read_rows_bf16(name, 67, 5, read.data()).ok());
  EXPECT_EQ(std::memcmp(read.data(), stored.data() + 67 * 100, read.size() * 2), 0);
  std::vector<float> floats(72 * 100);
  ASSERT_TRUE(model->read_rows_f32(name, 0, 72, floats.data()).ok());
  for (size_t i = 0; i < floats.size(); ++i) EXPECT_EQ(floats[i], bf16_to_f32(stored[i]));
  EXPECT_THAT(model->text_file("generation_config.json"), HasSubstr("eos_token_id"));
  EXPECT_EQ(model->text_file("tokenizer.json"), "");
  EXPECT_EQ(model->text_file("model.safetensors"), "");
  EXPECT_EQ(model->text_file("../llama/tokenizer.json"), "");
  EXPECT_NE(open(golden("models/llama"))->text_file("tokenizer.json"), "");
}

TEST(HfCheckpoint, ReadsF16AndF32Exactly) {
  const auto model = open(golden("models/llama_f16"));
  ASSERT_NE(model, nullptr);
  const std::string name = "lm_head.weight";
  EXPECT_EQ(model->tensors().at(name).stored_type, "F16");
  const auto file = SafetensorsFile::open(golden("models/llama_f16/model.safetensors"));
  const size_t count = 512 * 64;
  std::vector<uint16_t> stored(count), rounded(count);
  ASSERT_TRUE(file->read(*file->find(name), 0, count * 2, stored.data()).ok());
  std::vector<float> floats(count);
  ASSERT_TRUE(model->read_rows_f32(name, 0, 512, floats.data()).ok());
  ASSERT_TRUE(model->read_rows_bf16(name, 0, 512, rounded.data()).ok());
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(floats[i], f16_to_f32(stored[i]));
    ASSERT_EQ(rounded[i], f32_to_bf16(f16_to_f32(stored[i])));
  }
}

TEST(HfCheckpoint, ConvertsTensorsLargerThanItsStaging) {
  TempFolder folder;
  std::filesystem::copy(golden("models/llama/config.json"), folder.file("config.json"));
  const int64_t rows = 3000, columns = 301;  // 3.6 MB: four blocks of staging, the last one partial
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.37f - 5e4f;
  auto writer = SafetensorsWriter::create(folder.file("model.safetensors"), {},
                                          {{"w", DType::kF32, Shape{rows, columns}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->write("w", 0, values.data(), rows * columns * 4).ok());
  ASSERT_TRUE((*writer)->finish().ok());
  const auto model = open(folder.path());
  std::vector<uint16_t> rounded(values.size());
  ASSERT_TRUE(model->read_rows_bf16("w", 7, rows - 7, rounded.data()).ok());
  for (size_t i = 0; i < static_cast<size_t>((rows - 7) * columns); ++i)
    ASSERT_EQ(rounded[i], f32_to_bf16(values[i + 7 * columns])) << i;
  std::vector<float> floats(values.size());
  ASSERT_TRUE(model->read_rows_f32("w", 0, rows, floats.data()).ok());
  EXPECT_EQ(floats, values);
}

TEST(HfCheckpoint, RefusesRowsThatAreNotThere) {
  const auto model = open(golden("models/awkward"));
  std::vector<float> out(72);
  const std::string name = "model.norm.weight";
  EXPECT_TRUE(model->read_rows_f32(name, 0, 72, out.data()).ok());
  EXPECT_TRUE(model->read_rows_f32(name, 72, 0, out.data()).ok());
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
           {72, 1}, {0, 73}, {-1, 1}, {0, -1}, {1, INT64_MAX}, {INT64_MAX, 1}})
    EXPECT_THAT(model->read_rows_f32(name, first, count, out.data()).message(), HasSubstr(name));
  EXPECT_EQ(model->read_rows_f32("none", 0, 1, out.data()).code(), Code::kNotFound);
}

class Shards : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(golden("models/llama/config.json"), folder_.file("config.json"));
    write_tensors(folder_.file("one.safetensors"), {{"a", DType::kBF16, Shape{4, 2}}});
    write_tensors(folder_.file("two.safetensors"),
                  {{"b", DType::kF32, Shape{3}}, {"c", DType::kF16, Shape{1, 1}}});
  }
  std::string with_index(const std::string& index) {
    folder_.write("model.safetensors.index.json", index);
    return error_of(folder_.path());
  }
  TempFolder folder_;
};

TEST_F(Shards, AreReadThroughTheIndex) {
  ASSERT_EQ(with_index(R"({"metadata":{},"weight_map":{"a":"one.safetensors",)"
                       R"("b":"two.safetensors","c":"two.safetensors"}})"),
            "accepted");
  const auto model = open(folder_.path());
  EXPECT_EQ(model->tensors().size(), 3u);
  EXPECT_EQ(model->tensors().at("b").shape, Shape{3});
  uint16_t values[8];
  ASSERT_TRUE(model->read_rows_bf16("a", 0, 4, values).ok());
  EXPECT_EQ(values[7], 0x0101);
}

TEST_F(Shards, MustBeWhatTheIndexSays) {
  EXPECT_THAT(with_index("{"), HasSubstr("weight_map"));
  EXPECT_THAT(with_index(R"({"weight_map":[]})"), HasSubstr("weight_map"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":7}})"), HasSubstr("tensor a"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"two.safetensors"}})"),
              HasSubstr("says that tensor a is in"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"one.safetensors","d":"one.safetensors"}})"),
              HasSubstr("says that tensor d is in"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"three.safetensors"}})"),
              HasSubstr("three.safetensors"));
  for (const char* path : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "one", ""})
    EXPECT_THAT(with_index(std::string(R"({"weight_map":{"a":")") + path + "\"}}"),
                HasSubstr("beside the index"))
        << path;
  write_tensors(folder_.file("three.safetensors"), {{"a", DType::kBF16, Shape{4, 2}}});
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"one.safetensors","b":"three.safetensors"}})"),
              HasSubstr("tensor a is in both"));
}

TEST(HfCheckpoint, NamesWhatIsMissingOrWrong) {
  TempFolder folder;
  EXPECT_THAT(error_of(folder.file("none")), HasSubstr("no model at"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("config.json"));
  EXPECT_THAT(error_of(folder.write("weights.bin", "x")), HasSubstr("expected a folder"));
  folder.write("config.json", "{}");
  EXPECT_THAT(error_of(folder.path()), HasSubstr(folder.path() + ": config.json"));
  std::filesystem::copy(golden("models/llama/config.json"), folder.file("config.json"),
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error_of(folder.path()), HasSubstr("has no weights"));
  write_tensors(folder.file("model.safetensors"), {{"ids", DType::kI64, Shape{3}}});
  EXPECT_THAT(error_of(folder.path()), HasSubstr("tensor ids is I64; expected F32"));
  write_tensors(folder.file("model.safetensors"), {{"s", DType::kF32, Shape{}}});
  EXPECT_THAT(error_of(folder.path()), HasSubstr("tensor s has the shape []"));
  write_tensors(folder.file("model.safetensors"), {{"s", DType::kF32, Shape{1, 1, 1}}});
  EXPECT_THAT(error_of(folder.path()), HasSubstr("tensor s has the shape [1, 1, 1]"));
  folder.write("model.safetensors", "short");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("model.safetensors has 5 bytes"));
}

TEST(HfCheckpoint, ATiedHeadIsNoTensorOfItsOwn) {
  TempFolder folder;
  std::filesystem::copy(golden("models/llama/config.json"), folder.file("config.json"));
  write_tensors(folder.file("model.safetensors"),
                {{"lm_head.weight", DType::kBF16, Shape{512, 64}},
                 {"model.embed_tokens.weight", DType::kBF16, Shape{512, 64}},
                 {"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, Shape{8}}});
  const auto model = open(folder.path());
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->tensors().size(), 1u);
  EXPECT_TRUE(model->config().tied_head);
}

}  // namespace
}  // namespace deltad
