// LevelPlan: what each matrix gets under a budget of bytes: how many levels of signs, and the rank
// of a low-rank part beside them, by what they take off the output error per byte. Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace deltad {

struct MatrixForm {
  int levels = 0;
  int64_t rank = 0;
};

struct MatrixCosts {
  std::string weight;
  int64_t level_bytes = 0;  // of one level: signs and α
  int64_t rank_bytes = 0;   // of one rank of a low-rank part
  // Of the output with 0, 1, … levels and, beside these, rank 0, 1, …; comparable between matrices.
  // Without levels there is rank 0 alone.
  std::vector<std::vector<double>> error;

  int64_t bytes(const MatrixForm& form) const {
    return level_bytes * form.levels + rank_bytes * form.rank;
  }
};

// "1.0bit" … "4.0bit": that many levels' bytes on average over the weights; or bytes of signs, α
// and low-rank parts, as a number. kInvalidArgument says what was expected.
struct LevelBudget {
  double bits = 0;
  int64_t bytes = 0;

  static Result<LevelBudget> parse(const std::string& text);
  int64_t bytes_for(const std::vector<MatrixCosts>& matrices) const;
};

// One level of all matrices.
int64_t one_level_bytes(const std::vector<MatrixCosts>& matrices);

using FormPlan = std::map<std::string, MatrixForm>;  // by weight

// The step that takes off most per byte comes first, as long as there is room for it; a step may be
// of several levels or ranks where one alone takes off less. Ranks are bought with what is over
// when as many bytes as one level of all matrices are spent; if levels alone come to a smaller
// error, there are none.
FormPlan plan_forms(const std::vector<MatrixCosts>& matrices, int64_t bytes);

}  // namespace deltad
