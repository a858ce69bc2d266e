// Calibrated compression of a tiny fine-tune: what it reports is what the file, loaded and run as
// any variant, does.
#include "calibrate/calibrated_fitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>

#include "delta/compress.h"
#include "delta/delta_file.h"
#include "delta/loader.h"
#include "engine/base_model.h"
#include "engine/direct_runner.h"
#include "tensor/float16.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/delta/raw_file.h"

namespace deltad {
namespace {

using testing::TempFolder;

const std::string kBase = std::string(DELTAD_GOLDEN) + "/models/llama";
const std::string kTuned = std::string(DELTAD_GOLDEN) + "/variants/llama/finetune";

CalibrationSet random_text(int64_t vocab) {
  std::mt19937 random(3);
  CalibrationSet set;
  for (int s = 0; s < 24; ++s) {
    TokenSequence ids(20 + random() % 40);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
    (s % 4 == 3 ? set.held : set.fit).push_back(std::move(ids));
  }
  return set;
}

struct Compressed {
  std::unique_ptr<CalibratedFitter> fitter;
  CompressReport report;
};

Compressed compress_tiny(const Checkpoint& base, const Tune& tune, const CalibrationSet& set,
                         CalibrationOptions fit, const std::string& path) {
  Compressed out;
  auto fitter = CalibratedFitter::make(base, tune, set, fit);
  EXPECT_TRUE(fitter.ok()) << fitter.status().message();
  out.fitter = std::move(*fitter);
  CompressOptions options;
  options.variant = "v";
  options.levels = fit.levels;
  options.alpha_per_row = fit.alpha_per_row;
  options.jobs = fit.jobs;
  options.fitter = out.fitter.get();
  auto report = compress(base, tune, path, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  if (report.ok()) out.report = *report;
  return out;
}

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

// ‖X(Δ − Δ̂)‖² of every row of every compressed matrix, X being what the set brings into it in the
// fine-tune: in the order of layers, matrices and rows. file: the compressed form; "": none.
std::vector<double> output_errors(const Checkpoint& base, const Tune& tune,
                                  const CalibrationSet& set, const std::string& file) {
  std::unique_ptr<Tune> compressed;
  if (!file.empty()) compressed = std::move(*open_variant_tune(base, file));
  const auto walk = std::move(*LayerWalk::make(base, tune, 2));
  Activations x = std::move(*walk->embed(WalkedModel::kTune, set.fit));
  std::vector<double> errors;
  for (int64_t layer = 0; layer < base.config().layers; ++layer) {
    EXPECT_TRUE(walk->load_layer(layer).ok());
    LayerInputs inputs;
    EXPECT_TRUE(walk->advance(WalkedModel::kTune, &x, &inputs).ok());
    for (const std::string& name : walk->changed_matrices()) {
      const LayerInputs::Values& in = inputs.of[static_cast<size_t>(input_of(name))];
      const auto at = [&](int64_t i) {
        return static_cast<double>(in.type == DType::kF32 ? in.x.as<float>()[i]
                                                          : bf16_to_f32(in.x.as<uint16_t>()[i]));
      };
      const Shape& shape = tune.tensors().at(name).shape;
      const auto count = static_cast<size_t>(shape.count());
      std::vector<uint16_t> w(count);
      std::vector<double> left(count), said(count);
      EXPECT_TRUE(base.read_rows_bf16(name, 0, shape[0], w.data()).ok());
      EXPECT_TRUE(tune.delta_rows(name, 0, shape[0], w.data(), left.data()).ok());
      if (compressed && compressed->tensors().count(name) != 0) {
        EXPECT_TRUE(compressed->delta_rows(name, 0, shape[0], w.data(), said.data()).ok());
        for (size_t i = 0; i < count; ++i) left[i] -= said[i];
      }
      for (int64_t r = 0; r < shape[0]; ++r) {
        double error = 0;
        for (int64_t t = 0; t < x.tokens; ++t) {
          double y = 0;
          for (int64_t c = 0; c < shape[1]; ++c)
            y += at(t * shape[1] + c) * left[static_cast<size_t>(r * shape[1] + c)];
          error += y * y;
        }
        errors.push_back(error);
      }
    }
  }
  return errors;
}

double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
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
    const std::vector<double> whole = output_errors(*base, *tune, *set, "");
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
        const std::vector<double> ours = output_errors(*base, *tune, *set, fitted),
                                  theirs = output_errors(*base, *tune, *set, means);
        // This Δ is dense noise, of which little can be gained; one α a matrix gains least.
        EXPECT_LT(total(ours), (row ? 0.99 : 0.9999) * total(theirs));
        // Where rows share their α, one row may lose for the others.
        for (size_t r = 0; row && r < ours.size(); ++r)
          ASSERT_LE(ours[r], theirs[r] + 1e-4 * whole[r]) << "row " << r;
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

// What low-rank parts take of a budget is theirs of the matrices that the file holds, not of all.
TEST(CalibratedFitter, ABudgetCountsTheMatricesThatTheFineTuneChanges) {
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

TEST(CalibratedFitter, ABudgetIsKeptAndLiesBetweenEvenSpreads) {
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

}  // namespace
}  // namespace deltad
