#include "deltactl/console.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "base/worker_team.h"

namespace deltad {

int exit_code_of(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return 0;
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kUnimplemented:
      return 2;
    default:
      return 1;
  }
}

int fail(const Status& status, bool json) {
  fmt::print(stderr, "deltactl: {}\n", status.message());
  if (json)
    print_json({{"error", {{"code", code_name(status.code())}, {"message", status.message()}}}});
  return exit_code_of(status);
}

void run_command(Command* command, int* exit_code, const bool* json,
                 std::function<Result<int>()> body) {
  command->callback([exit_code, json, body = std::move(body)] {
    try {
      Result<int> result = body();
      *exit_code = result.ok() ? *result : fail(result.status(), json != nullptr && *json);
    } catch (const std::bad_alloc&) {
      *exit_code = fail(internal_error("out of memory"), json != nullptr && *json);
    } catch (const std::exception& error) {
      *exit_code = fail(internal_error(error.what()), json != nullptr && *json);
    }
    if (std::fflush(stdout) != 0 && *exit_code == 0)
      *exit_code = fail(internal_error("cannot write to standard output"), false);
  });
}

void add_json_option(Command* command, bool* json) {
  command->add_flag("--json", *json, "Print one JSON document on standard output");
}

int thread_count(int asked) { return asked > 0 ? asked : WorkerTeam::cores(); }

void print_json(const nlohmann::ordered_json& document) {
  const std::string text =
      document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  fmt::print("{}\n", text);
}

std::string human_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), shown_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  MutexLock lock(mutex_);
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::update(int64_t done, int64_t total) {
  if (!shown_ || total <= 0) return;
  MutexLock lock(mutex_);
  const TimePoint now = Clock::real().now();
  if (drawn_ && done < total && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  constexpr int kWidth = 30;
  const double part = static_cast<double>(done) / static_cast<double>(total);
  const auto filled = static_cast<size_t>(part * kWidth);
  fmt::print(stderr, "\r\033[K{} [{}{}] {:3.0f} %", label_, std::string(filled, '#'),
             std::string(kWidth - filled, '.'), part * 100);
  std::fflush(stderr);
}

Progress ProgressBar::callback() {
  return [this](int64_t done, int64_t total) { update(done, total); };
}

}  // namespace deltad
