// File descriptors: raises the process's limit, and divides what it gives among the listeners, so
// that connections never take the last ones: files of variants, and connections of ours, need some.
// Main thread.
#pragma once

#include <cstddef>

namespace deltad {

// The listeners of a config, and how many connections each may have.
struct Connections {
  size_t listener;  // one of HTTP, one of gRPC: for those who ask for tokens
  size_t admin;     // each of the admin APIs
};

// limit: descriptors of the process. wanted: connections of each listener. At least one for each.
Connections divide_descriptors(size_t limit, size_t wanted, int listeners, int admins);
// The limit with which each may have what is wanted.
size_t descriptors_for(size_t wanted, int listeners, int admins);

// Sets the limit as high as the system lets this process. What it is then.
size_t raise_descriptor_limit();

}  // namespace deltad
