// CudaOps: embed, rms_norm, gather_rows and sum_parts.
#include "backend/cuda/cuda_ops.h"
#include "base/check.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/rms_norm.h"

namespace deltad {

void CudaOps::embed(TensorView out, WeightId embedding, std::span<const int32_t> ids,
                    std::span<const RowGroup> groups) {
  if (!working()) return;
  CHECK(ids.data() == tables_.ids.data(), "ids that are not the step's");
  for (const GroupedRows& rows : rows_.pieces(groups)) {
    cuda::EmbedParams p{};
    p.table = weights_.matrix(embedding).storage;
    p.slot_table = slots_.tables(embedding);
    p.low_rank = rows.ranks(embedding) > 0 ? slots_.low_rank(embedding) : nullptr;
    p.groups = rows_.groups_of(rows);
    p.ids = rows_.ids() + rows.first;
    p.out = out.row<float>(rows.first);
    p.out_stride = out.row_stride;
    p.rows = rows.rows;
    p.columns = static_cast<int32_t>(out.shape[1]);
    launch(cuda::kEmbedKernel, cuda::embed_launch(p), p);
  }
}

void CudaOps::rms_norm(TensorView out, TensorView x, WeightId norm, float eps,
                       std::span<const RowGroup> groups) {
  if (!working()) return;
  for (const GroupedRows& rows : rows_.pieces(groups)) {
    cuda::RmsNormParams p{};
    p.x = x.row<float>(rows.first);
    p.weight = static_cast<const uint16_t*>(weights_.matrix(norm).storage);
    p.slot_weight = reinterpret_cast<const uint16_t* const*>(slots_.tables(norm));
    p.groups = rows_.groups_of(rows);
    p.out = out.row<uint16_t>(rows.first);
    p.x_stride = x.row_stride;
    p.out_stride = out.row_stride;
    p.rows = rows.rows;
    p.columns = static_cast<int32_t>(x.shape[1]);
    p.eps = eps;
    launch(cuda::kRmsNormKernel, cuda::rms_norm_launch(p), p);
  }
}

void CudaOps::gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) {
  if (!working()) return;
  CHECK(rows.data() == tables_.logit_rows.data(), "rows that are not the step's");
  cuda::GatherRowsParams p{};
  p.x = x.as<float>();
  p.rows = rows_.logit_rows();
  p.out = out.as<float>();
  p.x_stride = x.row_stride;
  p.out_stride = out.row_stride;
  p.count = static_cast<int32_t>(rows.size());
  p.columns = static_cast<int32_t>(x.shape[1]);
  launch(cuda::kGatherRowsKernel, cuda::gather_rows_launch(p), p);
}

Status CudaOps::sum_parts(const cuda::SumPartsParams& p) {
  launch(cuda::kSumPartsKernel, cuda::sum_parts_launch(p), p);
  return failure_;
}

}  // namespace deltad
