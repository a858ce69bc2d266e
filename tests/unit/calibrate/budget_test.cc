// Calibrated compression under a budget: its bytes, and what it buys with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "calibrate/calibrated_fitter.h"
#include "delta/delta_file.h"
#include "delta/low_rank_part.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/calibrate/tiny_fit.h"
#include "tests/unit/delta/raw_file.h"

namespace deltad {
namespace {

using testing::compress_tiny;
using testing::Compressed;
using testing::kBase;
using testing::kTuned;
using testing::output_errors;
using testing::OutputErrors;
using testing::random_text;
using testing::TempFolder;
using testing::total;

// What low-rank parts take of a budget is theirs of the matrices that the file holds, not of all.
TEST(Budget, ABudgetCountsTheMatricesThatTheFineTuneChanges) {
  const auto base = std::move(*Checkpoint::open(kBase));
  const CalibrationSet set = random_text(base->config().vocab);
  TempFolder folder;
  const std::string model = folder.file("model");
  std::filesystem::copy(kTuned, model);
  testing::RawFile raw = testing::read_raw(model + "/model.safetensors");
  const testing::RawFile of_base = testing::read_raw(kBase + "/model.safetensors");
  int64_t level = 0, weights = 0, factors = 0, least = INT64_MAX;
  CalibrationOptions options;
  options.residual_rank = 2;
  for (auto& [name, tensor] : raw.tensors) {
    if (name.find("self_attn") == std::string::npos) {
      tensor = of_base.tensors.at(name);
      continue;
    }
    if (tensor.shape.rank() != 2) continue;
    const int64_t bytes = tensor.shape[0] * ((tensor.shape[1] + 7) / 8 + 4);
    level += bytes;
    least = std::min(least, bytes);
    weights += tensor.shape.count();
    factors += options.residual_rank * low_rank_row_bytes(tensor.shape[1], tensor.shape[0]);
  }
  testing::write_raw(model + "/model.safetensors", raw);
  const auto tune = std::move(*open_tuned_model(*base, model));
  // To the byte: room for the low-rank parts and for one level of all matrices.
  options.budget = LevelBudget{0, level + factors};
  const Compressed made =
      compress_tiny(*base, *tune, set, options, folder.file("v.delta.safetensors"));
  EXPECT_EQ(made.report.total.weights, weights);
  EXPECT_LE(made.report.total.bytes, level + factors);
  EXPECT_GT(made.report.total.bytes, level + factors - least) << "room was left";
  options.budget = LevelBudget{0, least + factors - 1};
  const Status status = CalibratedFitter::make(*base, *tune, set, options).status();
  EXPECT_EQ(status.message(),
            "a budget of " + std::to_string(least + factors - 1) +
                " bytes, of which low-rank parts take " + std::to_string(factors) +
                ", has no room for any matrix's signs: the smallest matrix's take " +
                std::to_string(least));
  options.budget = LevelBudget{0, least + factors};
  EXPECT_TRUE(CalibratedFitter::make(*base, *tune, set, options).ok());
}

TEST(Budget, ABudgetIsKeptAndLiesBetweenEvenSpreads) {
  const auto base = std::move(*Checkpoint::open(kBase));
  const auto tune = std::move(*open_tuned_model(*base, kTuned));
  const CalibrationSet set = random_text(base->config().vocab);
  TempFolder folder;
  const std::string path = folder.file("v.delta.safetensors");
  CalibrationOptions even;
  const Compressed one = compress_tiny(*base, *tune, set, even, path);
  even.levels = 2;
  const Compressed two = compress_tiny(*base, *tune, set, even, path);
  CalibrationOptions options;
  options.budget = *LevelBudget::parse("1.5bit");
  const Compressed planned = compress_tiny(*base, *tune, set, options, path);
  EXPECT_LE(planned.report.total.bytes, 3 * one.report.total.bytes / 2);
  EXPECT_EQ(planned.report.total.matrices, two.report.total.matrices);
  const double kl = planned.fitter->report().heads.variant.kl;
  EXPECT_LT(kl, one.fitter->report().heads.variant.kl);
  EXPECT_GT(kl, two.fitter->report().heads.variant.kl);
  auto file = DeltaFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::set<size_t> levels;
  for (const auto& [name, of] : file->matrices()) levels.insert(of.size());
  EXPECT_GT(levels.size(), 1u) << "all matrices have as many";
  // A low-rank part is counted too.
  options.residual_rank = 2;
  const Compressed both = compress_tiny(*base, *tune, set, options, path);
  EXPECT_LE(both.report.total.bytes, 3 * one.report.total.bytes / 2);
  file = DeltaFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(static_cast<int64_t>(file->low_rank().size()), both.report.total.matrices);
  int64_t bytes = 0;
  for (const auto& [name, entry] : file->file().tensors()) bytes += entry.bytes;
  EXPECT_EQ(bytes, both.report.file_bytes);
  options.residual_rank = 0;
  options.budget = LevelBudget{0, 10};
  EXPECT_EQ(CalibratedFitter::make(*base, *tune, set, options).status().code(),
            Code::kInvalidArgument);
}

// What a fine-tune has of each kind: its MLP's matrices are the base's plus a few strong directions
// and a little noise, k_proj is the base's, and the rest is dense noise.
std::string with_directions(const TempFolder& folder) {
  const std::string model = folder.file("tuned");
  std::filesystem::copy(kTuned, model);
  testing::RawFile raw = testing::read_raw(model + "/model.safetensors");
  const testing::RawFile of_base = testing::read_raw(kBase + "/model.safetensors");
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (auto& [name, tensor] : raw.tensors) {
    if (name.find("k_proj") != std::string::npos) tensor = of_base.tensors.at(name);
    if (name.find("mlp") == std::string::npos) continue;
    tensor = of_base.tensors.at(name);
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    auto* values = reinterpret_cast<uint16_t*>(tensor.bytes.data());
    for (int direction = 0; direction < 3; ++direction) {
      std::vector<float> u(static_cast<size_t>(rows)), v(static_cast<size_t>(columns));
      for (float& x : u) x = normal(random);
      for (float& x : v) x = normal(random);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          uint16_t& value = values[r * columns + c];
          value = f32_to_bf16(bf16_to_f32(value) +
                              0.01f * u[static_cast<size_t>(r)] * v[static_cast<size_t>(c)] +
                              0.001f * normal(random));
        }
    }
  }
  testing::write_raw(model + "/model.safetensors", raw);
  return model;
}

struct Bought {
  Compressed made;
  std::map<std::string, int64_t> ranks;  // by weight
  std::string version;
  // Of the outputs on the calibration text: the mean share of ‖XΔ‖², every weight counting alike.
  double error = 0;
};

class BoughtRanks : public ::testing::Test {
 protected:
  BoughtRanks() {
    tune_ = std::move(*open_tuned_model(*base_, with_directions(folder_)));
    whole_ = output_errors(*base_, *tune_, set_, "");
  }

  Bought buy(const std::string& budget, bool ranks, bool alpha_per_row = true) {
    CalibrationOptions options;
    options.alpha_per_row = alpha_per_row;
    options.jobs = 2;
    if (!budget.empty()) options.budget = *LevelBudget::parse(budget);
    options.budget_buys_rank = ranks;
    Bought bought;
    const std::string path = folder_.file("v.delta.safetensors");
    bought.made = compress_tiny(*base_, *tune_, set_, options, path);
    const auto file = DeltaFile::open(path);
    EXPECT_TRUE(file.ok()) << file.status().message();
    for (const auto& [name, entry] : file->low_rank()) bought.ranks[name] = entry.shape[0];
    bought.version = file->file().metadata().at("version");
    double weights = 0;
    for (const auto& [name, rows] : output_errors(*base_, *tune_, set_, path)) {
      const auto size = static_cast<double>(tune_->tensors().at(name).shape.count());
      bought.error += size * total(rows) / total(whole_.at(name));
      weights += size;
    }
    bought.error /= weights;
    return bought;
  }

  TempFolder folder_;
  std::unique_ptr<Checkpoint> base_ = std::move(*Checkpoint::open(kBase));
  const CalibrationSet set_ = random_text(base_->config().vocab);
  std::unique_ptr<Tune> tune_;
  OutputErrors whole_;
};

TEST_F(BoughtRanks, OneBitIsOneLevel) {
  const Bought one = buy("", false), budget = buy("1.0bit", true);
  EXPECT_EQ(budget.made.report.digest, one.made.report.digest);
  EXPECT_EQ(budget.version, "1");
  EXPECT_EQ(budget.made.fitter->metadata().count("residual_rank"), 0u);
  const Bought less = buy("0.7bit", true);
  EXPECT_TRUE(less.ranks.empty());
  EXPECT_EQ(less.version, "1");
}

TEST_F(BoughtRanks, GoWhereDirectionsCarryTheTune) {
  const int64_t one = buy("", false).made.report.total.bytes;
  double before = buy("1.0bit", true).error;
  for (const auto& [text, bits] :
       {std::pair{"1.25bit", 1.25}, std::pair{"1.5bit", 1.5}, {"2.0bit", 2.0}, {"3.0bit", 3.0}}) {
    const Bought ranks = buy(text, true), levels = buy(text, false);
    EXPECT_EQ(ranks.version, "2");
    EXPECT_EQ(levels.version, "1");
    EXPECT_LE(static_cast<double>(ranks.made.report.total.bytes), bits * static_cast<double>(one));
    EXPECT_LT(ranks.error, levels.error) << text;
    EXPECT_LT(ranks.error, before) << text;
    before = ranks.error;
    EXPECT_LT(ranks.made.fitter->report().heads.variant.kl,
              levels.made.fitter->report().heads.variant.kl);
    int64_t of_mlp = 0, of_others = 0;
    for (const auto& [name, rank] : ranks.ranks) {
      EXPECT_EQ(name.find("k_proj"), std::string::npos) << "it is the base's";
      (name.find("mlp") != std::string::npos ? of_mlp : of_others) += rank;
    }
    // Three directions in each of nine matrices; larger budgets have bytes over for the others.
    if (bits < 2) {
      EXPECT_GT(of_mlp, of_others) << text;
    } else {
      EXPECT_GE(of_mlp, 3 * 9) << text;
    }
    int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
    for (const auto& [name, rank] : ranks.ranks) {
      least = std::min(least, rank);
      most = std::max(most, rank);
    }
    // Weights without directions are not in the file.
    const std::string to_most = " to " + std::to_string(most);
    EXPECT_THAT(ranks.made.fitter->metadata().at("residual_rank"),
                ::testing::AnyOf("0" + to_most, std::to_string(least) + to_most));
  }
}

TEST_F(BoughtRanks, WithOneScaleAMatrixToo) {
  const Bought one = buy("", false, false), ranks = buy("1.5bit", true, false),
               levels = buy("1.5bit", false, false);
  EXPECT_LE(2 * ranks.made.report.total.bytes, 3 * one.made.report.total.bytes);
  EXPECT_FALSE(ranks.ranks.empty());
  EXPECT_LT(ranks.error, levels.error);
}

}  // namespace
}  // namespace deltad
