// Loading a base into a backend that records what it is given.
#include "model/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "io/safetensors.h"
#include "tests/support/recording_backend.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::deltad::testing::RecordingBackend;
using ::deltad::testing::TempFolder;
using ::testing::HasSubstr;

std::string golden(const std::string& name) { return DELTAD_GOLDEN "/" + name; }

std::unique_ptr<Checkpoint> open(const std::string& path) {
  auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  return checkpoint.ok() ? std::move(*checkpoint) : nullptr;
}

class LoadedModel : public ::testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(LoadedModel, HasEveryRow) {
  const auto [path, threads] = GetParam();
  const auto model = open(golden(path));
  ASSERT_NE(model, nullptr);
  const WeightTable table = make_weight_table(model->config());
  RecordingBackend backend;
  int64_t last = 0, total = 0;
  const Status status = load_base(*model, table, backend, threads, [&](int64_t done, int64_t of) {
    EXPECT_GT(done, last);
    last = done;
    total = of;
  });
  ASSERT_TRUE(status.ok()) << status.message();
  int64_t bytes = 0;
  for (const auto& [name, tensor] : model->tensors()) {
    std::vector<uint16_t> expected(static_cast<size_t>(tensor.shape.count()));
    ASSERT_TRUE(model->read_rows_bf16(name, 0, tensor.shape[0], expected.data()).ok());
    const auto place = table.by_name.at(name);
    EXPECT_EQ(backend.part(place.weight, place.part), expected) << name;
    bytes += tensor.shape.count() * 2;
  }
  EXPECT_EQ(last, bytes);
  EXPECT_EQ(total, bytes);
}

INSTANTIATE_TEST_SUITE_P(Forms, LoadedModel,
                         ::testing::Values(std::pair("models/llama", 1),
                                           std::pair("models/awkward", 3),
                                           std::pair("models/llama_f16", 4),
                                           std::pair("gguf/llama-q4_1.gguf", 2),
                                           std::pair("gguf/llama-bf16.gguf", 0)));

// A one-layer model whose tensors a test may spoil; the embedding is larger than one block of
// staging.
class MadeModel : public ::testing::Test {
 protected:
  static constexpr int64_t kHidden = 64, kVocab = 20'000;

  void SetUp() override {
    folder_.write("config.json", R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,
      "num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":24,"vocab_size":20000,
      "tie_word_embeddings":true})");
    const std::string block = "model.layers.0.";
    shapes_ = {{"model.embed_tokens.weight", Shape{kVocab, kHidden}},
               {"model.norm.weight", Shape{kHidden}},
               {block + "input_layernorm.weight", Shape{kHidden}},
               {block + "post_attention_layernorm.weight", Shape{kHidden}},
               {block + "mlp.gate_proj.weight", Shape{24, kHidden}},
               {block + "mlp.up_proj.weight", Shape{24, kHidden}},
               {block + "mlp.down_proj.weight", Shape{kHidden, 24}}};
    for (const char* kind : {"q", "k", "v", "o"})
      shapes_[block + "self_attn." + kind + "_proj.weight"] = Shape{kHidden, kHidden};
  }

  // Writes the model as F32, with one value of one tensor set.
  void write(const std::string& special = "", int64_t at = 0, float value = 0) {
    std::vector<SafetensorsWriter::Tensor> tensors;
    for (const auto& [name, shape] : shapes_) tensors.push_back({name, DType::kF32, shape});
    auto writer = SafetensorsWriter::create(folder_.file("model.safetensors"), {}, tensors);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (const auto& [name, shape] : shapes_) {
      std::vector<float> values(static_cast<size_t>(shape.count()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000) * 1e-3f;
      if (name == special) values[static_cast<size_t>(at)] = value;
      ASSERT_TRUE((*writer)->write(name, 0, values.data(), shape.count() * 4).ok());
    }
    ASSERT_TRUE((*writer)->finish().ok());
  }

  Status load(int threads = 2) {
    const auto model = open(folder_.path());
    if (model == nullptr) return internal_error("not opened");
    return load_base(*model, make_weight_table(model->config()), backend_, threads, nullptr);
  }

  TempFolder folder_;
  std::map<std::string, Shape> shapes_;
  RecordingBackend backend_;
};

TEST_F(MadeModel, LargeTensorsComeInBlocks) {
  write();
  ASSERT_TRUE(load().ok());
  EXPECT_LE(backend_.most_rows() * kHidden * 2, int64_t{2} << 20);
  EXPECT_LT(backend_.most_rows(), kVocab);
  const auto embedding = backend_.part(0, 0);
  EXPECT_EQ(embedding.size(), static_cast<size_t>(kVocab * kHidden));
}

TEST_F(MadeModel, MissingTensorsAreNamed) {
  shapes_.erase("model.layers.0.mlp.up_proj.weight");
  write();
  const Status status = load();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(folder_.path()));
  EXPECT_THAT(
      status.message(),
      HasSubstr("lacks the tensor model.layers.0.mlp.up_proj.weight; expected shape [24, 64]"));
  EXPECT_EQ(backend_.calls(), 0);
}

TEST_F(MadeModel, MisshapenTensorsAreNamed) {
  for (const Shape& shape : {Shape{kHidden, 23}, Shape{24, kHidden}, Shape{kHidden * 24}}) {
    shapes_["model.layers.0.mlp.down_proj.weight"] = shape;
    write();
    EXPECT_THAT(load().message(),
                HasSubstr("tensor model.layers.0.mlp.down_proj.weight has the shape " +
                          shape.str() + "; expected [64, 24]"));
  }
  shapes_["model.layers.0.mlp.down_proj.weight"] = Shape{kHidden, 24};
  shapes_["model.norm.weight"] = Shape{1, kHidden};
  write();
  EXPECT_THAT(load().message(), HasSubstr("tensor model.norm.weight has the shape [1, 64]"));
  EXPECT_EQ(backend_.calls(), 0);
}

TEST_F(MadeModel, ValuesThatAreNotFiniteAreNamed) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value :
       {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 3.4e38f}) {
    RecordingBackend backend;
    write("model.embed_tokens.weight", 19'999 * kHidden + 63, value);
    const auto model = open(folder_.path());
    const Status status =
        load_base(*model, make_weight_table(model->config()), backend, 2, nullptr);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr("tensor model.embed_tokens.weight has a value in row 19999"));
  }
  write("model.embed_tokens.weight", 7, 3.38e38f);
  EXPECT_TRUE(load().ok());
}

TEST_F(MadeModel, ABackendsErrorEndsTheLoad) {
  write();
  backend_.fail_after(3);
  const Status status = load(3);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(), "no room");
  EXPECT_LE(backend_.calls(), 6) << "each of three threads stops at its first error";
}

TEST_F(MadeModel, ABackendWithoutMemoryIsNotGivenRows) {
  write();
  backend_.refuse_declaration();
  EXPECT_EQ(load().message(), "no memory for the weights");
  EXPECT_EQ(backend_.calls(), 0);
}

TEST_F(MadeModel, AFileCutShortWhileLoadingIsAnError) {
  write();
  const auto model = open(folder_.path());
  std::filesystem::resize_file(folder_.file("model.safetensors"), 100'000);
  const Status status = load_base(*model, make_weight_table(model->config()), backend_, 2, nullptr);
  EXPECT_THAT(status.message(), HasSubstr("was cut short"));
}

}  // namespace
}  // namespace deltad
