#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/json_quoted.h"

namespace deltad {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

std::atomic<LogFormat>& format_now() {
  static std::atomic<LogFormat> format{LogFormat::kPlain};
  return format;
}

// Of a JSON line the message is already JSON: a string, and the fields that follow it.
void set_pattern(spdlog::logger& logger, LogFormat format) {
  if (format == LogFormat::kPlain)
    logger.set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
  else
    logger.set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","message":%v})",
                       spdlog::pattern_time_type::utc);
}

spdlog::logger& logger() {
  static auto instance = [] {
    auto made = spdlog::stderr_color_mt("deltad");
    set_pattern(*made, LogFormat::kPlain);
    return made;
  }();
  return *instance;
}

// Text that cannot be taken for something else stands as it is.
std::string plain_value(const std::string& text) {
  if (text.empty()) return "-";
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c > ' ' && c != 0x7f && c != '"' && c != '=';
  });
  return plain ? text : json_quoted(text);
}

struct ValueText {
  LogFormat format;
  std::string operator()(std::monostate) const {
    return format == LogFormat::kPlain ? "-" : std::string();
  }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const {
    return std::isfinite(value) ? fmt::format("{:.1f}", value) : (*this)(std::monostate());
  }
  std::string operator()(const std::string& text) const {
    return format == LogFormat::kPlain ? plain_value(text) : json_quoted(text);
  }
};

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

void set_log_format(LogFormat format) {
  format_now() = format;
  set_pattern(logger(), format);
}

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view line) {
  if (format_now() == LogFormat::kPlain)
    logger().log(to_spdlog(level), "{}", line);
  else
    logger().log(to_spdlog(level), "{}", json_quoted(line));
}

std::string event_text(LogFormat format, std::string_view event,
                       const std::vector<LogField>& fields) {
  const bool plain = format == LogFormat::kPlain;
  std::string line = plain ? std::string(event) : json_quoted(event);
  for (const LogField& field : fields) {
    const std::string value = std::visit(ValueText{format}, field.value);
    if (value.empty()) continue;
    line += plain ? fmt::format(" {}={}", field.name, value)
                  : fmt::format(",{}:{}", json_quoted(field.name), value);
  }
  return line;
}

void log_event(LogLevel level, std::string_view event, const std::vector<LogField>& fields) {
  if (!log_enabled(level)) return;
  logger().log(to_spdlog(level), "{}", event_text(format_now(), event, fields));
}

}  // namespace deltad
