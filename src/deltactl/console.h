// What the subcommands share: exit codes, error output, JSON output, a progress bar, options that
// several of them have. Main thread, except ProgressBar::update.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/version.h"
#include "manual/command.h"
#include "model/loader.h"

namespace deltad {

inline constexpr const char* kDeltactlVersion = kVersion;

// 0 done; 2 if the input is wrong (invalid, missing or not supported); 1 for every other failure.
int exit_code_of(const Status& status);

// Prints the error on stderr ("deltactl: …"), and with json also as a document on stdout
// ({"error": {"code", "message"}}). Returns its exit code.
int fail(const Status& status, bool json);

// Makes `body` what `command` does. Exceptions become internal errors. body may return a
// nonzero exit code of its own without an error (verify: 1 if the file is bad).
void run_command(Command* command, int* exit_code, const bool* json,
                 std::function<Result<int>()> body);

// "--json", stored in *json.
void add_json_option(Command* command, bool* json);
// "--threads"/"--jobs" and the like: 0 means one a core of this process's affinity mask.
int thread_count(int asked);

// One JSON document on stdout. Invalid UTF-8 in it is replaced.
void print_json(const nlohmann::ordered_json& document);

std::string human_bytes(int64_t bytes);  // "12.3 MiB"

// A progress bar on stderr; nothing unless stderr is a terminal. Goes away when it is destroyed.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(int64_t done, int64_t total);  // any thread; draws at most ten times a second
  Progress callback();                       // valid as long as this object

 private:
  const std::string label_;
  const bool shown_;
  Mutex mutex_;
  TimePoint last_ GUARDED_BY(mutex_){};
  bool drawn_ GUARDED_BY(mutex_) = false;
};

}  // namespace deltad
