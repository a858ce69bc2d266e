// The text that a distillation learns from, in batches of whole sequences, and which of them a step
// takes. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "calibrate/layer_walk.h"

namespace deltad {

// Sequences [first, end); rows of their tokens among all.
struct TextBatch {
  size_t first, end;
  int64_t row, rows;
};

// Of up to 256 tokens; a single sequence may be longer.
std::vector<TextBatch> batches_of(const std::vector<TokenSequence>& text);

// The batches in the order that steps take them, each once. However few the steps are, they lie
// spread over the whole text, which goes from subject to subject.
std::vector<size_t> spread_order(size_t batches);

}  // namespace deltad
