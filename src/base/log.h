// Log lines to stderr, as text or as one JSON object a line. Any thread. The library behind it
// (spdlog) stays in log.cc.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace deltad {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };
enum class LogFormat { kPlain, kJson };

void set_log_level(LogLevel level);
void set_log_format(LogFormat format);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view line);

// One thing that an event's line says. Without a value: "-" in text, left out of JSON.
struct LogField {
  std::string_view name;
  std::variant<std::monostate, int64_t, double, std::string> value;
};
// "event name=value …", or the fields as members of the line's JSON object.
void log_event(LogLevel level, std::string_view event, const std::vector<LogField>& fields);
// What log_event makes of them: the rest of the line, without time and level.
std::string event_text(LogFormat format, std::string_view event,
                       const std::vector<LogField>& fields);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kWarning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace deltad
