// Attention: AVX2, fp32.
#if defined(__x86_64__)
#include "kernels/cpu/lanes_avx2.h"

namespace deltad::cpu {
namespace {

struct ProductBlocks {
  static constexpr int kScoreRows = 4, kValueRows = 2, kValueVectors = 2;
  static constexpr int score_blocks(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
};

}  // namespace
}  // namespace deltad::cpu

#include "kernels/cpu/attention_fp32.h"
#include "kernels/cpu/attention_template.h"

namespace deltad::cpu {

extern const AttentionKernels kAttentionAvx2;
const AttentionKernels kAttentionAvx2 = {prepare, segment, combine, finish};

}  // namespace deltad::cpu

#endif
