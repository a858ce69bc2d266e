// The mutation test: each barrier, wait and bound of a kernel is taken away in turn, and a run must
// notice.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/ptx/run.h"

namespace deltad::ptx {

// What differs between two machines that both obey the rules.
std::vector<Options> schedules();

struct Survivors {
  size_t tried = 0;
  std::vector<Mutation> unnoticed;  // by any run
  std::vector<std::string> wrong;   // barriers and waits that no run reached; or the right run
};

// `run` executes the kernel under the options, gives the outcome and says what is wrong: "" if
// nothing. Guards and bounds that never mattered in a right run are left out: there is nothing
// to notice.
Survivors survivors(const std::vector<Mutation>& mutations,
                    const std::function<std::string(const Options&, Outcome&)>& run);

}  // namespace deltad::ptx
