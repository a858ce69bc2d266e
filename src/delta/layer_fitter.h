// LayerFitter: what chooses the signs and α of a fine-tune's matrices by looking at a layer as a
// whole (src/calibrate does, by its activations). compress asks for the layers in order and writes
// what it gets. One thread calls.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace deltad {

struct FittedLevel {
  std::vector<uint8_t> bits;  // [d_out, ⌈d_in/8⌉], as in the file
  std::vector<float> alpha;   // [d_out] or [1]
};

struct FittedMatrix {
  std::vector<FittedLevel> levels;
  std::vector<uint8_t> low_rank;  // as in the file (delta/low_rank_part.h); empty: none
  int64_t zeros = 0;              // of Δ
  double delta_squares = 0, base_squares = 0, error_squares = 0;  // of Δ, W and Δ − Δ̂
};

class LayerFitter {
 public:
  virtual ~LayerFitter() = default;

  // Levels that the matrix will get; 0: none.
  virtual int levels(const std::string& weight) const = 0;
  // Of the low-rank part that it will get; 0: none.
  virtual int64_t low_rank(const std::string& weight) const = 0;
  // The matrices of one layer that the fine-tune changes and that get levels, by weight name.
  // Layers come in order, each once.
  virtual Result<std::map<std::string, FittedMatrix>> fit_layer(int64_t layer) = 0;
  // What the file's metadata shall say beside the usual: keys, and values as long as those of
  // finish().
  virtual std::map<std::string, std::string> metadata() const = 0;
  // After the last layer: the values. No quotes, backslashes or control characters in them.
  virtual Result<std::map<std::string, std::string>> finish() = 0;
};

}  // namespace deltad
