// RouterScorer: scores an adapter file by asking it questions through the router, as background
// requests to a variant under no name: greedy, through the chat template, answers that are exactly
// the expected ones count. A few questions at a time, so that little of the KV cache is taken.
#pragma once

#include <string>
#include <vector>

#include "base/mutex.h"
#include "router/router.h"
#include "text/questions.h"

namespace deltad {

struct ScoringOptions {
  int concurrency = 4;                              // questions that are with the router at once
  int32_t max_tokens = 64;                          // of an answer
  Duration retry = std::chrono::milliseconds(500);  // after the engine had no place for one
};

class RouterScorer {
 public:
  // The router outlives it.
  RouterScorer(Router& router, const ScoringOptions& options)
      : router_(router), options_(options) {}

  // The share of questions that the adapter at path answers exactly. Blocks, for as long as others
  // leave the engine little time. kCancelled after cancel().
  Result<double> score(const std::string& path, const std::vector<Question>& questions)
      EXCLUDES(mutex_);
  // Ends a score that runs, and each later one until allow(). Any thread.
  void cancel() EXCLUDES(mutex_);
  void allow() EXCLUDES(mutex_);

 private:
  class Asking;
  Router& router_;
  const ScoringOptions options_;
  Mutex mutex_;
  CondVar changed_;
  bool cancelled_ GUARDED_BY(mutex_) = false;
};

}  // namespace deltad
