#include "tests/support/cuda_on_cpu/runtime/call_site.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <string_view>

namespace deltad::emulated_gpu {
namespace {

struct Bounds {
  uintptr_t low = 0, high = 0;
};

// Of the calling thread's stack.
Bounds stack_bounds() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* low = nullptr;
  size_t bytes = 0;
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  const auto base = reinterpret_cast<uintptr_t>(low);
  return {base, base + bytes};
}

// The program or library that an address is in, and how far.
std::pair<std::string, uintptr_t> module_of(uintptr_t address) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(address), &info) == 0) return {"?", address};
  return {info.dli_fname, address - reinterpret_cast<uintptr_t>(info.dli_fbase)};
}

std::string hex(uintptr_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%zx", static_cast<size_t>(value));
  return text;
}

// "deltad::Stream::wait(…) stream.cc:41", by addr2line.
std::string look_up(uintptr_t address) {
  auto [file, offset] = module_of(address);
  if (file.empty() || file.find('/') == std::string::npos) file = "/proc/self/exe";
  const std::string command =
      "addr2line -f -C -s -e '" + file + "' " + hex(offset - 1) + " 2>/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return hex(offset);
  std::string output;
  for (char part[256]; std::fgets(part, sizeof part, pipe) != nullptr;) output += part;
  pclose(pipe);
  const size_t line = output.find('\n');
  if (line == std::string::npos || output.starts_with("??")) return hex(offset);
  std::string text = output.substr(0, line);
  constexpr std::string_view kHidden = "(anonymous namespace)::";
  for (size_t at; (at = text.find(kHidden)) != std::string::npos;) text.erase(at, kHidden.size());
  text.resize(std::min(text.size(), text.find('(')));  // without the parameters
  if (output.find("??", line) == std::string::npos) {
    text += " " + output.substr(line + 1, output.find_first_of("\n ", line + 1) - line - 1);
  }
  return text;
}

}  // namespace

CallSite CallSite::of(const void* return_address, const void* frame, size_t count) {
  static thread_local const Bounds stack = stack_bounds();
  CallSite site;
  site.frames[0] = reinterpret_cast<uintptr_t>(return_address);
  const auto* link = static_cast<const uintptr_t*>(frame);
  for (size_t i = 1; i < count && i < kMaxFrames; ++i) {
    const uintptr_t next = link[0];  // the caller's frame, above its own return address
    if (next <= reinterpret_cast<uintptr_t>(link) || next < stack.low ||
        next + 2 * sizeof(uintptr_t) > stack.high || next % sizeof(uintptr_t) != 0) {
      break;
    }
    link = reinterpret_cast<const uintptr_t*>(next);
    site.frames[i] = link[1];
  }
  return site;
}

std::string CallSite::text() const {
  // Never destroyed: a report is written when the program ends.
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<uintptr_t, std::string>;
  const std::lock_guard lock(mutex);
  std::string all;
  for (const uintptr_t frame : frames) {
    if (frame == 0) break;
    auto [found, added] = known.try_emplace(frame);
    if (added) found->second = look_up(frame);
    all += (all.empty() ? "" : " < ") + found->second;
  }
  return all;
}

// Frames in shared libraries are not found again.
std::string CallSite::text_of(const std::string& key) {
  CallSite site;
  const auto base = reinterpret_cast<uintptr_t>(&module_of) -
                    module_of(reinterpret_cast<uintptr_t>(&module_of)).second;
  size_t at = 0;
  for (uintptr_t& frame : site.frames) {
    frame = base + std::stoull(key.substr(at), nullptr, 16);
    at = key.find(',', at);
    if (at++ == std::string::npos) break;
  }
  return site.text();
}

std::string CallSite::key() const {
  std::string all;
  for (const uintptr_t frame : frames) {
    if (frame == 0) break;
    all += (all.empty() ? "" : ",") + hex(module_of(frame).second);
  }
  return all;
}

}  // namespace deltad::emulated_gpu
