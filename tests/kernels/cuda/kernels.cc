// All kernels of kernels/cuda by name, for the emulator: a line each.
#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/linear_prefill.h"
#include "kernels/cuda/linear_prefill_range.h"
#include "kernels/cuda/linear_prefill_rows.h"
#include "kernels/cuda/low_rank_expand.h"
#include "kernels/cuda/low_rank_shrink.h"
#include "kernels/cuda/repack.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_append.h"
#include "kernels/cuda/sampler.h"
#include "kernels/cuda/sign_planes.h"
#include "kernels/cuda/silu_gate.h"
#include "kernels/cuda/sum_parts.h"
#include "tests/support/cuda_on_cpu/kernel_registry.h"

// Name, parameter, threads of a block (__launch_bounds__).
#define DELTAD_KERNELS(K)                                                   \
  K(deltad_repack_base, RepackBaseParams, kRepackThreads)                   \
  K(deltad_repack_signs, RepackSignsParams, kRepackThreads)                 \
  K(deltad_sign_planes, SignPlanesParams, kSignPlanesThreads)               \
  K(deltad_linear_r16, LinearParams, kLinearThreads)                        \
  K(deltad_linear_r16_signs1, LinearParams, kLinearThreads)                 \
  K(deltad_linear_r16_signs2, LinearParams, kLinearThreads)                 \
  K(deltad_linear_r16_signs4, LinearParams, kLinearThreads)                 \
  K(deltad_linear_r32, LinearParams, kLinearThreads)                        \
  K(deltad_linear_r32_signs1, LinearParams, kLinearThreads)                 \
  K(deltad_linear_r32_signs2, LinearParams, kLinearThreads)                 \
  K(deltad_linear_prefill, LinearPrefillParams, 128)                        \
  K(deltad_linear_prefill_signs1, LinearPrefillParams, 128)                 \
  K(deltad_linear_prefill_signs2, LinearPrefillParams, 128)                 \
  K(deltad_linear_prefill_signs4, LinearPrefillParams, 128)                 \
  K(deltad_linear_prefill_o192, LinearPrefillParams, 384)                   \
  K(deltad_linear_prefill_o192_signs1, LinearPrefillParams, 384)            \
  K(deltad_linear_prefill_r128, LinearPrefillParams, 256)                   \
  K(deltad_linear_prefill_r128_signs1, LinearPrefillParams, 256)            \
  K(deltad_linear_prefill_r128_signs2, LinearPrefillParams, 256)            \
  K(deltad_linear_prefill_r128_signs4, LinearPrefillParams, 256)            \
  K(deltad_linear_prefill_r256, LinearPrefillParams, 256)                   \
  K(deltad_linear_prefill_r256_signs1, LinearPrefillParams, 256)            \
  K(deltad_linear_prefill_r256_signs2, LinearPrefillParams, 256)            \
  K(deltad_linear_prefill_r256_signs4, LinearPrefillParams, 256)            \
  K(deltad_prefill_rows, PrefillRowsParams, kPrefillRowsThreads)            \
  K(deltad_weight_range, WeightRangeParams, kWeightRangeThreads)            \
  K(deltad_rms_norm, RmsNormParams, kRmsNormThreads)                        \
  K(deltad_rope_append, RopeAppendParams, kRopeAppendThreads)               \
  K(deltad_attention_decode_d64, AttentionDecodeParams, kAttentionThreads)  \
  K(deltad_attention_decode_d96, AttentionDecodeParams, kAttentionThreads)  \
  K(deltad_attention_decode_d128, AttentionDecodeParams, kAttentionThreads) \
  K(deltad_attention_decode_d192, AttentionDecodeParams, kAttentionThreads) \
  K(deltad_attention_decode_d256, AttentionDecodeParams, kAttentionThreads) \
  K(deltad_attention_prefill_d64, AttentionPrefillParams, kPrefillThreads)  \
  K(deltad_attention_prefill_d96, AttentionPrefillParams, kPrefillThreads)  \
  K(deltad_attention_prefill_d128, AttentionPrefillParams, kPrefillThreads) \
  K(deltad_attention_prefill_d192, AttentionPrefillParams, kPrefillThreads) \
  K(deltad_attention_prefill_d256, AttentionPrefillParams, kPrefillThreads) \
  K(deltad_low_rank_shrink, LowRankShrinkParams, kShrinkThreads)            \
  K(deltad_low_rank_expand, LowRankExpandParams, kExpandThreads)            \
  K(deltad_silu_gate, SiluGateParams, kSiluGateThreads)                     \
  K(deltad_embed, EmbedParams, kEmbedThreads)                               \
  K(deltad_gather_rows, GatherRowsParams, kGatherRowsThreads)               \
  K(deltad_sum_parts, SumPartsParams, kSumPartsThreads)                     \
  K(deltad_sampler, SamplerParams, kSamplerThreads)

namespace deltad::cuda {

#define DELTAD_DECLARE(name, params, threads) extern "C" void name(params p);
DELTAD_KERNELS(DELTAD_DECLARE)

}  // namespace deltad::cuda

namespace deltad::emulator {
namespace {

KernelRegistry all() {
  using namespace cuda;
  KernelRegistry registry;
#define DELTAD_ADD(name, params, threads) registry.add<name>(#name, threads);
  DELTAD_KERNELS(DELTAD_ADD)
  return registry;
}

}  // namespace

KernelRegistry& KernelRegistry::instance() {
  static auto& registry = *new KernelRegistry(all());  // never destroyed: see GlobalMemory
  return registry;
}

}  // namespace deltad::emulator
