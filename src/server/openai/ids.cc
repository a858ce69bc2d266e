#include "server/openai/ids.h"

#include <fmt/core.h>

#include <random>

namespace deltad {
namespace {

constexpr size_t kLongestId = 128;

std::mt19937_64& generator() {
  thread_local std::mt19937_64 engine = [] {
    std::random_device device;
    std::seed_seq seeds{device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seeds);
  }();
  return engine;
}

}  // namespace

uint64_t random_seed() { return generator()(); }

std::string random_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:016x}", prefix, generator()(), generator()());
}

bool valid_request_id(std::string_view id) {
  if (id.empty() || id.size() > kLongestId) return false;
  for (const char c : id) {
    if (c <= ' ' || c > '~' || c == '"' || c == '\'' || c == '\\') return false;
  }
  return true;
}

std::string request_id_of(const HttpRequest& request) {
  const std::string* given = request.header("x-request-id");
  return given != nullptr && valid_request_id(*given) ? *given : random_id("req-");
}

}  // namespace deltad
