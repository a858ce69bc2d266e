// CpuOps: embed and rms_norm. Rows are shared out among the workers; a few rows are done by the
// caller alone, because a fork costs more than they do.
#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "kernels/cpu/embed.h"
#include "kernels/cpu/low_rank.h"
#include "kernels/cpu/norm.h"

namespace deltad {
namespace {

constexpr int64_t kForkElements = 8192;

// The dense replacement that a row's variant has for this weight, else the base's.
const CpuMatrix& matrix_of(const CpuVariantWeights* variant, const CpuWeights& base,
                           WeightId weight) {
  if (variant != nullptr) {
    const CpuWeightDelta& delta = variant->delta(weight);
    if (delta.dense) return *delta.dense;
  }
  return base.matrix(weight);
}

// Calls rows(worker's first row, end) on the workers.
template <typename Rows>
void for_rows(WorkerTeam& team, int64_t rows, int64_t columns, const Rows& work) {
  if (rows == 1 || rows * columns <= kForkElements) {
    work(0, rows);
    return;
  }
  team.run([&](int worker) {
    const Share share = share_of(rows, 1, worker, team.size());
    work(share.begin, share.end);
  });
}

}  // namespace

void CpuOps::embed(TensorView out, WeightId embedding, std::span<const int32_t> ids,
                   std::span<const RowGroup> groups) {
  CHECK(out.dtype == DType::kF32 && out.rows() == static_cast<int64_t>(ids.size()),
        "embed writes fp32, one row an id");
  const int64_t columns = out.shape[1];
  for_rows(team_, out.rows(), columns, [&](int64_t begin, int64_t end) {
    for (const RowGroup& group : groups) {
      const CpuMatrix& matrix = matrix_of(variant(group.slot), weights_, embedding);
      CHECK(matrix.columns == columns, "out is as wide as the embedding");
      const CpuVariantWeights* v = variant(group.slot);
      const cpu::LowRank low_rank = v == nullptr ? cpu::LowRank{} : v->delta(embedding).low_rank;
      for (int64_t r = std::max<int64_t>(begin, group.first_row);
           r < std::min<int64_t>(end, group.end_row); ++r) {
        const int32_t id = ids[static_cast<size_t>(r)];
        if (id == kElsewhere) {
          std::fill_n(out.row<float>(r), columns, 0.0f);
          continue;
        }
        CHECK(id >= 0 && id < matrix.rows, "ids are below the vocabulary");
        cpu::unpack_row(out.row<float>(r), matrix.storage.as<uint16_t>(), id, columns,
                        matrix.padded_columns);
        if (low_rank.ranks > 0) cpu::add_low_rank_row(out.row<float>(r), low_rank, id, columns);
      }
    }
  });
}

void CpuOps::rms_norm(TensorView out, TensorView x, WeightId norm, float eps,
                      std::span<const RowGroup> groups) {
  CHECK(x.dtype == DType::kF32 && out.dtype == activation_type() && out.rows() >= x.rows(),
        "rms_norm reads fp32 and writes an activation");
  const int64_t columns = x.shape[1];
  const cpu::RmsNormRow normalize = cpu::rms_norm_row(isa_);
  const auto row_bytes = out.row_stride * static_cast<int64_t>(dtype_size(out.dtype));
  for_rows(team_, x.rows(), columns, [&](int64_t begin, int64_t end) {
    for (const RowGroup& group : groups) {
      const CpuMatrix& weight = matrix_of(variant(group.slot), weights_, norm);
      CHECK(weight.rows == columns, "a norm has one value a column");
      for (int64_t r = std::max<int64_t>(begin, group.first_row);
           r < std::min<int64_t>(end, group.end_row); ++r) {
        normalize(out.as<char>() + r * row_bytes, x.row<float>(r), weight.storage.as<float>(),
                  columns, eps);
      }
    }
  });
}

}  // namespace deltad
