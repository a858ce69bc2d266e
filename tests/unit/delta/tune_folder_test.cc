// Variants and adapters written as models, against W + Σ α·sign and W + s·BA computed from the
// files the plain way.
#include "delta/tune_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "delta/delta_file.h"
#include "delta/float_codec.h"
#include "raw_file.h"
#include "tensor/float16.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::RawFile;
using testing::RawTensor;
using testing::TempFolder;

std::string golden(const std::string& path) { return DELTAD_GOLDEN "/" + path; }

std::vector<float> values_of(const RawTensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.shape.count()));
  widen(tensor.dtype, tensor.shape.count(), tensor.bytes.data(), out.data());
  return out;
}

class TuneFolderTest : public ::testing::Test {
 protected:
  Result<TuneFolderReport> run(const std::string& base, const std::string& delta, DType dtype) {
    auto checkpoint = Checkpoint::open(golden("models/" + base));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    ASSIGN_OR_RETURN(const std::unique_ptr<Tune> tune, open_tune(**checkpoint, delta));
    TuneFolderOptions options;
    options.dtype = dtype;
    options.text_path = delta;
    options.jobs = 2;
    return write_tune_folder(**checkpoint, *tune, folder_.file("out"), options);
  }

  // W + Σ α·sign of one weight.
  static double effective(const RawFile& base, const RawFile& delta, const std::string& name,
                          int64_t row, int64_t column) {
    const RawTensor& w = base.tensors.at(name);
    const int64_t columns = w.shape[1], row_bytes = (columns + 7) / 8;
    double sum =
        bf16_to_f32(reinterpret_cast<const uint16_t*>(w.bytes.data())[row * columns + column]);
    for (int level = 0; delta.tensors.count(sign_name(name, level)) != 0; ++level) {
      const std::string& bits = delta.tensors.at(sign_name(name, level)).bytes;
      const RawTensor& alpha = delta.tensors.at(alpha_name(name, level));
      const float step =
          reinterpret_cast<const float*>(alpha.bytes.data())[alpha.shape[0] == 1 ? 0 : row];
      const bool plus =
          (bits[static_cast<size_t>(row * row_bytes + column / 8)] >> (column % 8)) & 1;
      sum += plus ? static_cast<double>(step) : -static_cast<double>(step);
    }
    return sum;
  }

  TempFolder folder_;
};

TEST_F(TuneFolderTest, WeightsAreTheSumRoundedOnce) {
  const RawFile base = testing::read_raw(golden("models/awkward/model.safetensors"));
  for (const char* kind : {"row-1", "row-2", "matrix-1", "matrix-2"}) {
    // An α far below most weights' last bf16 digit, so that rounding loses some.
    RawFile delta =
        testing::read_raw(golden("variants/awkward/awkward-") + kind + ".delta.safetensors");
    for (auto& [name, tensor] : delta.tensors) {
      if (place_of_tensor(name).role != TensorRole::kAlpha) continue;
      auto* alpha = reinterpret_cast<float*>(tensor.bytes.data());
      for (int64_t i = 0; i < tensor.shape[0]; ++i) alpha[i] *= 0.02f;
    }
    delta.metadata["digest"] = testing::digest_of(delta);
    const std::string path = folder_.file("v.delta.safetensors");
    testing::write_raw(path, delta);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(std::string(kind) + " " + dtype_name(dtype));
      auto report = run("awkward", path, dtype);
      ASSERT_TRUE(report.ok()) << report.status().message();
      const RawFile out = testing::read_raw(folder_.file("out/model.safetensors"));
      EXPECT_EQ(out.metadata.at("format"), "pt");
      ASSERT_EQ(out.tensors.size(), base.tensors.size());
      int64_t lost = 0, changed = 0;
      for (const auto& [name, tensor] : base.tensors) {
        const RawTensor& found = out.tensors.at(name);
        EXPECT_EQ(found.dtype, dtype) << name;
        ASSERT_TRUE(found.shape == tensor.shape) << name;
        const std::vector<float> values = values_of(found), before = values_of(tensor);
        if (delta.tensors.count(sign_name(name, 0)) == 0) {
          const auto dense = delta.tensors.find(name);
          EXPECT_EQ(values, dense == delta.tensors.end() ? before : values_of(dense->second))
              << name;
          continue;
        }
        const int64_t columns = tensor.shape[1];
        for (int64_t i = 0; i < tensor.shape.count(); ++i) {
          const double exact = effective(base, delta, name, i / columns, i % columns);
          const float value = values[static_cast<size_t>(i)];
          if (dtype == DType::kF32) {
            ASSERT_EQ(value, static_cast<float>(exact)) << name;
            continue;
          }
          // Nearest: no neighbour in bf16 is nearer.
          const uint16_t bits = f32_to_bf16(value);
          for (const int step : {-1, 1}) {
            const float neighbour = bf16_to_f32(static_cast<uint16_t>(bits + step));
            ASSERT_LE(std::fabs(static_cast<double>(value) - exact),
                      std::fabs(static_cast<double>(neighbour) - exact))
                << name;
          }
          lost += value == before[static_cast<size_t>(i)] &&
                  exact != static_cast<double>(before[static_cast<size_t>(i)]);
          ++changed;
        }
      }
      if (dtype == DType::kBF16) {
        EXPECT_EQ(report->lost, lost);
        EXPECT_EQ(report->weights, changed);
        EXPECT_GT(lost, 0);
      } else {
        EXPECT_EQ(report->lost, 0);
      }
    }
  }
}

TEST_F(TuneFolderTest, TheFolderIsAModelWithTheSameMeaning) {
  ASSERT_TRUE(
      run("awkward", golden("variants/awkward/awkward-row-1.delta.safetensors"), DType::kF32).ok());
  auto made = Checkpoint::open(folder_.file("out"));
  ASSERT_TRUE(made.ok()) << made.status().message();
  auto base = Checkpoint::open(golden("models/awkward"));
  ASSERT_TRUE(base.ok());
  EXPECT_EQ((*made)->tensors().size(), (*base)->tensors().size());
  EXPECT_EQ((*made)->config().vocab, 509);
  EXPECT_EQ((*made)->config().eos_ids, (*base)->config().eos_ids);
  EXPECT_EQ((*made)->config().tied_head, (*base)->config().tied_head);
  const auto config = nlohmann::json::parse(testing::slurp(folder_.file("out/config.json")));
  EXPECT_EQ(config.value("torch_dtype", config.value("dtype", "")), "float32");
}

TEST_F(TuneFolderTest, MoreTokensAndAHeadOfItsOwn) {
  const std::string path = golden("variants/llama_vocab/llama_vocab-row-1.delta.safetensors");
  auto report = run("llama", path, DType::kBF16);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const RawFile out = testing::read_raw(folder_.file("out/model.safetensors"));
  const RawFile delta = testing::read_raw(path);
  EXPECT_TRUE(out.tensors.at("lm_head.weight") == delta.tensors.at("lm_head.weight"));
  EXPECT_TRUE(out.tensors.at("model.embed_tokens.weight") ==
              delta.tensors.at("model.embed_tokens.weight"));
  const auto config = nlohmann::json::parse(testing::slurp(folder_.file("out/config.json")));
  EXPECT_EQ(config["vocab_size"], 518);
  EXPECT_EQ(config["tie_word_embeddings"], false);
  auto made = Checkpoint::open(folder_.file("out"));
  ASSERT_TRUE(made.ok()) << made.status().message();
}

TEST_F(TuneFolderTest, AnAdapterIsAddedToItsBase) {
  auto base = Checkpoint::open(golden("models/llama"));
  ASSERT_TRUE(base.ok());
  auto tune = open_tune(**base, golden("lora/plain.gguf"));
  ASSERT_TRUE(tune.ok()) << tune.status().message();
  auto report = run("llama", golden("lora/plain.gguf"), DType::kF32);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->lost, 0);
  const RawFile out = testing::read_raw(folder_.file("out/model.safetensors"));
  int64_t weights = 0;
  for (const auto& [name, tensor] : (*tune)->tensors()) {
    const int64_t n = tensor.shape.count();
    std::vector<uint16_t> before(static_cast<size_t>(n));
    std::vector<double> delta(before.size());
    ASSERT_TRUE((*base)->read_rows_bf16(name, 0, tensor.shape[0], before.data()).ok());
    ASSERT_TRUE((*tune)->delta_rows(name, 0, tensor.shape[0], before.data(), delta.data()).ok());
    const std::vector<float> values = values_of(out.tensors.at(name));
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i],
                static_cast<float>(static_cast<double>(bf16_to_f32(before[i])) + delta[i]));
    weights += n;
  }
  EXPECT_EQ(report->weights, weights);
  EXPECT_GT(run("llama", golden("lora/plain.gguf"), DType::kBF16)->lost, 0);
}

TEST_F(TuneFolderTest, TunedRowsAreTheSumRoundedOnce) {
  const auto base = std::move(*Checkpoint::open(golden("models/llama")));
  for (const char* path : {"variants/llama/finetune", "lora/plain.gguf",
                           "variants/llama/llama-row-2.delta.safetensors"}) {
    SCOPED_TRACE(path);
    const auto tune = std::move(*open_tune(*base, golden(path)));
    for (const auto& [name, tensor] : tune->tensors()) {
      if (!tensor.as_delta) continue;
      const int64_t rows = tensor.shape[0] - 3;
      std::vector<uint16_t> before(static_cast<size_t>(rows * tensor.shape[1]));
      std::vector<uint16_t> tuned(before.size());
      std::vector<double> delta(before.size());
      ASSERT_TRUE(base->read_rows_bf16(name, 3, rows, before.data()).ok());
      ASSERT_TRUE(tune->delta_rows(name, 3, rows, before.data(), delta.data()).ok());
      ASSERT_TRUE(tune->tuned_rows(*base, name, 3, rows, tuned.data()).ok());
      for (size_t i = 0; i < tuned.size(); ++i)
        ASSERT_EQ(tuned[i], f64_to_bf16(static_cast<double>(bf16_to_f32(before[i])) + delta[i]));
    }
  }
}

TEST_F(TuneFolderTest, ADamagedFileMakesNoFolder) {
  RawFile raw = testing::read_raw(golden("variants/awkward/awkward-row-1.delta.safetensors"));
  raw.tensors.begin()->second.bytes[0] ^= 1;
  const std::string path = folder_.file("bad.delta.safetensors");
  testing::write_raw(path, raw);
  auto report = run("awkward", path, DType::kBF16);
  EXPECT_THAT(report.status().message(), HasSubstr("damaged"));
  EXPECT_EQ(folder_.count(), 1);
}

}  // namespace
}  // namespace deltad
