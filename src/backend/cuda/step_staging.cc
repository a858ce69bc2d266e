#include "backend/cuda/step_staging.h"

#include <cstring>

namespace deltad {

StepStaging::~StepStaging() {
  for (cudaEvent_t event : copied_)
    if (event != nullptr) cudaEventDestroy(event);
}

size_t StepStaging::add_bytes(const void* values, size_t bytes) {
  const size_t place = (gathered_.size() + kAlignment - 1) / kAlignment * kAlignment;
  gathered_.resize(place + bytes);
  if (bytes > 0) std::memcpy(gathered_.data() + place, values, bytes);
  return place;
}

Status StepStaging::make_room(size_t bytes) {
  if (bytes > device_memory_.bytes())
    RETURN_IF_ERROR(
        device_memory_.grow(device_, device_.compute(), bytes + bytes / 2, "the tables of a step"));
  if (copied_[next_] != nullptr)
    RETURN_IF_ERROR(CUDA_STATUS(device_, cudaEventSynchronize(copied_[next_]),
                                "waiting for the tables of an earlier step"));
  else
    RETURN_IF_ERROR(CUDA_STATUS(device_,
                                cudaEventCreateWithFlags(&copied_[next_], cudaEventDisableTiming),
                                "making an event of the tables of a step"));
  if (bytes > pinned_[next_].bytes()) {
    ASSIGN_OR_RETURN(PinnedMemory grown,
                     PinnedMemory::make(device_, bytes + bytes / 2, "the tables of a step"));
    if (pinned_[next_].bytes() > 0) outgrown_.push_back(std::move(pinned_[next_]));
    pinned_[next_] = std::move(grown);
  }
  return {};
}

Status StepStaging::send() {
  RETURN_IF_ERROR(make_room(gathered_.size()));
  const size_t piece = next_;
  std::memcpy(pinned_[piece].data(), gathered_.data(), gathered_.size());
  RETURN_IF_ERROR(
      CUDA_STATUS(device_,
                  cudaMemcpyAsync(device_memory_.data(), pinned_[piece].data(), gathered_.size(),
                                  cudaMemcpyHostToDevice, device_.compute()),
                  "copying the tables of a step"));
  next_ = (next_ + 1) % kPieces;
  return CUDA_STATUS(device_, cudaEventRecord(copied_[piece], device_.compute()),
                     "marking the tables of a step");
}

}  // namespace deltad
