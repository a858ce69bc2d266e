// RequestRecord: what is known of one request when it has ended, for its log line. Plain data;
// belongs to the request's line of work.
#pragma once

#include <cstdint>
#include <string>

namespace deltad {

struct RequestRecord {
  std::string model;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  double queue = -1, first_token = -1;  // seconds; negative: it never got there
  std::string finish;
};

}  // namespace deltad
