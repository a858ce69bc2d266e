// Attention: AVX-512 with vdpbf16ps; queries and softmax weights in bf16.
#if defined(__x86_64__)

#include "kernels/cpu/lanes_avx512.h"

namespace deltad::cpu {
namespace {

struct Products {
  static constexpr int kScoreRows = 12, kValueRows = 6, kValueVectors = 4;
  static constexpr int score_blocks(int rows) {
    return rows == 1 ? 8 : rows <= 3 ? 4 : rows <= 6 ? 2 : 1;
  }
  using Element = uint16_t;
  using Pairs = __m512i;

  static Pairs load(const uint16_t* p) { return _mm512_loadu_si512(p); }
  static Pairs first_only(Pairs pairs) {
    return _mm512_and_si512(pairs, _mm512_set1_epi32(0x0000ffff));
  }
  static __m512 dot(__m512 acc, Pairs pairs, const uint16_t* x) {
    int both;
    __builtin_memcpy(&both, x, sizeof both);
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(pairs),
                            reinterpret_cast<__m512bh>(_mm512_set1_epi32(both)));
  }
  static void store(uint16_t* p, __m512 a) { Lanes::store_bf16(p, a); }
  static void store_first(uint16_t* p, __m512 a, int n) { Lanes::store_bf16_first(p, a, n); }
  static __m512 stored(__m512 a) {
    const auto bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
};

}  // namespace
}  // namespace deltad::cpu

#include "kernels/cpu/attention_template.h"

namespace deltad::cpu {

extern const AttentionKernels kAttentionAvx512Bf16;
const AttentionKernels kAttentionAvx512Bf16 = {prepare, segment, combine, finish};

}  // namespace deltad::cpu

#endif
