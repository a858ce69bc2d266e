// Manual pages out of the command line's own help texts, so that the two cannot differ. Any thread.
#pragma once

#include <string>

#include "manual/command.h"

namespace deltad {

// The page of `app` and its subcommands for section `section`, as roff for man(1). related: "SEE
// ALSO", as "deltad(8), …"; "": none.
std::string man_page(const Command& app, int section, const std::string& version,
                     const std::string& related);

}  // namespace deltad
