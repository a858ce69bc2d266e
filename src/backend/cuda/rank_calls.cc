// Small sums (generated rows) are added whole by every rank. Of large ones (prompts) each rank adds
// some rows, where they lie, and fetches the others': 2 instead of N times the part goes over the
// links. The bits are the same either way.
#include "backend/cuda/rank_calls.h"

#include "base/check.h"

namespace deltad {
namespace {

// Rows [first, end) of out get the sum of those of the parts.
void add_sum(RankTurn& turn, TensorView out, std::span<const TensorView> parts, int64_t first,
             int64_t end, Epilogue epilogue) {
  if (first >= end) return;
  std::vector<const float*> rows;
  for (const TensorView& part : parts) rows.push_back(part.row<float>(first));
  out.data = out.row<float>(first);
  turn.launches.push_back(sum_of_parts(out, end - first, rows, parts[0].row_stride, epilogue));
}

std::vector<RankTurn> turns_of_collect(const RankCall& call, int rank,
                                       std::span<const TensorView> parts) {
  RankTurn turn;
  turn.waits = rank == 0;
  int64_t column = parts[0].shape[1];
  for (size_t r = 1; rank == 0 && r < parts.size(); ++r) {
    CHECK(parts[r].rows() == call.out.rows() && column + parts[r].shape[1] <= call.out.shape[1],
          "collect: columns of all ranks side by side");
    TensorView to = call.out;
    to.data = call.out.row<float>(0) + column;
    to.shape = parts[r].shape;
    add_sum(turn, to, parts.subspan(r, 1), 0, to.rows(), Epilogue::kStore);
    column += parts[r].shape[1];
  }
  return {turn};
}

}  // namespace

cuda::SumPartsParams sum_of_parts(TensorView out, int64_t rows, std::span<const float* const> parts,
                                  int64_t part_stride, Epilogue epilogue) {
  cuda::SumPartsParams p{};
  for (const float* part : parts) p.parts[p.count++] = part;
  p.out = out.row<float>(0);
  p.part_stride = part_stride;
  p.out_stride = out.row_stride;
  p.rows = static_cast<int32_t>(rows);
  p.columns = static_cast<int32_t>((out.shape[1] + 3) / 4 * 4);  // rows have room for it
  p.add = epilogue == Epilogue::kAddResidual ? 1 : 0;
  return p;
}

std::vector<RankTurn> turns_of(const RankCall& call, int rank, std::span<const TensorView> parts) {
  if (call.collects) return turns_of_collect(call, rank, parts);
  const auto ranks = static_cast<int>(parts.size());
  const int64_t rows = call.part.rows();
  if (rows * call.part.row_stride * int64_t{sizeof(float)} < kLargePart || ranks == 2) {
    RankTurn all;
    add_sum(all, call.out, parts, 0, rows, call.epilogue);
    return {all};
  }
  const auto first_row = [&](int r) { return rows * r / ranks; };
  std::vector<RankTurn> turns(2);
  add_sum(turns[0], call.part, parts, first_row(rank), first_row(rank + 1), Epilogue::kStore);
  for (int r = 0; r < ranks; ++r)
    add_sum(turns[1], call.out, parts.subspan(static_cast<size_t>(r), 1), first_row(r),
            first_row(r + 1), call.epilogue);
  return turns;
}

}  // namespace deltad
