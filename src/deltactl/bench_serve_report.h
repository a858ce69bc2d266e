// What deltactl bench-serve says of a load that was run: a table for people, a document for
// programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "loadgen/generator.h"
#include "loadgen/summary.h"

namespace deltad {

struct ServeRun {
  std::string url, endpoint;
  bool streamed = true;
  bool open_loop = true;
  std::string pace;  // "poisson, 10 requests/s", for people
  uint64_t seed = 0;
  loadgen::GeneratorState state;
};

void print_serve_table(const ServeRun& run, const loadgen::Summary& summary);
nlohmann::ordered_json serve_json(const ServeRun& run, const loadgen::Summary& summary);

}  // namespace deltad
