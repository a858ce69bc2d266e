// RequestRecord: what became of one request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace deltad::loadgen {

enum class Outcome {
  kOk,
  kRefused,      // 429 or 503: the server was full and said so
  kHttpError,    // any other status than 200
  kServerError,  // the server reported an error inside a stream
  kMalformed,    // not HTTP, not JSON, no [DONE], a token count that cannot be
  kLost,         // no connection, or closed before the answer had ended
  kTimeout,
};

struct RequestRecord {
  std::string model;
  TimePoint scheduled;  // latencies count from here, whenever it was sent
  TimePoint sent;       // the generator's turn: later than scheduled if it was itself late
  TimePoint end;        // of the answer
  Outcome outcome = Outcome::kOk;
  std::string error;   // what it is counted under: "429", "timeout", …; empty if none
  std::string detail;  // what was wrong, for people

  // Of whole answers.
  bool streamed = false;
  TimePoint first;                                   // the first token came, if streamed
  std::vector<float> gaps;                           // between tokens that came apart, ms
  int64_t prompt_tokens = 0, completion_tokens = 0;  // as the server counts them
};

}  // namespace deltad::loadgen
