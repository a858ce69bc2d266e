#include "engine/memory_budget.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace deltad {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// The number in a file; kUnknown if there is none ("max", or no such file).
int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value && value >= 0 ? value : kUnknown;
}

int64_t mem_available(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string key;
    int64_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") return kib * 1024;
  }
  return kUnknown;
}

int64_t left(int64_t limit, int64_t used) {
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  return std::max<int64_t>(limit - used, 0);
}

// Control groups, version 2 and then 1, as a container sees its own.
int64_t cgroup_left(const std::string& root) {
  const std::string v2 = root + "/sys/fs/cgroup/", v1 = v2 + "memory/";
  return std::min(
      left(number_in(v2 + "memory.max"), number_in(v2 + "memory.current")),
      left(number_in(v1 + "memory.limit_in_bytes"), number_in(v1 + "memory.usage_in_bytes")));
}

}  // namespace

int64_t available_memory(const std::string& root) {
  const int64_t bytes = std::min(mem_available(root), cgroup_left(root));
  return bytes == kUnknown ? 0 : bytes;
}

}  // namespace deltad
