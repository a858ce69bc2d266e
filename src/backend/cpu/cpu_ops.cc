#include "backend/cpu/cpu_ops.h"

#include <cstring>

namespace deltad {
namespace {

// Groups of one batch that have a variant; more than a step ever has rows of different variants.
constexpr int32_t kMaxSlots = 256;

}  // namespace

CpuOps::CpuOps(Isa isa, WorkerTeam& team, const CpuWeights& weights)
    : isa_(isa), team_(team), weights_(weights), slots_(kMaxSlots, nullptr) {}
CpuOps::~CpuOps() = default;

DType CpuOps::activation_type() const {
  return isa_ == Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF32;
}

int32_t CpuOps::max_slots() const { return kMaxSlots; }

// Whole cache lines of bf16, so that kernels may read whole vectors.
int64_t CpuOps::row_stride(int64_t columns) const { return (columns + 31) / 32 * 32; }

void CpuOps::bind_slot(int32_t slot, const VariantWeights* variant) {
  CHECK(slot >= 0 && slot < kMaxSlots, "no such slot");
  slots_[static_cast<size_t>(slot)] = static_cast<const CpuVariantWeights*>(variant);
}

void CpuOps::gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) {
  CHECK(out.dtype == DType::kF32 && x.dtype == DType::kF32, "gather_rows takes fp32");
  const size_t bytes = static_cast<size_t>(x.shape[1]) * sizeof(float);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(out.row<float>(static_cast<int64_t>(i)), x.row<float>(rows[i]), bytes);
}

void CpuOps::parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) {
  team_.take_turns(n, true, [&](int, int64_t i) { work(context, i); });
}

}  // namespace deltad
