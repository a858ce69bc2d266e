#include "deltad/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace deltad {
namespace {

// For files that are being read, the collector of spans, the threads' own, and connections that are
// just being refused.
constexpr size_t kReserve = 64;
// An admin listener gets this part of the rest, at most.
constexpr size_t kAdminPart = 16;

}  // namespace

Connections divide_descriptors(size_t limit, size_t wanted, int listeners, int admins) {
  const size_t rest = limit > kReserve ? limit - kReserve : 0;
  const size_t admin = std::clamp<size_t>(rest / kAdminPart, 1, wanted);
  const size_t taken = std::min(rest, admin * static_cast<size_t>(admins));
  return {std::clamp<size_t>((rest - taken) / static_cast<size_t>(listeners), 1, wanted), admin};
}

size_t descriptors_for(size_t wanted, int listeners, int admins) {
  const size_t all = wanted * static_cast<size_t>(listeners);
  const size_t parts = kAdminPart - static_cast<size_t>(admins);
  return kReserve + (all * kAdminPart + parts - 1) / parts;
}

size_t raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    log_warning("the limit of file descriptors is not known: {}", std::strerror(errno));
    return 1024;  // where nobody set it
  }
  if (limit.rlim_cur == limit.rlim_max) return limit.rlim_cur;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) != 0) {
    log_warning("the limit of file descriptors stays at {}: {}", limit.rlim_cur,
                std::strerror(errno));
    return limit.rlim_cur;
  }
  log_info("limit of file descriptors: {}, raised from {}", raised.rlim_cur, limit.rlim_cur);
  return raised.rlim_cur;
}

}  // namespace deltad
