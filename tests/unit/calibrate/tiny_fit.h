// A tiny fine-tune for tests of calibrated compression, and what compression leaves of it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/calibrated_fitter.h"
#include "delta/compress.h"
#include "tensor/float16.h"

namespace deltad::testing {

inline const std::string kBase = DELTAD_GOLDEN "/models/llama";
inline const std::string kTuned = DELTAD_GOLDEN "/variants/llama/finetune";

inline CalibrationSet random_text(int64_t vocab) {
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

inline Compressed compress_tiny(const Checkpoint& base, const Tune& tune, const CalibrationSet& set,
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

using OutputErrors = std::map<std::string, std::vector<double>>;  // by weight, of each row

// ‖X(Δ − Δ̂)‖² of every row of every compressed matrix, X being what the set brings into it in the
// fine-tune. file: the compressed form; "": none.
inline OutputErrors output_errors(const Checkpoint& base, const Tune& tune,
                                  const CalibrationSet& set, const std::string& file) {
  std::unique_ptr<Tune> compressed;
  if (!file.empty()) compressed = std::move(*open_variant_tune(base, file));
  const auto walk = std::move(*LayerWalk::make(base, tune, 2));
  Activations x = std::move(*walk->embed(WalkedModel::kTune, set.fit));
  OutputErrors errors;
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
        errors[name].push_back(error);
      }
    }
  }
  return errors;
}

inline double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

inline double total(const OutputErrors& errors) {
  double sum = 0;
  for (const auto& [weight, rows] : errors) sum += total(rows);
  return sum;
}

}  // namespace deltad::testing
