// Completion in the shell, out of the command line's own definition. Any thread.
#pragma once

#include <string>

#include "manual/command.h"

namespace deltad {

// A script for bash that completes the subcommands and options of `app`, and file names elsewhere;
// zsh takes it after bashcompinit.
std::string bash_completion(const Command& app);

}  // namespace deltad
