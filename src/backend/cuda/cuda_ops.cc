#include "backend/cuda/cuda_ops.h"

#include <cstring>

#include "base/check.h"

namespace deltad {
namespace {

// More rows are worth launching one by one, and would be graphs for too many sizes.
constexpr size_t kMostGraphRows = 64;

}  // namespace

CudaOps::CudaOps(CudaDevice& device, const CudaKernels& kernels, const CudaWeights& weights,
                 int host_threads)
    : device_(device),
      kernels_(kernels),
      weights_(weights),
      team_(host_threads, false),
      bound_(kCudaSlots, nullptr),
      slots_(device),
      rows_(device, slots_),
      program_(device, kernels),
      sampling_(device) {}

Status CudaOps::allocate_slots() {
  const Status status = slots_.allocate(weights_.specs().size(), weights_.apart_entries());
  count_bytes();
  return status;
}

void CudaOps::bind_slot(int32_t slot, const VariantWeights* variant) {
  CHECK(slot >= 0 && slot < kCudaSlots, "no such slot");
  bound_[static_cast<size_t>(slot)] = static_cast<const CudaVariantWeights*>(variant);
}

void CudaOps::begin_step(const StepTables& tables) {
  failure_ = device_.use();
  tables_ = tables;
  if (working()) note(rows_.begin(tables, bound_, weights_.specs().size()));
  program_.begin(working() && rows_.prompt_tiles() == 0 && tables.ids.size() <= kMostGraphRows);
}

Status CudaOps::end_list() {
  if (working()) note(program_.end());
  // In the order of the stream; not after a failure, when another rank may still capture it.
  if (working()) outgrown_.clear();
  return failure_;
}

Status CudaOps::flush() {
  if (working()) note(program_.flush());
  return failure_;
}

Result<TensorView> CudaOps::download(TensorView values) {
  ASSIGN_OR_RETURN(values, fetch(values));
  CHECK(values.rows() == static_cast<int64_t>(tables_.ids.size()), "rows that are not the batch's");
  if (!rows_.reordered()) return values;
  const size_t row_bytes = static_cast<size_t>(values.row_stride) * dtype_size(values.dtype);
  in_order_.resize(static_cast<size_t>(values.rows()) * row_bytes);
  for (int32_t row = 0; row < values.rows(); ++row)
    std::memcpy(in_order_.data() + static_cast<size_t>(row) * row_bytes,
                static_cast<const std::byte*>(values.data) +
                    static_cast<size_t>(rows_.place_of(row)) * row_bytes,
                row_bytes);
  values.data = in_order_.data();
  return values;
}

Result<TensorView> CudaOps::fetch(TensorView values) {
  RETURN_IF_ERROR(flush());
  const size_t bytes =
      static_cast<size_t>(values.rows() * values.row_stride) * dtype_size(values.dtype);
  RETURN_IF_ERROR(fetch_bytes({{{values.data, bytes}, {nullptr, 0}}}));
  values.data = downloaded_.data();
  values.device = DeviceKind::kCpu;
  return values;
}

Status CudaOps::fetch_bytes(const std::array<OnDevice, 2>& parts,
                            const std::function<Status()>& meanwhile) {
  const size_t bytes = parts[0].bytes + parts[1].bytes;
  if (bytes > downloaded_.bytes()) {
    // Grown by more than is asked for: batches differ.
    Result<PinnedMemory> grown = PinnedMemory::make(device_, bytes + bytes / 2, "a step's result");
    if (!grown.ok()) {
      note(grown.status());
      return failure_;
    }
    // To give pinned memory back may wait for the GPUs, without a bound: while a rank's may hang it
    // is kept. By what it grows, that is at most twice what is used.
    if (has_others_ && downloaded_.bytes() > 0) outgrown_pinned_.push_back(std::move(downloaded_));
    downloaded_ = std::move(*grown);
  }
  size_t at = 0;
  for (const OnDevice& part : parts) {
    if (part.bytes > 0)
      note(CUDA_STATUS(device_,
                       cudaMemcpyAsync(downloaded_.at<void>(at), part.data, part.bytes,
                                       cudaMemcpyDeviceToHost, device_.compute()),
                       "copying a step's result to the host"));
    at += part.bytes;
  }
  if (meanwhile && working()) RETURN_IF_ERROR(meanwhile());
  note(CUDA_STATUS(device_, cudaStreamSynchronize(device_.compute()), "running a step"));
  return failure_;
}

Result<TensorView> CudaOps::end_step(TensorView result) {
  (void)end_list();
  note(device_.step_ended());
  count_bytes();
  if (!working()) return failed();
  if (result.data == nullptr) return result;
  return fetch(result);
}

// Nothing of it is under way when its variants go. Those of ranks stay: none goes on after this.
Status CudaOps::failed() {
  if (!has_others_) (void)cudaStreamSynchronize(device_.compute());
  return failure_;
}

void CudaOps::count_bytes() {
  size_t bytes =
      slots_.bytes() + rows_.device_bytes() + program_.device_bytes() + sampling_.device_bytes();
  for (const DeviceMemory* memory :
       {&scratch_.planes, &scratch_.plane_scale, &scratch_.plane_sum, &scratch_.base_parts,
        &scratch_.sign_parts, &scratch_.arrivals, &scratch_.low_rank, &scratch_.gate,
        &scratch_.packed, &scratch_.packed_scale, &scratch_.attention_parts,
        &scratch_.sample_unchanged, &scratch_.sample_results, &scratch_.sample_tops,
        &scratch_.attention_arrivals})
    bytes += memory->bytes();
  device_bytes_.store(bytes, std::memory_order_relaxed);
}

void CudaOps::parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) {
  team_.take_turns(n, true, [&](int, int64_t i) { work(context, i); });
}

}  // namespace deltad
