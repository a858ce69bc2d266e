// Attention: AVX-512 without vdpbf16ps, fp32.
#if defined(__x86_64__)
#include "kernels/cpu/lanes_avx512.h"

namespace deltad::cpu {
namespace {

struct ProductBlocks {
  static constexpr int kScoreRows = 12, kValueRows = 6, kValueVectors = 4;
  static constexpr int score_blocks(int rows) {
    return rows == 1 ? 8 : rows <= 3 ? 4 : rows <= 6 ? 2 : 1;
  }
};

}  // namespace
}  // namespace deltad::cpu

#include "kernels/cpu/attention_fp32.h"
#include "kernels/cpu/attention_template.h"

namespace deltad::cpu {

extern const AttentionKernels kAttentionAvx512;
const AttentionKernels kAttentionAvx512 = {prepare, segment, combine, finish};

}  // namespace deltad::cpu

#endif
