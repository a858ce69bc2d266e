// Calibrated compression of a tiny fine-tune: what it reports is what the file, loaded and run as
// any variant, does.
#include "calibrate/calibrated_fitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "delta/loader.h"
#include "engine/base_model.h"
#include "engine/direct_runner.h"
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

// log p of every next token, for each token of the sequences.
std::vector<std::vector<double>> distributions(const BaseModel& model, const VariantRef& variant,
                                               const std::vector<TokenSequence>& sequences) {
  auto runner = std::move(
      *DirectRunner::make(model.config(), model.table, *model.backend, {variant}, 64, 64));
  std::vector<std::vector<double>> out;
  for (const TokenSequence& sequence : sequences) {
    runner->reset();
    const Logits logits = std::move(*runner->append(0, sequence, true));
    for (int64_t r = 0; r < logits.values.rows(); ++r) {
      const float* row = logits.values.row<float>(r);
      std::vector<double> p(row, row + model.config().vocab);
      double sum = 0;
      for (const double l : p) sum += std::exp(l);
      for (double& l : p) l -= std::log(sum);
      out.push_back(std::move(p));
    }
  }
  return out;
}

HeadScore score(const std::vector<std::vector<double>>& expected,
                const std::vector<std::vector<double>>& model) {
  HeadScore out;
  for (size_t t = 0; t < expected.size(); ++t) {
    for (size_t i = 0; i < expected[t].size(); ++i)
      out.kl += std::exp(expected[t][i]) * (expected[t][i] - model[t][i]);
    const auto best = [](const std::vector<double>& p) {
      return std::max_element(p.begin(), p.end()) - p.begin();
    };
    out.top1 += best(expected[t]) == best(model[t]);
  }
  out.kl /= static_cast<double>(expected.size());
  out.top1 /= static_cast<double>(expected.size());
  return out;
}

TEST(CalibratedFitter, ReportsWhatTheLoadedVariantDoes) {
  CpuBackendOptions cpu;
  cpu.threads = 2;
  auto base = load_base_model(kBase, cpu, nullptr);
  auto tuned = load_base_model(kTuned, cpu, nullptr);
  ASSERT_TRUE(base.ok() && tuned.ok());
  const auto tune = std::move(*open_tuned_model(*(*base)->checkpoint, kTuned));
  const CalibrationSet set = random_text((*base)->config().vocab);
  const auto expected = distributions(**tuned, nullptr, set.held);
  const HeadScore of_base = score(expected, distributions(**base, nullptr, set.held));
  double before = 1e9;
  for (const int levels : {1, 2}) {
    TempFolder folder;
    const std::string path = folder.file("v.delta.safetensors");
    CalibrationOptions options;
    options.levels = levels;
    options.effort = levels;
    options.residual_rank = levels == 2 ? 3 : 0;
    options.jobs = 2;
    const Compressed made = compress_tiny(*(*base)->checkpoint, *tune, set, options, path);
    const auto variant =
        load_variant("v", path, (*base)->table, *(*base)->backend, VariantLoadOptions{});
    ASSERT_TRUE(variant.ok()) << variant.status().message();
    const HeadScore found = score(expected, distributions(**base, *variant, set.held));
    const HeadScores& reported = made.fitter->report().heads;
    EXPECT_NEAR(reported.base.kl, of_base.kl, 0.01 * of_base.kl);
    EXPECT_NEAR(reported.variant.kl, found.kl, 0.02 * found.kl + 1e-5);
    EXPECT_NEAR(reported.variant.top1, found.top1, 0.02);
    EXPECT_LT(found.kl, before) << "more levels and a low-rank part, a smaller error";
    before = found.kl;
    EXPECT_EQ(made.report.kinds.size(), 7u);
    for (const auto& [kind, error] : made.fitter->report().output_errors)
      EXPECT_LT(error, 1) << kind;
  }
}

TEST(CalibratedFitter, TheBytesDoNotDependOnTheNumberOfThreads) {
  const auto base = std::move(*Checkpoint::open(kBase));
  const auto tune = std::move(*open_tuned_model(*base, kTuned));
  const CalibrationSet set = random_text(base->config().vocab);
  for (const bool row : {true, false}) {
    TempFolder folder;
    std::vector<std::string> digests;
    for (const int jobs : {1, 3}) {
      CalibrationOptions options;
      options.levels = 2;
      options.alpha_per_row = row;
      options.jobs = jobs;
      const std::string path = folder.file(std::to_string(jobs) + ".delta.safetensors");
      digests.push_back(compress_tiny(*base, *tune, set, options, path).report.digest);
    }
    EXPECT_EQ(digests[0], digests[1]);
  }
}

// The fine-tune with a row of Δ that is zero.
std::string with_an_equal_row(const TempFolder& folder) {
  const std::string name = "model.layers.0.mlp.gate_proj.weight", model = folder.file("tuned");
  std::filesystem::copy(kTuned, model);
  testing::RawFile raw = testing::read_raw(model + "/model.safetensors");
  testing::RawFile of_base = testing::read_raw(kBase + "/model.safetensors");
  testing::RawTensor& tensor = raw.tensors.at(name);
  const auto row_bytes = static_cast<size_t>(2 * tensor.shape[1]);
  tensor.bytes.replace(0, row_bytes, of_base.tensors.at(name).bytes, 0, row_bytes);
  testing::write_raw(model + "/model.safetensors", raw);
  return model;
}

// Also of a text that has fewer tokens than a row has columns.
TEST(CalibratedFitter, NoErrorOnTheCalibrationTextIsLargerThanThatOfTheMeans) {
  TempFolder folder;
  const auto base = std::move(*Checkpoint::open(kBase));
  const auto tune = std::move(*open_tuned_model(*base, with_an_equal_row(folder)));
  CalibrationSet text = random_text(base->config().vocab), few;
  text.fit.resize(3);
  few.fit = {{text.fit[0].begin(), text.fit[0].begin() + 5}};
  few.held = {text.held[0]};
  const std::string fitted = folder.file("a.delta.safetensors"),
                    means = folder.file("b.delta.safetensors");
  for (const CalibrationSet* set : {&text, &few}) {
    const OutputErrors whole = output_errors(*base, *tune, *set, "");
    for (const bool row : {true, false})
      for (const int effort : {0, 1}) {
        CalibrationOptions options;
        options.alpha_per_row = row;
        options.effort = effort;
        const Compressed made = compress_tiny(*base, *tune, *set, options, fitted);
        CompressOptions plain;
        plain.alpha_per_row = row;
        const auto report = compress(*base, *tune, means, plain);
        ASSERT_TRUE(report.ok());
        EXPECT_EQ(made.report.file_bytes, report->file_bytes);
        const OutputErrors ours = output_errors(*base, *tune, *set, fitted),
                           theirs = output_errors(*base, *tune, *set, means);
        // This Δ is dense noise, of which little can be gained; one α a matrix gains least.
        EXPECT_LT(total(ours), (row ? 0.99 : 0.9999) * total(theirs));
        // Where rows share their α, one row may lose for the others.
        if (!row) continue;
        for (const auto& [name, rows] : ours)
          for (size_t r = 0; r < rows.size(); ++r)
            ASSERT_LE(rows[r], theirs.at(name)[r] + 1e-4 * whole.at(name)[r]) << name << " " << r;
      }
  }
}

TEST(CalibratedFitter, NumbersThatAreNoneAreRefusedWithTheirRow) {
  const auto base = std::move(*Checkpoint::open(kBase));
  const CalibrationSet set = random_text(base->config().vocab);
  struct Case {
    const char *name, *bytes;
  };
  for (const auto& [name, bytes] : {Case{"model.layers.1.mlp.up_proj.weight", "\xc0\x7f"},  // NaN
                                    Case{"model.layers.1.mlp.down_proj.weight", "\x80\xff"},  // −∞
                                    Case{"model.layers.0.input_layernorm.weight", "\xc0\x7f"}}) {
    TempFolder folder;
    const std::string model = folder.file("model");
    std::filesystem::copy(kTuned, model);
    testing::RawFile raw = testing::read_raw(model + "/model.safetensors");
    testing::RawTensor& tensor = raw.tensors.at(name);
    const int64_t columns = tensor.shape.rank() == 2 ? tensor.shape[1] : 1;
    tensor.bytes.replace(static_cast<size_t>(3 * columns * 2), 2, bytes, 2);
    testing::write_raw(model + "/model.safetensors", raw);
    auto tune = open_tuned_model(*base, model);
    ASSERT_TRUE(tune.ok()) << tune.status().message();
    auto fitter = CalibratedFitter::make(*base, **tune, set, {});
    ASSERT_TRUE(fitter.ok()) << fitter.status().message();
    CompressOptions options;
    options.fitter = fitter->get();
    const Status status =
        compress(*base, **tune, folder.file("v.delta.safetensors"), options).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(),
                ::testing::AllOf(::testing::HasSubstr(name), ::testing::HasSubstr("row 3"),
                                 ::testing::HasSubstr("finite")));
    EXPECT_EQ(folder.count(), 1) << "something was left beside the model";
  }
}

// A copy of the fine-tune whose norm is 3e38 all over.
std::string with_large_norm(const TempFolder& folder, const std::string& name) {
  const std::string model = folder.file("model");
  std::filesystem::copy(kTuned, model);
  testing::RawFile raw = testing::read_raw(model + "/model.safetensors");
  std::string& norm = raw.tensors.at(name).bytes;
  for (size_t i = 0; i < norm.size(); i += 2) norm.replace(i, 2, "\x7f\x7f", 2);
  testing::write_raw(model + "/model.safetensors", raw);
  return model;
}

// Finite weights whose products are not.
TEST(CalibratedFitter, OutputsThatAreNoNumbersCloseNothing) {
  const auto base = std::move(*Checkpoint::open(kBase));
  TempFolder folder;
  const auto tune =
      std::move(*open_tuned_model(*base, with_large_norm(folder, "model.norm.weight")));
  const Compressed made = compress_tiny(*base, *tune, random_text(base->config().vocab), {},
                                        folder.file("v.delta.safetensors"));
  const HeadScores& heads = made.fitter->report().heads;
  EXPECT_TRUE(std::isnan(heads.variant.kl)) << heads.variant.kl;
  EXPECT_FALSE(heads.finite());
  EXPECT_EQ(heads.closed(), 0);
  EXPECT_EQ(made.fitter->metadata().at("kl").size(), 9u);
}

TEST(CalibratedFitter, ALowRankPartOfActivationsThatAreNoNumbersIsRefused) {
  const auto base = std::move(*Checkpoint::open(kBase));
  const CalibrationSet set = random_text(base->config().vocab);
  TempFolder folder;
  const std::string model = with_large_norm(folder, "model.layers.0.input_layernorm.weight");
  const auto tune = std::move(*open_tuned_model(*base, model));
  CalibrationOptions options;
  options.residual_rank = 2;
  const auto fitter = std::move(*CalibratedFitter::make(*base, *tune, set, options));
  const Status status = fitter->fit_layer(0).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::AllOf(::testing::HasSubstr(model),
                                                 ::testing::HasSubstr("layers.0.self_attn.q_proj"),
                                                 ::testing::HasSubstr("activations")));
}

}  // namespace
}  // namespace deltad
