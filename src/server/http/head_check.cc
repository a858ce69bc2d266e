#include "server/http/head_check.h"

#include <algorithm>
#include <cstddef>

#include "base/ascii.h"

namespace deltad {
namespace {

constexpr size_t kNone = std::string_view::npos;

bool is_token_char(char c) {
  return is_ascii_alphanumeric(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != kNone;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

// Without the blanks around it.
std::string_view trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t");
  if (from == kNone) return {};
  return text.substr(from, text.find_last_not_of(" \t") + 1 - from);
}

struct Lengths {
  bool new_version = false;  // HTTP/1.1
  int content_length = 0, transfer_encoding = 0, host = 0;
};

const char* request_line_error(std::string_view line, Lengths* seen) {
  const size_t first = line.find(' ');
  const size_t second = first == kNone ? kNone : line.find(' ', first + 1);
  if (second == kNone || !is_token(line.substr(0, first)))
    return "the first line must be METHOD TARGET HTTP/1.1";
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const bool visible = std::all_of(target.begin(), target.end(),
                                   [](unsigned char c) { return c > ' ' && c != 0x7f; });
  if (target.empty() || !visible) return "the target must be visible characters";
  const std::string_view version = line.substr(second + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return "the version must be HTTP/1.1";
  seen->new_version = version == "HTTP/1.1";
  return nullptr;
}

const char* header_error(std::string_view line, Lengths* seen) {
  if (line.front() == ' ' || line.front() == '\t') return "a header goes over several lines";
  const size_t colon = line.find(':');
  if (colon == kNone || !is_token(line.substr(0, colon)))
    return "a header must be NAME: VALUE, without blanks before the colon";
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  for (const unsigned char c : value)
    if ((c < ' ' && c != '\t') || c == 0x7f) return "a header holds a control character";
  if (same_ignoring_case(name, "content-length")) {
    if (++seen->content_length > 1) return "Content-Length is given twice";
    if (value.empty() || value.find_first_not_of("0123456789") != kNone)
      return "Content-Length must be a number";
  } else if (same_ignoring_case(name, "transfer-encoding")) {
    if (++seen->transfer_encoding > 1) return "Transfer-Encoding is given twice";
    if (!same_ignoring_case(value, "chunked")) return "Transfer-Encoding must be chunked";
  } else if (same_ignoring_case(name, "host")) {
    if (++seen->host > 1) return "Host is given twice";
  }
  return nullptr;
}

}  // namespace

const char* early_error(std::string_view bytes, size_t from) {
  if (from == 0 && !bytes.empty() && !is_token_char(bytes[0])) return "it must begin with a method";
  for (size_t i = from; i < bytes.size(); ++i)
    if (bytes[i] == '\n' && (i == 0 || bytes[i - 1] != '\r'))
      return "lines must end in carriage return and line feed";
  return nullptr;
}

const char* head_error(std::string_view head) {
  Lengths seen;
  bool first = true;
  while (!head.empty()) {
    const size_t end = head.find("\r\n");
    if (end == kNone) return "lines must end in carriage return and line feed";
    const std::string_view line = head.substr(0, end);
    if (line.find_first_of("\r\n") != kNone)
      return "lines must end in carriage return and line feed";
    head.remove_prefix(end + 2);
    if (line.empty() && !first) break;
    const char* error = first ? request_line_error(line, &seen) : header_error(line, &seen);
    if (error != nullptr) return error;
    first = false;
  }
  if (seen.content_length > 0 && seen.transfer_encoding > 0)
    return "Content-Length and Transfer-Encoding exclude each other";
  if (seen.transfer_encoding > 0 && !seen.new_version) return "HTTP/1.0 knows no Transfer-Encoding";
  return nullptr;
}

}  // namespace deltad
