// Low-rank factors: AVX-512 with bf16 arithmetic: A meets activations in bf16 by vdpbf16ps, two
// columns a lane.
#if defined(__x86_64__)

#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/low_rank_isa.h"
#include "kernels/cpu/low_rank_template.h"

namespace deltad::cpu {
namespace {

struct DotBf16 {
  static constexpr int64_t kStep = 32;
  using Operand = __m512i;
  static Operand load_a(const uint16_t* a) { return _mm512_loadu_si512(a); }
  static Operand load_x(const void* x, int64_t c) {
    return _mm512_loadu_si512(static_cast<const uint16_t*>(x) + c);
  }
  static __m512 add(Operand a, Operand x, __m512 acc) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(a));
  }
};

}  // namespace

const LowRankKernels kLowRankAvx512Bf16 = {shrink<DotBf16>, expand};

}  // namespace deltad::cpu

#endif
