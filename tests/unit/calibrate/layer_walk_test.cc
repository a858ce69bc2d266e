// What LayerWalk says enters a layer, whatever the batches that it cuts the sequences into.
#include "calibrate/layer_walk.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace deltad {
namespace {

const std::string kBase = DELTAD_GOLDEN "/models/llama";
const std::string kTuned = DELTAD_GOLDEN "/variants/llama/finetune";

struct Walked {
  LayerInputs inputs;
  std::vector<float> residual;
};

Walked first_layer(const std::vector<TokenSequence>& sequences) {
  const auto base = std::move(*Checkpoint::open(kBase));
  const auto tune = std::move(*open_tuned_model(*base, kTuned));
  const auto walk = std::move(*LayerWalk::make(*base, *tune, 2));
  Activations activations = std::move(*walk->embed(WalkedModel::kTune, sequences));
  EXPECT_TRUE(walk->load_layer(0).ok());
  Walked out;
  EXPECT_TRUE(walk->advance(WalkedModel::kTune, &activations, &out.inputs).ok());
  const auto* values = activations.residual.as<float>();
  out.residual.assign(values, values + activations.residual.bytes() / sizeof(float));
  return out;
}

std::string rows_of(const LayerInputs::Values& values, int64_t first, int64_t count) {
  const auto bytes = static_cast<size_t>(values.columns) * dtype_size(values.type);
  return {values.x.as<char>() + static_cast<size_t>(first) * bytes,
          static_cast<size_t>(count) * bytes};
}

TEST(LayerWalk, ASequenceIsTheSameAmongOthersAsAlone) {
  // More sequences of one token than a batch has blocks of the cache, and long ones between them.
  std::mt19937 random(2);
  std::vector<TokenSequence> all;
  for (int s = 0; s < 90; ++s) {
    all.emplace_back(s % 30 == 7 ? 60 : 1 + s % 2);
    for (int32_t& id : all.back()) id = static_cast<int32_t>(random() % 64);
  }
  const Walked together = first_layer(all);
  int64_t first = 0;
  for (size_t s = 0; s < all.size(); ++s) {
    const auto n = static_cast<int64_t>(all[s].size());
    if (s % 30 == 7 || s + 1 == all.size()) {
      const Walked alone = first_layer({all[s]});
      const size_t stride = alone.residual.size() / all[s].size();
      EXPECT_TRUE(std::equal(alone.residual.begin(), alone.residual.end(),
                             together.residual.begin() + first * static_cast<int64_t>(stride)));
      for (size_t i = 0; i < together.inputs.of.size(); ++i) {
        SCOPED_TRACE("sequence " + std::to_string(s) + ", input " + std::to_string(i));
        EXPECT_EQ(rows_of(together.inputs.of[i], first, n), rows_of(alone.inputs.of[i], 0, n));
      }
    }
    first += n;
  }
}

}  // namespace
}  // namespace deltad
