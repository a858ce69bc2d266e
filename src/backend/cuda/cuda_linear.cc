// CudaOps::linear: one pass over the base's matrix for all rows that read it, and over each matrix
// that a variant has instead, with the variants' signs; then low-rank factors. All rows take the
// decode kernel (kernels/cuda/linear_decode.h); run() is where rows of prompts will take one of
// their own, told by SequenceSpan::generated.
#include <algorithm>

#include "backend/cuda/cuda_ops.h"
#include "base/check.h"
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

}  // namespace

// One call.
struct CudaOps::Linear {
  CudaOps& ops;
  const GroupedRows& rows;
  const WeightId weight;
  const TensorView x;
  const CudaMatrix& base;
  const int levels;  // the most that a row has
  Scratch& scratch;

  int32_t columns() const { return static_cast<int32_t>(base.columns); }

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
  void run(TensorView out, cuda::LinearEpilogue epilogue) {
    const cuda::LinearKernel kernel = cuda::linear_decode_kernel(rows.rows, levels);
    cuda::LinearParams p{};
    p.rows = rows.rows;
    p.outputs = base.outputs();
    p.columns = columns();
    p.dense_outputs = rows.dense_outputs(weight);
    p.dense_tiles = rows.dense_tiles(weight, kernel.block_rows);
    p.splits = cuda::linear_decode_splits(p.outputs, p.columns);
    const cuda::Launch shape = cuda::linear_decode_launch(p, kernel);
    if (p.splits > 1) {
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
    p.groups = ops.rows_.groups_at(rows.table);
    p.out = out.data;
    p.x_stride = x.row_stride;
    p.out_stride = out.row_stride;
    p.epilogue = epilogue;
    ops.launch(kernel.name, shape, p);
  }

  // out += B·(s·A·x) where a row's variant has factors.
  void add_low_rank(TensorView out, int32_t ranks) {
    const auto groups = static_cast<int32_t>(rows.groups.size());
    const int32_t splits = cuda::low_rank_splits(columns());
    ops.grow(scratch.low_rank, int64_t{4} * splits * rows.rows * ranks, "low-rank sums");
    cuda::LowRankShrinkParams shrink{};
    shrink.x = x.as<uint16_t>();
    shrink.slots = ops.slots_.low_rank(weight);
    shrink.groups = ops.rows_.groups_at(rows.table);
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
  const GroupedRows& rows = rows_.grouped(groups);
  Linear call{*this, rows, weight, x, base, rows.levels(weight), scratch_};
  call.make_planes();
  const int32_t ranks = rows.ranks(weight);
  if (ranks == 0) {
    call.run(out, kernel_epilogue(epilogue));
    return;
  }
  if (!gate) {
    call.run(out, kernel_epilogue(epilogue));
    call.add_low_rank(out, ranks);
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

}  // namespace deltad
