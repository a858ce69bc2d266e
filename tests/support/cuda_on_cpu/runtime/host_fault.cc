// When the host touches memory of a device, or pinned memory that it has freed, the process ends
// with a line that says which.
#include "tests/support/cuda_on_cpu/runtime/host_fault.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace deltad::emulated_gpu {
namespace {

struct Range {
  std::atomic<uintptr_t> begin = 0, end = 0;
};
std::array<Range, 16> ranges;  // device n's addresses
struct sigaction before[2];

void write_text(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

// Nothing but what is safe in a signal's handler.
void handle(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (address < ranges[i].begin || address >= ranges[i].end) continue;
    char line[] =
        "emulated GPU: the host touches memory of device 00, byte 0x0000000000000000 of its "
        "addresses\n";
    char* number = std::strstr(line, "00");
    number[0] = static_cast<char>('0' + i / 10);
    number[1] = static_cast<char>('0' + i % 10);
    char* digits = std::strstr(line, "0x") + 2;
    for (int d = 0; d < 16; ++d) {
      digits[d] = "0123456789abcdef"[(address - ranges[i].begin) >> (60 - 4 * d) & 15];
    }
    write_text(line);
  }
  const struct sigaction& next = before[signal == SIGSEGV ? 0 : 1];
  if ((next.sa_flags & SA_SIGINFO) != 0 && next.sa_sigaction != nullptr) {
    next.sa_sigaction(signal, info, context);
    return;
  }
  sigaction(signal, &next, nullptr);  // comes again, to whoever was there before
}

}  // namespace

void watch_device_addresses(int device, const void* base, size_t bytes) {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
    return true;
  }();
  if (!installed || static_cast<size_t>(device) >= ranges.size()) return;
  Range& range = ranges[static_cast<size_t>(device)];
  range.begin = reinterpret_cast<uintptr_t>(base);
  range.end = range.begin + bytes;
}

}  // namespace deltad::emulated_gpu
