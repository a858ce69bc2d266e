// Attention: plain C++, fp32.

#include "kernels/cpu/lanes_scalar.h"

namespace deltad::cpu {
namespace {

struct ProductBlocks {
  static constexpr int kScoreRows = 1, kValueRows = 1, kValueVectors = 1;
  static constexpr int score_blocks(int rows) { return rows; }
};

}  // namespace
}  // namespace deltad::cpu

#include "kernels/cpu/attention_fp32.h"
#include "kernels/cpu/attention_template.h"

namespace deltad::cpu {

extern const AttentionKernels kAttentionScalar;
const AttentionKernels kAttentionScalar = {prepare, segment, combine, finish};

}  // namespace deltad::cpu
