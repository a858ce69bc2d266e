// CpuOps::linear: turns a batch's row groups into jobs for kernels/cpu/linear (one for all rows
// that read the base's matrix, one for each group with a matrix of its own) and divides each job's
// output tiles among the workers. Before those, the shrink step of low-rank groups is divided; its
// results are awaited only when the first tiles' base product is there.
#include <algorithm>
#include <array>
#include <vector>

#include "backend/cpu/cpu_ops.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/linear.h"

namespace deltad {
namespace {

using cpu::kTileRows;
using cpu::LinearGroup;
using cpu::LinearJob;
using cpu::LowRankGroup;

// Up to this many activation values each worker prepares all of them for itself, which is cheaper
// than meeting the others at a barrier.
constexpr int64_t kPrepareAlone = 4096;

cpu::LinearEpilogue kernel_epilogue(Epilogue e) {
  switch (e) {
    case Epilogue::kStore:
      return cpu::LinearEpilogue::kStore;
    case Epilogue::kAddResidual:
      return cpu::LinearEpilogue::kAddResidual;
    case Epilogue::kSiluGate:
      return cpu::LinearEpilogue::kSiluGate;
  }
  return cpu::LinearEpilogue::kStore;
}

// One worker's share of the shrink step of a job's low-rank groups: blocks of a few ranks for a few
// rows, so that many workers find work in a long prompt and few rows are not cut up.
void shrink_share(const LinearJob& job, Isa isa, int worker, int size) {
  constexpr int32_t kRanks = 8, kRows = 32;
  const auto blocks = [](int32_t n, int32_t of) { return (n + of - 1) / of; };
  int64_t all = 0;
  for (int32_t i = 0; i < job.low_rank_count; ++i) {
    const LowRankGroup& g = job.low_rank[i];
    all += int64_t{blocks(g.factors.ranks, kRanks)} * blocks(g.end_row - g.first_row, kRows);
  }
  if (all == 0) return;
  Share share = share_of(all, 1, worker, size);
  for (int32_t i = 0; i < job.low_rank_count && share.end > 0; ++i) {
    const LowRankGroup& g = job.low_rank[i];
    const int64_t of_rows = blocks(g.end_row - g.first_row, kRows);
    const int64_t units = blocks(g.factors.ranks, kRanks) * of_rows;
    for (int64_t u = std::max<int64_t>(share.begin, 0); u < std::min(share.end, units); ++u) {
      const auto k = static_cast<int32_t>(u / of_rows) * kRanks;
      const auto r = g.first_row + static_cast<int32_t>(u % of_rows) * kRows;
      cpu::low_rank_kernels(isa).shrink(g, job.x, job.columns, k,
                                        std::min(g.factors.ranks, k + kRanks), r,
                                        std::min(g.end_row, r + kRows));
    }
    share.begin -= units;
    share.end -= units;
  }
}

// This worker's arrival at the point that all must have reached before t is read.
struct Arrival {
  const WorkerTeam* team;
  uint32_t ticket;
  void await() const { team->await(ticket); }
};

char* at(const Buffer& buffer, size_t offset) { return static_cast<char*>(buffer.data()) + offset; }

}  // namespace

// Kept from call to call, so that a step allocates nothing once it has seen its largest batch.
struct CpuOps::LinearScratch {
  struct Piece {
    LinearJob job;
    size_t first_row;    // of rows_x and rows_out
    size_t first_group;  // of groups
    size_t first_low_rank;
    size_t prepared_at;  // in prepared
  };
  std::vector<Piece> pieces;
  std::vector<const void*> rows_x;
  std::vector<void*> rows_out;
  std::vector<LinearGroup> groups;
  std::vector<LowRankGroup> low_rank;
  Buffer low_rank_t;           // t of all low-rank groups, shared by the workers
  Buffer prepared;             // shared by the workers
  std::vector<Buffer> worker;  // one a worker

  void clear() {
    pieces.clear();
    rows_x.clear();
    rows_out.clear();
    groups.clear();
    low_rank.clear();
  }
  static void grow(Buffer& buffer, size_t bytes) {
    if (buffer.bytes() >= bytes) return;
    Result<Buffer> made = Buffer::cpu(bytes + bytes / 2);
    CHECK(made.ok(), "no memory for the scratch of a linear layer");
    buffer = std::move(*made);
  }
};

void CpuOps::linear(TensorView out, TensorView x, WeightId weight, std::span<const RowGroup> groups,
                    Epilogue epilogue) {
  const CpuMatrix& base = weights_.matrix(weight);
  const bool gate = epilogue == Epilogue::kSiluGate;
  CHECK(x.dtype == activation_type() && x.shape[1] == base.columns &&
            x.row_stride >= base.padded_columns,
        "linear: x does not fit the weight");
  CHECK(out.dtype == (gate ? activation_type() : DType::kF32), "linear: wrong type of out");
  CHECK(!gate || weights_.spec(weight).interleaved, "linear: kSiluGate needs interleaved weights");
  if (!linear_scratch_) linear_scratch_ = std::make_shared<LinearScratch>();
  LinearScratch& s = *linear_scratch_;
  s.clear();

  // Pieces: the rows that read the base's matrix first, then the groups that do not.
  const auto begin_piece = [&](const CpuMatrix& m) {
    LinearJob job{};
    job.w = m.storage.as<uint16_t>();
    job.tiles = m.padded_rows / kTileRows;
    job.columns = m.padded_columns;
    job.rows = gate ? m.rows : std::min(m.rows, out.shape[1]);
    job.epilogue = kernel_epilogue(epilogue);
    s.pieces.push_back({job, s.rows_x.size(), s.groups.size(), s.low_rank.size(), 0});
  };
  const auto add_rows = [&](const RowGroup& g, const CpuWeightDelta* delta) {
    LinearJob& job = s.pieces.back().job;
    if (delta != nullptr && !delta->levels.empty()) {
      LinearGroup to{
          job.m, job.m + (g.end_row - g.first_row), static_cast<int32_t>(delta->levels.size()), {}};
      for (size_t l = 0; l < delta->levels.size(); ++l)
        to.level[l] = {delta->levels[l].bits.as<uint64_t>(), delta->levels[l].alpha.as<float>()};
      s.groups.push_back(to);
      ++job.group_count;
    }
    if (delta != nullptr && delta->low_rank.ranks > 0) {
      s.low_rank.push_back({job.m, job.m + (g.end_row - g.first_row), delta->low_rank, nullptr});
      ++job.low_rank_count;
    }
    for (int32_t r = g.first_row; r < g.end_row; ++r) {
      s.rows_x.push_back(x.row<char>(0) +
                         r * x.row_stride * static_cast<int64_t>(dtype_size(x.dtype)));
      s.rows_out.push_back(out.row<char>(0) +
                           r * out.row_stride * static_cast<int64_t>(dtype_size(out.dtype)));
    }
    job.m += g.end_row - g.first_row;
  };
  const auto delta_of = [&](const RowGroup& g) {
    const CpuVariantWeights* v = variant(g.slot);
    return v == nullptr ? nullptr : &v->delta(weight);
  };
  begin_piece(base);
  for (const RowGroup& g : groups) {
    const CpuWeightDelta* delta = delta_of(g);
    if (delta == nullptr || !delta->dense) add_rows(g, delta);
  }
  if (s.pieces.back().job.m == 0) s.pieces.clear();
  for (const RowGroup& g : groups) {
    const CpuWeightDelta* delta = delta_of(g);
    if (delta == nullptr || !delta->dense || g.end_row <= g.first_row) continue;
    begin_piece(*delta->dense);
    add_rows(g, delta);
  }

  const cpu::LinearKernels& kernels = cpu::linear_kernels(isa_);
  size_t prepared = 0, own = 0;
  int64_t values = 0;
  for (LinearScratch::Piece& p : s.pieces) {
    p.job.x = s.rows_x.data() + p.first_row;
    p.job.out = s.rows_out.data() + p.first_row;
    p.job.groups = s.groups.data() + p.first_group;
    p.job.low_rank = s.low_rank.data() + p.first_low_rank;
    p.prepared_at = prepared;
    prepared += (kernels.prepared_bytes(p.job) + 63) / 64 * 64;
    own = std::max(own, kernels.worker_bytes(p.job));
    if (kernels.prepare_units(p.job) > 0) values += p.job.m * p.job.columns;
  }
  const bool alone = values <= kPrepareAlone;
  if (!alone) LinearScratch::grow(s.prepared, prepared);
  s.worker.resize(static_cast<size_t>(team_.size()));
  own = (own + 63) / 64 * 64;
  for (Buffer& b : s.worker) LinearScratch::grow(b, own + (alone ? prepared : 0));

  if (!s.low_rank.empty()) {
    int64_t floats = 0;
    for (const LowRankGroup& g : s.low_rank) floats += (g.end_row - g.first_row) * g.factors.ranks;
    LinearScratch::grow(s.low_rank_t, static_cast<size_t>(floats) * sizeof(float));
    auto* t = s.low_rank_t.as<float>();
    for (LowRankGroup& g : s.low_rank) {
      g.t = t;
      t += (g.end_row - g.first_row) * g.factors.ranks;
    }
  }

  team_.run([&](int worker) {
    const Buffer& mine = s.worker[static_cast<size_t>(worker)];
    const int size = team_.size();
    for (const LinearScratch::Piece& p : s.pieces) {
      const int32_t units = kernels.prepare_units(p.job);
      const Share share = alone ? Share{0, units} : share_of(units, 1, worker, size);
      char* to = alone ? at(mine, own + p.prepared_at) : at(s.prepared, p.prepared_at);
      kernels.prepare(p.job, to, static_cast<int32_t>(share.begin),
                      static_cast<int32_t>(share.end));
    }
    for (const LinearScratch::Piece& p : s.pieces) shrink_share(p.job, isa_, worker, size);
    // What was prepared together is needed at once, t only when the first sums are there.
    const bool meets = !alone || !s.low_rank.empty();
    const Arrival arrival{&team_, meets ? team_.arrive() : 0};
    if (!alone) arrival.await();
    for (const LinearScratch::Piece& p : s.pieces) {
      const Share tiles = share_of(p.job.tiles, gate ? 2 : 1, worker, size);
      const char* from = alone ? at(mine, own + p.prepared_at) : at(s.prepared, p.prepared_at);
      LinearJob job = p.job;
      if (alone && job.low_rank_count > 0) {
        job.await_t = [](const void* context) { static_cast<const Arrival*>(context)->await(); };
        job.await_context = &arrival;
      }
      kernels.run(job, from, mine.data(), tiles.begin, tiles.end);
    }
  });
  for (const RowGroup& g : groups)
    if (const CpuVariantWeights* v = variant(g.slot)) v->prefetch_after(weight);
}

}  // namespace deltad
