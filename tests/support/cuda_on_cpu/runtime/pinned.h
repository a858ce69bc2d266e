// Watches pinned host memory: between the call that hands it to the device and the moment when the
// host has seen the work's end, the host must not write to it. Owned by the allocation; under the
// runtime's lock.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/cuda_on_cpu/access_log.h"
#include "tests/support/cuda_on_cpu/runtime/operation.h"

namespace deltad::emulated_gpu {

class PinnedWatch {
 public:
  PinnedWatch(std::byte* base, size_t bytes)
      : base_(base), mirror_(static_cast<std::byte*>(std::calloc(bytes, 1))) {}

  // Work that reads or writes these bytes was handed over. What it is to write becomes poison, if
  // nothing else is under way there: whoever reads it too early shall notice. What is wrong, if the
  // host wrote while earlier work was under way.
  std::optional<std::string> hand_over(emulator::Interval bytes, bool device_writes,
                                       const std::shared_ptr<Operation>& operation,
                                       const Clock& host);
  // The work runs: what is wrong, if the host wrote in the meantime.
  std::optional<std::string> check(emulator::Interval bytes) const;
  // The device wrote.
  void wrote(emulator::Interval bytes);
  // Work that the host has not seen the end of, in words; "" if there is none.
  std::string in_use(const Clock& host) const;

 private:
  struct Use {
    emulator::Interval bytes;
    std::shared_ptr<Operation> operation;
  };
  void forget(const Clock& host);

  std::byte* const base_;
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  // What the bytes in use should be. What is never in use takes no memory.
  const std::unique_ptr<std::byte[], Free> mirror_;
  std::vector<Use> uses_;
};

}  // namespace deltad::emulated_gpu
