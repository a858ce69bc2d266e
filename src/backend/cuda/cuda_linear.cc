// CudaOps::linear: one pass over the base's matrix for all rows that read it, and over each matrix
// that a variant has instead, with the variants' signs; then low-rank factors. A row's role says
// which kernels it takes: prompts those of kernels/cuda/linear_prefill.h; generated rows, and what
// logits are made of, the decode kernel, which can also rotate them and append them to the cache.
#include <algorithm>

#include "backend/cuda/cuda_ops.h"
#include "base/check.h"
#include "kernels/cuda/linear_prefill.h"
#include "kernels/cuda/low_rank_expand.h"
#include "kernels/cuda/low_rank_shrink.h"
#include "kernels/cuda/sign_planes.h"
#include "kernels/cuda/silu_gate.h"

namespace deltad {
namespace {

cuda::LinearEpilogue kernel_epilogue(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kStore:
      return cuda::LinearEpilogue::kStore;
    case Epilogue::kAddResidual:
      return cuda::LinearEpilogue::kAddResidual;
    case Epilogue::kSiluGate:
      return cuda::LinearEpilogue::kSiluGate;
  }
  return cuda::LinearEpilogue::kStore;
}

// The rows of a piece of the batch.
TensorView rows_of(TensorView batch, const GroupedRows& rows) {
  return matrix_view(
      static_cast<char*>(batch.data) +
          rows.first * batch.row_stride * static_cast<int64_t>(dtype_size(batch.dtype)),
      batch.dtype, rows.rows, batch.shape[1], batch.row_stride, batch.device);
}

}  // namespace

// One call, for one piece of the batch; x and out are its rows.
struct CudaOps::Linear {
  CudaOps& ops;
  const GroupedRows& rows;
  const WeightId weight;
  const TensorView x;
  const CudaMatrix& base;
  const int levels;  // the most that a row has
  Scratch& scratch;
  const cuda::RopeAppendParams* rope;  // with kRotary

  int32_t columns() const { return static_cast<int32_t>(base.columns); }

  void run(TensorView out, cuda::LinearEpilogue epilogue) {
    if (rows.prompts) {
      for (const GroupedRows::Run& part : rows.runs(weight)) run_prompts(part, out, epilogue);
    } else {
      run_generated(out, epilogue);
    }
  }

  void make_planes() {
    if (levels == 0) return;
    ops.grow(scratch.planes, cuda::planes_size(rows.rows, columns()) * 16, "planes of activations");
    ops.grow(scratch.plane_scale, int64_t{4} * rows.rows, "scales of activations");
    ops.grow(scratch.plane_sum, int64_t{4} * rows.rows, "sums of activations");
    cuda::SignPlanesParams p{};
    p.x = x.as<uint16_t>();
    p.planes = scratch.planes.data();
    p.scale = scratch.plane_scale.as<float>();
    p.sum = scratch.plane_sum.as<int32_t>();
    p.x_stride = x.row_stride;
    p.rows = rows.rows;
    p.columns = columns();
    ops.launch(cuda::kSignPlanesKernel, cuda::sign_planes_launch(p), p);
  }

  // Rows through the matrix that they read, the base's or their variant's own, with signs.
  void run_generated(TensorView out, cuda::LinearEpilogue epilogue) {
    make_planes();
    const cuda::LinearKernel kernel = cuda::linear_decode_kernel(rows.rows, levels);
    cuda::LinearParams p{};
    p.rows = rows.rows;
    p.outputs = base.outputs();
    p.columns = columns();
    p.dense_outputs = rows.dense_outputs(weight);
    p.dense_tiles = rows.dense_tiles(weight, kernel.block_rows);
    p.splits = cuda::linear_decode_splits(p.outputs, p.columns);
    const cuda::Launch shape = cuda::linear_decode_launch(p, kernel);
    const bool rotates = epilogue == cuda::LinearEpilogue::kRotary;
    if (rotates) p.rope = *rope;
    if (p.splits > 1 || (rotates && cuda::linear_head_blocks(rope->head_dim) > 1)) {
      const int64_t sums = int64_t{4} * p.splits * p.rows * cuda::linear_widest(p);
      ops.grow(scratch.base_parts, sums, "parts of a linear layer");
      ops.grow(scratch.sign_parts, sums * kernel.levels, "parts of sums of signs");
      p.base_parts = scratch.base_parts.as<float>();
      p.sign_parts = scratch.sign_parts.as<int32_t>();
    }
    ops.grow(scratch.arrivals, int64_t{4} * shape.grid.x * shape.grid.y,
             "the counters of a linear layer");
    p.arrivals = scratch.arrivals.as<int32_t>();
    p.x = x.as<uint16_t>();
    p.w = base.storage;
    p.slots = ops.slots_.signs(weight);
    p.dense = p.dense_tiles > 0 ? ops.slots_.dense(weight) : nullptr;
    if (levels > 0) {
      p.planes = scratch.planes.data();
      p.plane_scale = scratch.plane_scale.as<float>();
      p.plane_sum = scratch.plane_sum.as<int32_t>();
    }
    p.groups = ops.rows_.groups_of(rows);
    p.out = out.data;
    p.x_stride = x.row_stride;
    p.out_stride = out.row_stride;
    p.epilogue = epilogue;
    ops.launch(kernel.name, shape, p);
  }

  // Rows of prompts that all read one matrix: nothing of this becomes a graph, so it may be a
  // variant's.
  void run_prompts(const GroupedRows::Run& part, TensorView out, cuda::LinearEpilogue epilogue) {
    const CudaVariantWeights* variant = rows.variants[part.first];
    const bool own = variant != nullptr && variant->dense(weight).storage != nullptr;
    const CudaMatrix& matrix = own ? variant->dense(weight) : base;
    const int32_t first = rows.first_row(part), count = rows.end_row(part) - first;
    const auto groups = std::span(rows.groups).subspan(part.first, part.second - part.first);
    const auto group_count = static_cast<int32_t>(groups.size());

    cuda::PrefillRowsParams pack{};
    pack.packed_rows = cuda::prefill_packed_rows(count, group_count);
    ops.grow(scratch.packed, cuda::prefill_packed_size(pack.packed_rows, columns()) * 16,
             "activations of prompts");
    ops.grow(scratch.packed_scale, int64_t{4} * count, "scales of activations of prompts");
    pack.x = x.row<uint16_t>(first);
    pack.groups = ops.rows_.groups_of(part);
    pack.packed = scratch.packed.data();
    pack.scale = scratch.packed_scale.as<float>();
    pack.x_stride = x.row_stride;
    pack.rows = count;
    pack.columns = columns();
    ops.launch(cuda::kPrefillRowsKernel, cuda::prefill_rows_launch(pack), pack);

    const cuda::LinearPrefillKernel kernel = cuda::linear_prefill_kernel(
        ops.kernels_.prefill_kernels(), groups, matrix.outputs(),
        own ? variant->levels(weight) : levels, ops.device_.multiprocessors());
    cuda::LinearPrefillParams p{};
    p.x = pack.packed;
    p.x_scale = pack.scale;
    p.w = matrix.storage;
    p.slots = ops.slots_.signs(weight);
    p.apart = ops.slots_.apart() + ops.weights_.apart_at(weight);
    p.apart_stride = ops.slots_.apart_stride();
    p.groups = pack.groups;
    p.out = static_cast<char*>(out.data) +
            first * out.row_stride * static_cast<int64_t>(dtype_size(out.dtype));
    p.out_stride = out.row_stride;
    p.packed_rows = pack.packed_rows;
    p.outputs = matrix.outputs();
    p.columns = columns();
    p.w_exponent = matrix.range.exponent;
    p.w_factors = cuda::prefill_factors(p.w_exponent);
    p.epilogue = static_cast<cuda::LinearPrefillEpilogue>(epilogue);
    ops.launch(kernel.name, cuda::linear_prefill_launch(p, kernel, count, group_count), p);
  }

  // out += B·(s·A·x) where a row's variant has factors.
  void add_low_rank(TensorView out, int32_t ranks) {
    const auto groups = static_cast<int32_t>(rows.groups.size());
    const int32_t splits = cuda::low_rank_splits(columns());
    ops.grow(scratch.low_rank, int64_t{4} * splits * rows.rows * ranks, "low-rank sums");
    cuda::LowRankShrinkParams shrink{};
    shrink.x = x.as<uint16_t>();
    shrink.slots = ops.slots_.low_rank(weight);
    shrink.groups = ops.rows_.groups_of(rows);
    shrink.t = scratch.low_rank.as<float>();
    shrink.x_stride = x.row_stride;
    shrink.rows = rows.rows;
    shrink.columns = columns();
    shrink.max_ranks = ranks;
    shrink.max_groups = groups;
    ops.launch(cuda::kLowRankShrinkKernel, cuda::low_rank_shrink_launch(shrink), shrink);
    cuda::LowRankExpandParams expand{};
    expand.t = shrink.t;
    expand.slots = shrink.slots;
    expand.groups = shrink.groups;
    expand.out = out.as<float>();
    expand.out_stride = out.row_stride;
    expand.rows = rows.rows;
    expand.outputs = base.outputs();
    expand.splits = splits;
    expand.max_ranks = ranks;
    expand.max_groups = groups;
    ops.launch(cuda::kLowRankExpandKernel, cuda::low_rank_expand_launch(expand), expand);
  }
};

void CudaOps::linear(TensorView out, TensorView x, WeightId weight,
                     std::span<const RowGroup> groups, Epilogue epilogue) {
  const bool gate = epilogue == Epilogue::kSiluGate;
  const CudaMatrix& base = weights_.matrix(weight);
  CHECK(x.dtype == DType::kBF16 && x.shape[1] == base.columns, "linear: x does not fit the weight");
  CHECK(out.dtype == (gate ? DType::kBF16 : DType::kF32), "linear: wrong type of out");
  CHECK(!gate || weights_.spec(weight).interleaved, "linear: kSiluGate needs interleaved weights");
  if (!working()) return;
  for (const GroupedRows& rows : rows_.pieces(groups))
    linear_piece(rows_of(out, rows), rows_of(x, rows), weight, rows, kernel_epilogue(epilogue));
}

void CudaOps::linear_piece(TensorView out, TensorView x, WeightId weight, const GroupedRows& rows,
                           cuda::LinearEpilogue epilogue, const cuda::RopeAppendParams* rope) {
  const CudaMatrix& base = weights_.matrix(weight);
  Linear call{*this, rows, weight, x, base, rows.levels(weight), scratch_, rope};
  const int32_t ranks = rows.ranks(weight);
  if (ranks == 0 || epilogue != cuda::LinearEpilogue::kSiluGate) {
    call.run(out, epilogue);
    if (ranks > 0) call.add_low_rank(out, ranks);
    return;
  }
  // The gate comes after the factors, so gate and up are stored before it.
  grow(scratch_.gate, int64_t{4} * rows.rows * base.outputs(), "gates before their factors");
  const TensorView sums = matrix_view(scratch_.gate.data(), DType::kF32, rows.rows, base.outputs(),
                                      base.outputs(), DeviceKind::kCuda);
  call.run(sums, cuda::LinearEpilogue::kStore);
  call.add_low_rank(sums, ranks);
  cuda::SiluGateParams p{};
  p.in = sums.as<float>();
  p.out = out.as<uint16_t>();
  p.in_stride = sums.row_stride;
  p.out_stride = out.row_stride;
  p.rows = rows.rows;
  p.columns = base.outputs() / 2;
  launch(cuda::kSiluGateKernel, cuda::silu_gate_launch(p), p);
}

// The decode kernel does it all, but where factors are added before rows are rotated.
void CudaOps::linear_rope_append(TensorView qkv, TensorView x, WeightId weight,
                                 std::span<const RowGroup> groups, const AttentionShape& shape,
                                 TensorView cos_sin, const KvView& kv, int32_t layer,
                                 std::span<const SequenceSpan> spans) {
  if (!working()) return;
  CHECK(spans.data() == tables_.spans.data(), "spans that are not the step's");
  for (const GroupedRows& rows : rows_.pieces(groups)) {
    const cuda::RopeAppendParams rope =
        rope_params(qkv, shape, cos_sin, kv, layer, rows.first, rows.rows);
    const bool rotates =
        !rows.prompts && rows.ranks(weight) == 0 && cuda::linear_head_blocks(shape.head_dim) > 0;
    linear_piece(rows_of(qkv, rows), rows_of(x, rows), weight, rows,
                 rotates ? cuda::LinearEpilogue::kRotary : cuda::LinearEpilogue::kStore, &rope);
    if (!rotates) launch(cuda::kRopeAppendKernel, cuda::rope_append_launch(rope), rope);
  }
}

}  // namespace deltad
