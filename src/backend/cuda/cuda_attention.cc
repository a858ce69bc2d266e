// CudaOps: rope_append and attention. Generated rows and prompts have a kernel each; a row's role
// chooses, and the numbers of rows only how many launches there are.
#include <fmt/core.h>

#include <bit>
#include <cmath>

#include "backend/cuda/cuda_ops.h"
#include "base/check.h"
#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/rope_append.h"

namespace deltad {
namespace {

uint16_t* layer_of(const KvView& kv, int32_t layer) {
  return reinterpret_cast<uint16_t*>(static_cast<char*>(kv.data) +
                                     int64_t{layer} * kv.blocks * kv.block_bytes);
}

// The kernels' scores are exponents of 2.
float score_scale(const AttentionShape& shape) {
  return static_cast<float>(static_cast<double>(shape.scale) * M_LOG2E);
}

}  // namespace

int64_t CudaOps::kv_block_bytes(const AttentionShape& shape, int32_t block_tokens) const {
  CHECK(block_tokens == cuda::kKvTokens, "positions of a KV block");
  return shape.kv_heads * cuda::kv_head_values(cuda::padded_head_dim(shape.head_dim)) *
         static_cast<int64_t>(sizeof(uint16_t));
}

Status CudaOps::check_shape(const AttentionShape& shape) const {
  if (shape.head_dim % 8 != 0 || cuda::padded_head_dim(shape.head_dim) == 0)
    return unimplemented(fmt::format(
        "attention heads of {} dimensions: the GPU's kernels take multiples of 8 up to 256",
        shape.head_dim));
  return {};
}

cuda::RopeAppendParams CudaOps::rope_params(TensorView qkv, const AttentionShape& shape,
                                            TensorView cos_sin, const KvView& kv, int32_t layer,
                                            int32_t first, int32_t rows) const {
  cuda::RopeAppendParams p{};
  p.qkv = qkv.row<float>(first);
  p.cos_sin = cos_sin.as<float>();
  p.places = rows_.places() + first;
  p.block_table = rows_.blocks();
  p.cache = layer_of(kv, layer);
  p.qkv_stride = qkv.row_stride;
  p.rows = rows;
  p.heads = shape.heads;
  p.kv_heads = shape.kv_heads;
  p.head_dim = shape.head_dim;
  p.q_offset = shape.q_offset;
  p.k_offset = shape.k_offset;
  p.v_offset = shape.v_offset;
  return p;
}

void CudaOps::rope_append(TensorView qkv, const AttentionShape& shape, TensorView cos_sin,
                          const KvView& kv, int32_t layer, std::span<const SequenceSpan> spans) {
  if (!working()) return;
  CHECK(spans.data() == tables_.spans.data(), "spans that are not the step's");
  const cuda::RopeAppendParams p =
      rope_params(qkv, shape, cos_sin, kv, layer, 0, static_cast<int32_t>(qkv.rows()));
  launch(cuda::kRopeAppendKernel, cuda::rope_append_launch(p), p);
}

void CudaOps::attention(TensorView out, TensorView qkv, const AttentionShape& shape,
                        const KvView& kv, int32_t layer, std::span<const SequenceSpan> spans) {
  if (!working()) return;
  CHECK(spans.data() == tables_.spans.data(), "spans that are not the step's");
  const int32_t dim = cuda::padded_head_dim(shape.head_dim);
  if (rows_.generated_rows() > 0) {
    cuda::AttentionDecodeParams p{};
    p.qkv = qkv.as<float>();
    p.places = rows_.places();
    p.block_table = rows_.blocks();
    p.cache = layer_of(kv, layer);
    p.out = out.as<uint16_t>();
    p.qkv_stride = qkv.row_stride;
    p.out_stride = out.row_stride;
    p.rows = rows_.generated_rows();
    p.heads = shape.heads;
    p.kv_heads = shape.kv_heads;
    p.head_dim = shape.head_dim;
    p.q_offset = shape.q_offset;
    // In powers of two, so that a context that grows seldom makes another launch of it.
    p.segments = static_cast<int32_t>(std::bit_ceil(
        static_cast<uint32_t>((rows_.longest_context() + cuda::kSegment - 1) / cuda::kSegment)));
    p.scale = score_scale(shape);
    const int64_t tiles = cuda::attention_head_tiles(shape.heads, shape.kv_heads);
    grow(scratch_.attention_parts,
         int64_t{4} * p.rows * p.heads * p.segments * cuda::attention_part_size(dim),
         "parts of attention");
    grow(scratch_.attention_arrivals, int64_t{4} * p.rows * p.kv_heads * tiles,
         "the counters of attention");
    p.parts = scratch_.attention_parts.as<float>();
    p.arrivals = scratch_.attention_arrivals.as<int32_t>();
    launch(cuda::attention_decode_kernel(dim), cuda::attention_decode_launch(p), p);
  }
  if (rows_.prompt_tiles() == 0) return;
  cuda::AttentionPrefillParams p{};
  p.qkv = qkv.as<float>();
  p.tiles = rows_.tiles();
  p.block_table = rows_.blocks();
  p.cache = layer_of(kv, layer);
  p.out = out.as<uint16_t>();
  p.qkv_stride = qkv.row_stride;
  p.out_stride = out.row_stride;
  p.tile_count = rows_.prompt_tiles();
  p.heads = shape.heads;
  p.kv_heads = shape.kv_heads;
  p.head_dim = shape.head_dim;
  p.q_offset = shape.q_offset;
  p.scale = score_scale(shape);
  launch(cuda::attention_prefill_kernel(dim), cuda::attention_prefill_launch(p), p);
}

}  // namespace deltad
