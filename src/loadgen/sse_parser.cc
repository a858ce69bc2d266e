#include "loadgen/sse_parser.h"

#include <utility>

namespace deltad::loadgen {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;

}  // namespace

Status SseParser::push(std::string_view bytes, const OnData& on_data) {
  while (!bytes.empty()) {
    if (after_cr_) {
      after_cr_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() > kMostBytes) {
      return invalid_argument("a line of the event stream has more than 16 MiB");
    }
    if (end == std::string_view::npos) {
      line_ += part;
      return Status();
    }
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      RETURN_IF_ERROR(take_line(part, on_data));
    } else {
      line_ += part;
      const std::string whole = std::exchange(line_, {});
      RETURN_IF_ERROR(take_line(whole, on_data));
    }
  }
  return Status();
}

Status SseParser::take_line(std::string_view line, const OnData& on_data) {
  if (line.empty()) {
    if (!std::exchange(has_data_, false)) return Status();
    const std::string data = std::exchange(data_, {});
    return on_data(data);
  }
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != "data") return Status();  // a comment, or a field of no use here
  std::string_view value;
  if (colon != std::string_view::npos) value = line.substr(colon + 1);
  if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  if (data_.size() + value.size() > kMostBytes) {
    return invalid_argument("an event of the stream has more than 16 MiB");
  }
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
  return Status();
}

Status SseParser::finish() const {
  if (!line_.empty() || has_data_) return invalid_argument("the stream broke off inside an event");
  return Status();
}

}  // namespace deltad::loadgen
