// Compression of whole fine-tunes, against files made by an independent implementation.
#include "delta/compress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "delta/delta_file.h"
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

std::string golden(const std::string& path) { return std::string(DELTAD_GOLDEN) + "/" + path; }

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

}  // namespace
}  // namespace deltad
