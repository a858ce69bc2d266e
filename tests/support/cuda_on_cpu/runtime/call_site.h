// Where in the program a call of the runtime was made: the return address, and those of the callers
// above, so that a wrapper's users are told apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace deltad::emulated_gpu {

struct CallSite {
  static constexpr size_t kMaxFrames = 4;
  std::array<uintptr_t, kMaxFrames> frames{};  // innermost first; 0: none

  // Of the function whose frame and return address these are (the built-ins of GCC and Clang).
  static CallSite of(const void* return_address, const void* frame, size_t count);
  // "Stream::wait < Loader::finish"; with lines where the program has debug information. Slow.
  std::string text() const;
  // The same from run to run of one program, wherever it was loaded.
  std::string key() const;
  // What text() says, of a key of this program.
  static std::string text_of(const std::string& key);

  auto operator<=>(const CallSite&) const = default;
};

}  // namespace deltad::emulated_gpu
