// Compression of whole fine-tunes, against files made by an independent implementation.
#include "delta/compress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "delta/delta_file.h"
#include "delta/float_codec.h"
#include "delta/tune.h"
#include "raw_file.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::RawFile;
using testing::RawTensor;
using testing::TempFolder;

struct Case {
  const char* name;
  const char* base;
  bool row;
  int levels;
};

std::string golden(const std::string& path) { return DELTAD_GOLDEN "/" + path; }

class GoldenVariant : public ::testing::TestWithParam<Case> {};

TEST_P(GoldenVariant, HasTheReferenceBytes) {
  const Case& c = GetParam();
  auto base = Checkpoint::open(golden("models/") + c.base);
  ASSERT_TRUE(base.ok()) << base.status().message();
  auto tune = open_tuned_model(**base, golden("variants/") + c.name + "/finetune");
  ASSERT_TRUE(tune.ok()) << tune.status().message();
  TempFolder folder;
  const std::string kind = std::string(c.row ? "row" : "matrix") + "-" + std::to_string(c.levels);
  const std::string path = folder.file(c.name + std::string(".delta.safetensors"));
  for (const int jobs : {1, 3}) {
    CompressOptions options;
    options.variant = "v";
    options.created_by = "test";
    options.alpha_per_row = c.row;
    options.levels = c.levels;
    options.jobs = jobs;
    auto report = compress(**base, **tune, path, options);
    ASSERT_TRUE(report.ok()) << report.status().message();

    const RawFile ours = testing::read_raw(path);
    const RawFile theirs = testing::read_raw(golden("variants/") + c.name + "/" + c.name + "-" +
                                             kind + ".delta.safetensors");
    EXPECT_EQ(ours.tensors.size(), theirs.tensors.size());
    for (const auto& [name, tensor] : theirs.tensors) {
      ASSERT_TRUE(ours.tensors.count(name)) << name;
      EXPECT_TRUE(ours.tensors.at(name) == tensor) << name;
    }
    for (const char* key :
         {"digest", "base_digest", "alpha", "levels", "architecture", "format", "version"})
      EXPECT_EQ(ours.metadata.at(key), theirs.metadata.at(key)) << key;
    EXPECT_EQ(report->digest, theirs.metadata.at("digest"));
    EXPECT_EQ(report->base_digest, theirs.metadata.at("base_digest"));
    EXPECT_EQ(folder.count(), 1) << "something was left beside the file";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GoldenVariant,
    ::testing::Values(Case{"llama", "llama", false, 1}, Case{"llama", "llama", false, 2},
                      Case{"llama", "llama", true, 1}, Case{"llama", "llama", true, 2},
                      Case{"llama_vocab", "llama", true, 1}, Case{"llama_vocab", "llama", false, 2},
                      Case{"awkward", "awkward", false, 1}, Case{"awkward", "awkward", false, 2},
                      Case{"awkward", "awkward", true, 1}, Case{"awkward", "awkward", true, 2}),
    [](const auto& info) {
      return std::string(info.param.name) + (info.param.row ? "_row_" : "_matrix_") +
             std::to_string(info.param.levels);
    });

// A copy of the awkward model (or its fine-tune) with changes.
class CompressTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto base = Checkpoint::open(golden("models/awkward"));
    ASSERT_TRUE(base.ok()) << base.status().message();
    base_ = std::move(*base);
  }

  std::string changed_model(const std::string& from, const std::function<void(RawFile*)>& change,
                            const std::string& config_from = "",
                            const std::string& config_to = "") {
    RawFile raw = testing::read_raw(golden(from) + "/model.safetensors");
    change(&raw);
    const std::string folder = folder_.file("m" + std::to_string(models_++));
    std::filesystem::create_directories(folder);
    testing::write_raw(folder + "/model.safetensors", raw);
    std::string config = testing::slurp(golden(from) + "/config.json");
    if (!config_from.empty()) {
      const size_t at = config.find(config_from);
      EXPECT_NE(at, std::string::npos) << config_from;
      config.replace(at, config_from.size(), config_to);
    }
    std::ofstream(folder + "/config.json") << config;
    return folder;
  }
  static CompressOptions options(bool row = true, int levels = 1) {
    CompressOptions out;
    out.variant = "v";
    out.alpha_per_row = row;
    out.levels = levels;
    out.jobs = 2;
    return out;
  }
  Status refused(const std::string& model) {
    auto tune = open_tuned_model(*base_, model);
    if (!tune.ok()) return tune.status();
    return compress(*base_, **tune, folder_.file("out.delta.safetensors"), options()).status();
  }

  TempFolder folder_;
  std::unique_ptr<Checkpoint> base_;
  int models_ = 0;
};

// Values of a bf16 tensor, and back.
std::vector<float> bf16_values(const RawTensor& tensor) {
  std::vector<float> out(tensor.bytes.size() / 2);
  widen(DType::kBF16, static_cast<int64_t>(out.size()), tensor.bytes.data(), out.data());
  return out;
}

TEST_F(CompressTest, ReportsWhatItCosts) {
  auto tune = open_tuned_model(*base_, golden("variants/awkward/finetune"));
  ASSERT_TRUE(tune.ok()) << tune.status().message();
  const std::string path = folder_.file("v.delta.safetensors");
  for (const bool row : {true, false}) {
    auto report = compress(*base_, **tune, path, options(row, 2));
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_THAT(report->kinds, ::testing::SizeIs(7));
    EXPECT_EQ(report->kinds[0].kind, "q_proj");
    // The same numbers from the files, the plain way.
    const RawFile base = testing::read_raw(golden("models/awkward/model.safetensors"));
    const RawFile tuned = testing::read_raw(golden("variants/awkward/finetune/model.safetensors"));
    const RawFile delta = testing::read_raw(path);
    double delta2 = 0, base2 = 0, error2 = 0, zeros = 0, count = 0, bytes = 0;
    for (const auto& [name, tensor] : tuned.tensors) {
      if (!is_block_matrix(name)) continue;
      const std::vector<float> w = bf16_values(base.tensors.at(name)), f = bf16_values(tensor);
      const int64_t columns = tensor.shape[1], row_bytes = (columns + 7) / 8;
      for (int level = 0; level < 2; ++level)
        bytes += static_cast<double>(delta.tensors.at(sign_name(name, level)).bytes.size() +
                                     delta.tensors.at(alpha_name(name, level)).bytes.size());
      for (int64_t i = 0; i < tensor.shape.count(); ++i) {
        const double d = static_cast<double>(f[static_cast<size_t>(i)]) -
                         static_cast<double>(w[static_cast<size_t>(i)]);
        double rest = d;
        for (int level = 0; level < 2; ++level) {
          const std::string& bits = delta.tensors.at(sign_name(name, level)).bytes;
          const auto* alpha = reinterpret_cast<const float*>(
              delta.tensors.at(alpha_name(name, level)).bytes.data());
          const int64_t r = i / columns, c = i % columns;
          const bool plus = (bits[static_cast<size_t>(r * row_bytes + c / 8)] >> (c % 8)) & 1;
          rest -= (plus ? 1.0 : -1.0) * static_cast<double>(alpha[row ? r : 0]);
        }
        delta2 += d * d;
        base2 += static_cast<double>(w[static_cast<size_t>(i)]) *
                 static_cast<double>(w[static_cast<size_t>(i)]);
        error2 += rest * rest;
        zeros += d == 0;
        ++count;
      }
    }
    EXPECT_NEAR(report->total.relative_delta(), std::sqrt(delta2 / base2), 1e-12);
    EXPECT_NEAR(report->total.relative_error(), std::sqrt(error2 / delta2), 1e-12);
    EXPECT_NEAR(report->total.zero_share(), zeros / count, 1e-12);
    EXPECT_EQ(static_cast<double>(report->total.bytes), bytes);
    EXPECT_NEAR(report->total.ratio(), 2 * count / bytes, 1e-12);
    EXPECT_EQ(report->suggested_levels, 0);
    EXPECT_EQ(report->digest, delta.metadata.at("digest"));
  }
}

TEST_F(CompressTest, ASparseChangeSuggestsMoreLevels) {
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const std::string model = changed_model("models/awkward", [&](RawFile* raw) {
    std::string& bytes = raw->tensors.at(name).bytes;
    for (size_t i = 0; i < bytes.size(); i += 40)
      bytes[i + 1] = static_cast<char>(bytes[i + 1] ^ 0x80);
  });
  auto tune = open_tuned_model(*base_, model);
  ASSERT_TRUE(tune.ok()) << tune.status().message();
  auto report = compress(*base_, **tune, folder_.file("v.delta.safetensors"), options());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->suggested_levels, 2);
  EXPECT_THAT(report->large_errors, ::testing::ElementsAre("up_proj"));
  EXPECT_NEAR(report->total.zero_share(), 0.95, 0.001);
  EXPECT_EQ(report->total.matrices, 1);
  EXPECT_EQ(report->dense_tensors, 0);
  EXPECT_EQ(report->equal_tensors, static_cast<int64_t>(base_->tensors().size()) - 1);
}

TEST_F(CompressTest, CarriedTensorsKeepTheirType) {
  const char* norm = "model.norm.weight";
  for (const DType type : {DType::kF32, DType::kF16}) {
    RawTensor expected;
    const std::string model = changed_model("models/awkward", [&](RawFile* raw) {
      std::vector<float> values = bf16_values(raw->tensors.at(norm));
      values[1] = type == DType::kF32 ? 0.1f : 0x1.23p-20f;  // beyond bf16
      values[2] = -0.0f;
      values[3] = 1.0009765625f;
      expected = {type, Shape{72}, std::string(72 * dtype_size(type), 0)};
      narrow(type, 72, values.data(), expected.bytes.data());
      raw->tensors[norm] = expected;
    });
    auto tune = open_tuned_model(*base_, model);
    ASSERT_TRUE(tune.ok()) << tune.status().message();
    const std::string path = folder_.file("v.delta.safetensors");
    ASSERT_TRUE(compress(*base_, **tune, path, options()).ok());
    const RawFile delta = testing::read_raw(path);
    ASSERT_EQ(delta.tensors.size(), 1u);
    EXPECT_TRUE(delta.tensors.at(norm) == expected);
  }
}

TEST_F(CompressTest, AModelThatDiffersInNothingIsRefused) {
  EXPECT_THAT(refused(golden("models/awkward")).message(), HasSubstr("no tensor differs"));
}

TEST_F(CompressTest, NumbersThatAreNone) {
  for (const char* name : {"model.layers.2.mlp.down_proj.weight", "model.norm.weight"}) {
    for (const char* bits : {"\xc0\x7f", "\x80\x7f", "\x80\xff"}) {
      const Status status = refused(changed_model("models/awkward", [&](RawFile* raw) {
        raw->tensors.at(name).bytes.replace(60, 2, bits, 2);
      }));
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_THAT(status.message(), ::testing::AllOf(HasSubstr(name), HasSubstr("finite")));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out.delta.safetensors")));
}

TEST_F(CompressTest, ModelsThatDoNotFitTheBase) {
  const auto same = [](RawFile*) {};
  EXPECT_THAT(refused(golden("models/llama")).message(), HasSubstr("expected the base's, 72"));
  EXPECT_THAT(refused(changed_model("models/awkward", same, "\"rope_theta\": 10000.0",
                                    "\"rope_theta\": 20000.0"))
                  .message(),
              HasSubstr("rope_theta is 20000"));
  EXPECT_THAT(refused(changed_model("models/awkward",
                                    [](RawFile* raw) { raw->tensors.erase("model.norm.weight"); }))
                  .message(),
              HasSubstr("model.norm.weight"));
  EXPECT_THAT(
      refused(changed_model(
                  "models/awkward",
                  [](RawFile* raw) {
                    raw->tensors.at("model.layers.0.mlp.up_proj.weight").shape = Shape{72, 100};
                  }))
          .message(),
      HasSubstr("model.layers.0.mlp.up_proj.weight"));
}

// A head that the base ties and the fine-tune does not, and the other way round.
TEST_F(CompressTest, HeadsThatPart) {
  const std::string tied_folder = changed_model(
      "models/awkward", [](RawFile* raw) { raw->tensors.erase("lm_head.weight"); },
      "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  auto tied = Checkpoint::open(tied_folder);
  ASSERT_TRUE(tied.ok()) << tied.status().message();
  const std::string path = folder_.file("v.delta.safetensors");
  auto apart = open_tuned_model(**tied, golden("models/awkward"));
  ASSERT_TRUE(apart.ok()) << apart.status().message();
  ASSERT_TRUE(compress(**tied, **apart, path, options()).ok());
  auto delta = DeltaFile::open(path);
  ASSERT_TRUE(delta.ok());
  EXPECT_EQ(delta->head_source(true), HeadSource::kFileHead);
  EXPECT_EQ(delta->file().tensors().size(), 1u);

  auto together = open_tuned_model(*base_, tied_folder);
  ASSERT_TRUE(together.ok()) << together.status().message();
  ASSERT_TRUE(compress(*base_, **together, path, options()).ok());
  delta = DeltaFile::open(path);
  ASSERT_TRUE(delta.ok());
  // The embeddings are the base's, but they have to be there for the head to follow.
  EXPECT_EQ(delta->head_source(false), HeadSource::kFileEmbeddings);
  EXPECT_EQ(delta->file().tensors().size(), 1u);
}

TEST_F(CompressTest, AFullDiskLeavesTheOldFile) {
  auto tune = open_tuned_model(*base_, golden("variants/awkward/finetune"));
  ASSERT_TRUE(tune.ok());
  const std::string path = folder_.write("v.delta.safetensors", "the old file");
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 4096, old.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = compress(*base_, **tune, path, options()).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr(path));
  EXPECT_EQ(testing::slurp(path), "the old file");
  EXPECT_EQ(folder_.count(), 1) << "something was left beside the file";
}

}  // namespace
}  // namespace deltad
