#include "backend/cuda/step_program.h"

#include <algorithm>

#include "base/check.h"

namespace deltad {

StepProgram::~StepProgram() {
  for (auto& [list, known] : known_)
    if (known.graph != nullptr) cudaGraphExecDestroy(known.graph);
}

void StepProgram::begin(bool repeats) {
  gathers_ = repeats;
  list_.clear();
  gathered_.clear();
  ++steps_;
}

void StepProgram::gather(const char* name, const cuda::Launch& shape, const void* params,
                         size_t bytes) {
  constexpr size_t kAlignment = 16;  // of the parameters, which are read where they lie
  list_.append(name != nullptr ? name : "meeting");
  list_.append(reinterpret_cast<const char*>(&shape), sizeof shape);
  list_.resize((list_.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
  gathered_.push_back({name, shape, list_.size()});
  list_.append(static_cast<const char*>(params), bytes);
}

Status StepProgram::launch_gathered() {
  for (const Entry& entry : gathered_) RETURN_IF_ERROR(launch(entry));
  return {};
}

Status StepProgram::flush() {
  if (!gathers_) return {};  // they were launched as they came, or by end()
  CHECK(others_ == nullptr, "a list of ranks is run whole");
  gathers_ = false;
  const Status status = launch_gathered();
  gathered_.clear();
  return status;
}

Status StepProgram::end() {
  if (!gathers_) return {};
  gathers_ = false;
  if (others_ != nullptr) return others_->run_list();
  const auto [known, fresh] = remember();
  if (fresh) return launch_gathered();
  if (known.graph == nullptr) RETURN_IF_ERROR(capture(known));
  ++replays_;
  return CUDA_STATUS(device_, cudaGraphLaunch(known.graph, device_.compute()),
                     "launching a step's graph");
}

std::pair<StepProgram::Known&, bool> StepProgram::remember() {
  const auto [at, fresh] = known_.try_emplace(list_);
  Known& known = at->second;
  known.used = steps_;
  if (fresh) known.number = ++numbers_;
  if (fresh && known_.size() > kMostKnown) forget_oldest();
  return {known, fresh};
}

Status StepProgram::capture(Known& known) {
  RETURN_IF_ERROR(CUDA_STATUS(
      device_, cudaStreamBeginCapture(device_.compute(), cudaStreamCaptureModeThreadLocal),
      "beginning to capture a step"));
  Status status = launch_gathered();
  cudaGraph_t captured = nullptr;
  const Status ended =
      CUDA_STATUS(device_, cudaStreamEndCapture(device_.compute(), &captured), "capturing a step");
  if (status.ok()) status = ended;
  if (status.ok())
    status = CUDA_STATUS(device_, cudaGraphInstantiate(&known.graph, captured, 0),
                         "making a graph of a step");
  if (captured != nullptr) cudaGraphDestroy(captured);
  if (!status.ok()) return status;
  known.bytes = gathered_.size() * kNodeBytes;
  device_bytes_ += known.bytes;
  return {};
}

void StepProgram::forget_oldest() {
  const auto oldest =
      std::min_element(known_.begin(), known_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  if (oldest->second.graph != nullptr) cudaGraphExecDestroy(oldest->second.graph);
  device_bytes_ -= oldest->second.bytes;
  known_.erase(oldest);
}

}  // namespace deltad
